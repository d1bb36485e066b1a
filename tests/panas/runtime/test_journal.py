"""The log of a search: what is in it survives a kill, and belongs to one search and process."""

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panas.runtime import store
from panas.runtime.errors import BadInput
from panas.runtime.journal import open_journal, read_journal

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


def test_a_line_is_on_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("damage", [b"{", b"\0\0\0\0", b"[1]", b"3", b"\xff\xfe"])
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


def try_to_open(path: Path, answers: Any) -> None:
    try:
        with open_journal(path, HEADER) as journal:
            answers.put(len(journal.lines))
    except BadInput as e:
        answers.put(str(e))


def test_a_log_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with (
        open_journal(path, HEADER) as journal,
        pytest.raises(BadInput, match="another process"),
        open_journal(path, HEADER),
    ):
        pass
    with open_journal(path, HEADER) as journal:
        journal.append(LINES[0])
        assert "for this process alone" in ask_another(path)
        journal.append(LINES[1])
    assert read_journal(path) == LINES
    assert ask_another(path) == 2  # the block is over


def ask_another(path: Path) -> Any:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=try_to_open, args=(path, answers))
    process.start()
    answer = answers.get(timeout=60)
    process.join()
    return answer
