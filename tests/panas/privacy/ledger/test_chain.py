"""Every way to change a chained file behind its back is noticed, and named."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panas.privacy.ledger import chain as module
from panas.privacy.ledger.chain import FIRST, Chain
from panas.runtime.errors import BadInput

LINES = 6


def fill(path: Path, lines: int = LINES) -> Chain:
    chain = Chain(path)
    chain.refresh(locked=True)
    for i in range(lines):
        chain.append({"kind": "charge", "value": i})
    return chain


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "ledger.jsonl")
    return tmp_path / "ledger.jsonl"


def values(path: Path) -> list[int]:
    return [r["value"] for r in Chain(path).refresh(locked=False)[1]]


def test_what_is_appended_is_read_back_in_order_and_a_reader_is_told_what_is_new(path: Path):
    anew, records = Chain(path).refresh(locked=False)
    assert anew
    assert [(r["n"], r["value"]) for r in records] == [(i + 1, i) for i in range(LINES)]
    assert records[0]["previous"] == FIRST
    assert len({r["previous"] for r in records}) == LINES
    chain = Chain(path)
    assert len(chain.refresh(locked=False)[1]) == LINES
    assert chain.refresh(locked=False) == (False, [])
    other = Chain(path)
    other.refresh(locked=True)
    other.append({"value": 99})
    anew, (record,) = chain.refresh(locked=False)
    assert (anew, record["value"]) == (False, 99)
    assert chain.head() == other.head()
    chain.append({"value": 100})
    assert chain.refresh(locked=False) == (False, [])
    assert values(path)[-2:] == [99, 100]


def hashed(line: bytes) -> bytes:
    """The line with another hash of the one before."""
    return json.dumps(json.loads(line) | {"previous": "f" * 64}).encode() + b"\n"


LINE: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "change": lambda rest: [rest[0].replace(b'"charge"', b'"chargo"'), *rest[1:]],
    "change hash": lambda rest: [hashed(rest[0]), *rest[1:]],
    "break json": lambda rest: [rest[0][1:], *rest[1:]],
    "remove": lambda rest: rest[1:],
    "swap": lambda rest: [rest[1], rest[0], *rest[2:]],
    "repeat": lambda rest: [rest[0], *rest],
    "tear": lambda rest: [rest[0][:-9]],
}
"""What becomes of a line and those behind it."""


def edit_head(path: Path, number: int) -> None:
    head = path.with_suffix(".head")
    head.write_bytes(head.read_bytes().replace(b'"count": 6', b'"count": 5'))


def rewrite_head(path: Path, number: int) -> None:
    module.write_json(path.with_suffix(".head"), {"version": 1, "count": number, "hash": "f" * 64})


FILE: dict[str, Callable[[Path, int], None]] = {
    "delete head": lambda path, _: path.with_suffix(".head").unlink(),
    "edit head": edit_head,
    "rewrite head": rewrite_head,
    "delete file": lambda path, _: path.unlink(),
}


def tamper(path: Path, how: str, number: int) -> None:
    if how in FILE:
        return FILE[how](path, number)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[: number - 1], *LINE[how](lines[number - 1 :])]))


@pytest.mark.parametrize(
    ("how", "number", "message"),
    [
        *(("change", n, f"line {n} was changed") for n in (1, 3, 6)),
        *(("change hash", n, f"line {n} was changed") for n in (1, 3, 6)),
        ("break json", 1, "first line that was changed"),
        *(("break json", n, f"line {n} was changed") for n in (4, 6)),
        *(("remove", n, f"removed or moved: number {n + 1} stands there") for n in (1, 4)),
        ("remove", 6, "ends at line 5, ledger.head says 6"),
        ("swap", 2, "line 2 was removed or moved: number 3 stands there"),
        *(("repeat", n, f"line {n + 1} was removed or moved: number {n}") for n in (4, 6)),
        *(("tear", n, f"truncated in line {n} of 6") for n in (4, 6)),
        ("delete head", 0, "6 lines without its ledger.head, which was deleted"),
        ("edit head", 0, "ledger.head that was edited or damaged"),
        ("rewrite head", 6, "line 6 was changed, or whose ledger.head was"),
        ("rewrite head", 9, "ends at line 6, ledger.head says 9"),
        ("rewrite head", 0, "whose ledger.head was"),
        ("delete file", 0, "no such file, although ledger.head knows of one"),
    ],
)
def test_tampering_is_named(path: Path, how: str, number: int, message: str) -> None:
    chain = Chain(path)
    chain.refresh(locked=False)
    tamper(path, how, number)
    for reader in (chain, Chain(path)):
        for locked in (False, True, False):
            with pytest.raises(BadInput) as refused:
                reader.refresh(locked=locked)
            assert message in str(refused.value)
            assert "\n" not in str(refused.value)
            assert "; put the right files back" in str(refused.value)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(0, 255))
def test_no_byte_can_be_changed_and_nothing_be_cut_off(
    tmp_path_factory: pytest.TempPathFactory, place: float, flip: int
) -> None:
    path = tmp_path_factory.mktemp("chain") / "ledger.jsonl"
    fill(path)
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    content[at] ^= flip
    for changed in (content[:at], *([content] if flip else [])):
        path.write_bytes(bytes(changed))
        with pytest.raises(BadInput):
            Chain(path).refresh(locked=False)


def test_an_old_head_is_named_by_whoever_holds_the_lock(path: Path) -> None:
    head = path.with_suffix(".head")
    old = head.read_bytes()
    chain = Chain(path)
    chain.refresh(locked=True)
    chain.append({"value": 6})
    head.write_bytes(old)
    assert len(values(path)) == LINES + 1  # one line more: a death before the head was written
    chain.refresh(locked=True)
    chain.append({"value": 7})
    chain.append({"value": 8})
    head.write_bytes(old)
    with pytest.raises(BadInput, match=r"with an old ledger.head, which says 6"):
        Chain(path).refresh(locked=True)
    assert len(values(path)) == LINES + 3


def test_a_torn_line_that_was_never_acknowledged_is_dropped(path: Path) -> None:
    whole = path.read_bytes()
    for torn in (b"{", b'{"n": 7}', b"\xff"):
        path.write_bytes(whole + torn)
        assert values(path) == list(range(LINES))
    chain = Chain(path)
    chain.refresh(locked=True)
    chain.append({"value": 6})
    assert path.read_bytes().startswith(whole)
    assert values(path) == list(range(7))
    path = path.with_name("first.jsonl")  # which may die before its head
    fill(path, 1)
    path.with_suffix(".head").unlink()
    assert values(path) == [0]
    path.write_bytes(b"{")
    assert values(path) == []
    fill(path, 3)
    assert values(path) == [0, 1, 2]


def _append_until_killed(path: Path) -> None:
    chain = Chain(path)
    chain.refresh(locked=True)
    while True:
        chain.append({"value": chain.head()[0]})


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_a_whole_chain(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    child = os.fork()
    if child == 0:
        _append_until_killed(path)
    try:
        chain, seen = Chain(path), 0
        while seen < 200:
            anew, records = chain.refresh(locked=False)
            seen = len(records) if anew else seen + len(records)
            assert seen == chain.head()[0]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert values(path) == list(range(len(values(path))))
