"""Files are old or new and never half; the log of a search belongs to one search and process."""

import io
import json
import multiprocessing
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panas.runtime import store
from panas.runtime.errors import BadInput
from panas.runtime.journal import open_journal, read_journal


class Crash(BaseException):
    """Stands for a process that is killed."""


def crash(*_: object, **__: object) -> None:
    raise Crash


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_crash_while_writing_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    path = tmp_path / "deep" / "file.json"
    store.write_bytes(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crash)
        with pytest.raises(Crash):
            store.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def parts(*good: bytes, ends: bool) -> Iterator[bytes]:
    yield from good
    if not ends:
        raise Crash


def test_parts_are_written_all_or_none(tmp_path: Path) -> None:
    path, stream = tmp_path / "file.csv", io.BytesIO()
    store.write_parts(path, parts(b"a", b"b", ends=True))
    store.copy_parts(parts(b"a", b"b", ends=True), stream)
    assert path.read_bytes() == stream.getvalue() == b"ab"
    with pytest.raises(Crash):
        store.write_parts(path, parts(b"c", ends=False))
    with pytest.raises(Crash):
        store.copy_parts(parts(b"c", ends=False), stream)
    assert path.read_bytes() == stream.getvalue() == b"ab"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_disk_before_the_file_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("sync"), sync(fd)))
    monkeypatch.setattr(Path, "replace", lambda a, b: (order.append("rename"), replace(a, b))[1])
    store.write_bytes(tmp_path / "f", b"x")
    assert order == ["sync", "rename", "sync"]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"a": 1, "b": [1.5, None, {"c": "é"}], "t": (1, 2)},
        {"keys": {1: "a", 10: "b", 2: "c"}},
        {"tiny": 5e-324, "big": 2**80, "negative zero": -0.0},
    ],
)
def test_json_round_trip(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "a.json"
    store.write_json(path, record)
    assert store.read_json(path) == json.loads(json.dumps(record))


def test_an_edited_or_a_missing_file_and_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    store.write_json(path, {"epsilon": 8, "name": "x"})
    path.write_text(path.read_text().replace("8", "9"))
    with pytest.raises(BadInput, match="damaged or edited"):
        store.read_json(path)
    for read in (store.read_bytes, store.read_json, store.read_tensors):
        with pytest.raises(BadInput, match="run the stage"):
            read(tmp_path / "none")
    path = tmp_path / "a.json"
    store.write_json(path, {"a": 1})
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON compliant"):
            store.write_json(path, {"a": value})
    assert store.read_json(path) == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, 2]", b"3", b"null", b'"text"', b"{}", b'{"a": 1}', b"\xff\xfe", b"[" * 10**5],
)
def test_what_is_no_checked_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(BadInput):
        store.read_json(path)


TENSORS = {
    "w": torch.arange(6.0).reshape(2, 3).T,
    "n": torch.tensor(3),
    "empty": torch.zeros(0, 4),
    "y": torch.tensor([1, 2]),
}


def test_the_same_tensors_are_the_same_bytes_and_come_back(tmp_path: Path) -> None:
    tensors = {"x": torch.arange(3.0), "y": torch.zeros(2, 2, dtype=torch.int64)}
    for key in ("é", "ab", "abc", "abcd"):  # lengths of headers that need padding or none
        notes = {key: "1", "network": "{}", "n": "2"}
        packed = {store.pack_tensors(tensors, notes) for _ in range(20)}
        assert len(packed) == 1
        result, metadata = store.unpack_tensors(packed.pop(), Path("here"))
        assert metadata == notes
        assert all(torch.equal(result[name], tensor) for name, tensor in tensors.items())
    path = tmp_path / "m.safetensors"
    store.write_tensors(path, TENSORS, {"about": "é"})
    back, about = store.read_tensors(path)
    assert about == {"about": "é"}
    assert back.keys() == TENSORS.keys()
    for k, v in TENSORS.items():
        assert torch.equal(back[k], v)
        assert back[k].dtype == v.dtype


@pytest.mark.parametrize("edit", ["last byte", "metadata", "cut", "name", "empty"])
def test_edited_tensors_are_refused(tmp_path: Path, edit: str) -> None:
    path = tmp_path / "m.safetensors"
    store.write_tensors(path, TENSORS, {"about": "abc"})
    content = path.read_bytes()
    changed = {
        "last byte": content[:-1] + bytes([content[-1] ^ 1]),
        "metadata": content.replace(b'"abc"', b'"abd"'),
        "cut": content[:-5],
        "name": content.replace(b'"w"', b'"v"'),
        "empty": b"",
    }[edit]
    assert changed != content
    path.write_bytes(changed)
    with pytest.raises(BadInput, match="damaged or edited"):
        store.read_tensors(path)


def _count(path: Path, times: int) -> None:
    for _ in range(times):
        with store.exclusive(path):
            now = int(path.read_text())
            path.write_text(str(now + 1))


@pytest.mark.slow
def test_the_lock_excludes_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("0")
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=_count, args=(path, 300)) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
        assert w.exitcode == 0
    assert path.read_text() == "900"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_written_is_private_to_its_owner(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        store.write_bytes(tmp_path / "a" / "picture.png", b"x")
        with store.exclusive(tmp_path / "a" / "b" / "log"):
            store.append_bytes(tmp_path / "a" / "b" / "log", b"x\n", at=0)
    finally:
        os.umask(before)
    results = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*")}
    private = {"a": 0o700, "b": 0o700, "picture.png": 0o600, "log": 0o600, ".log.lock": 0o600}
    assert results == private


def test_an_append_cuts_off_a_torn_line_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    # Whole JSON, yet without its end it was never acknowledged.
    for torn in (b'{"i": 1', b'{"i": 1}', b"\xff"):
        path.write_bytes(b'{"i": 0}\n' + torn)
        assert store.read_lines(path) == [{"i": 0}]
    path.write_bytes(b"one\ntwo\nto")
    store.append_bytes(path, b"three\n", at=8)
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    assert store.read_lines(tmp_path / "none") == []
    for at in (0, 4, 8, 15):  # before whole lines, and beyond the end
        with pytest.raises(BadInput, match="another process has changed it"):
            store.append_bytes(path, b"four\n", at=at)
        assert path.read_bytes() == b"one\ntwo\nthree\n"
    store.append_bytes(path, b"four\n", at=14)
    assert path.read_bytes().splitlines()[-1] == b"four"


HEADER = {"search": "architecture", "seed": 3, "rungs": (0.25, 0.5)}
LINES = [{"generation": 0, "best": 0.1}, {"generation": 1, "rng": {"state": 2**127 + 1}}]


def written(path: Path, lines: list[dict[str, Any]] = LINES) -> bytes:
    with open_journal(path, HEADER) as journal:
        for line in lines:
            journal.append(line)
    return path.read_bytes()


def test_lines_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    content = written(path)
    assert [json.loads(line) for line in content.splitlines()] == [
        HEADER | {"rungs": [0.25, 0.5]},
        *LINES,
    ]
    assert content.endswith(b"\n")
    assert read_journal(path) == LINES
    with open_journal(path, HEADER) as journal:
        assert journal.lines == LINES
    assert path.read_bytes() == content  # opening it again changes nothing
    assert read_journal(tmp_path / "none") == []


def test_without_a_path_lines_are_as_they_would_come_from_a_file() -> None:
    with open_journal(None, HEADER) as journal:
        journal.append({"scores": (0.1, 0.2)})
        assert journal.lines == [{"scores": [0.1, 0.2]}]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_goes_on_from_its_last_whole_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "log.jsonl"
    content = written(path)
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = max(0, content[:cut].count(b"\n") - 1)
    with open_journal(path, HEADER) as journal:
        assert journal.lines == LINES[:whole]
        for line in LINES[whole:]:
            journal.append(line)
    assert path.read_bytes() == content


def test_a_line_is_on_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, synced = tmp_path / "log.jsonl", []
    sync = store.os.fsync
    monkeypatch.setattr(store.os, "fsync", lambda fd: (synced.append(path.read_bytes()), sync(fd)))
    with open_journal(path, HEADER) as journal:
        for number, line in enumerate(LINES, start=1):
            journal.append(line)
            assert synced[-1] == path.read_bytes()
            assert synced[-1].count(b"\n") == number + 1


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (HEADER | {"seed": 4}, "seed"),
        (HEADER | {"rungs": ()}, "rungs"),
        (HEADER | {"more": 1}, "more"),
        ({"seed": 3, "rungs": (0.25, 0.5)}, "search"),
        (HEADER | {"search": "x" * 5000}, "search"),
    ],
)
def test_the_log_of_another_search_is_refused_in_one_line(
    tmp_path: Path, header: dict[str, Any], key: str
) -> None:
    path = tmp_path / "log.jsonl"
    content = written(path)
    with pytest.raises(BadInput, match=f"{key} = .*; give the same settings") as caught:
        open_journal(path, header).__enter__()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", [b"{", b"", b"\0\0\0\0", b"[1]", b"3", b"\xff\xfe"])
@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_damaged_line_is_refused(tmp_path: Path, line: int, damage: bytes) -> None:
    path = tmp_path / "log.jsonl"
    lines = written(path).splitlines()
    lines[line] = damage
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(BadInput, match=f"line {line + 1} of") as caught:
        open_journal(path, HEADER).__enter__()
    assert "\n" not in str(caught.value)


def test_numbers_that_are_none_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    content = written(path)
    with open_journal(path, HEADER) as journal:
        with pytest.raises(ValueError, match="JSON"):
            journal.append({"best": float("nan")})
        assert journal.lines == LINES
        assert path.read_bytes() == content


def test_a_log_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with open_journal(path, HEADER) as journal:
        journal.append(LINES[0])
        with pytest.raises(BadInput, match=r"process alone, got .* another process") as caught:
            open_journal(path, HEADER).__enter__()
        assert "\n" not in str(caught.value)
        journal.append(LINES[1])
    with open_journal(path, HEADER) as journal:  # the block is over
        assert journal.lines == LINES
