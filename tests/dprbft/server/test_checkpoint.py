"""What the server keeps of a round: it reads back, agrees with rounds.jsonl; damage is refused."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dprbft.messages import Broadcast, Release
from dprbft.server.checkpoint import ServerFiles, received
from dprbft.server.records import RoundRecord, read_rounds, write_rounds
from panas.runtime.errors import BadInput
from panas.runtime.store import read_lines

WIDTH, CLASSES = 4, 3


def head(round: int, value: float = 1.0) -> Broadcast:
    return Broadcast(round, torch.full((CLASSES, WIDTH), value), torch.zeros(CLASSES))


def sent(site: int, round: int = 1, value: float = 1.0) -> bytes:
    arrays = {
        "A": torch.full((WIDTH * (WIDTH + 1) // 2,), value),
        "B": torch.full((CLASSES, WIDTH), value),
    }
    return Release(site, round, "moments", 1.5, "0" * 32, arrays).to_bytes()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def record(files: ServerFiles, round: int = 1, sites: tuple[int, ...] = (1, 2)) -> RoundRecord:
    """A round of whose sites everything has arrived; its answer is kept."""
    contents = {site: sent(site, round) for site in sites}
    for site, content in contents.items():
        files.put_release(round, site, content)
    files.put_answer(head(round), [3])
    return RoundRecord(
        round=round,
        seconds=2.5,
        up_bytes=sum(len(content) for content in contents.values()),
        down_bytes=20,
        sites=sites,
        absent=(3,),
        releases={site: digest(content) for site, content in contents.items()},
        broadcast=digest(head(round).to_bytes()),
    )


@pytest.fixture
def files(tmp_path: Path) -> ServerFiles:
    return ServerFiles(tmp_path / "server", WIDTH, CLASSES)


def test_a_record_reads_back_and_holds_no_accuracy(files: ServerFiles):
    one = record(files)
    assert RoundRecord.from_json(one.to_json()) == one
    words = {"round", "seconds", "up_bytes", "down_bytes", "sites", "absent", "releases"}
    assert one.to_json().keys() == words | {"broadcast"}


def test_a_release_of_another_compression_than_the_run_s_is_refused(files: ServerFiles):
    plain = Release.from_bytes(sent(1), width=WIDTH, classes=CLASSES)
    small = plain.compressed("int8").to_bytes()
    with pytest.raises(BadInput, match="with compression none, got one with int8"):
        files.put_release(1, 1, small)
    asked = replace(files, compression="int8")
    asked.put_release(1, 1, small)
    with pytest.raises(BadInput, match="with compression int8, got one with none"):
        asked.put_release(1, 2, sent(2))


def test_a_round_reads_back_and_agrees_with_the_rounds(files: ServerFiles):
    assert files.latest() is None
    assert files.latest() is None
    files.begin(head(0))
    assert files.latest() == 0
    assert not files.answered(1)
    one = record(files)
    files.end(one)
    assert files.latest() == 1
    assert files.answered(1)
    assert files.absent(1) == [3]
    assert torch.equal(files.broadcast(1).weight, head(1).weight)
    assert [r.to_bytes() for r in files.releases(1, (1, 2))] == [sent(1), sent(2)]
    assert read_rounds(files.folder) == [one]
    assert read_lines(files.folder / "rounds.jsonl") == [read_back(one)]


def read_back(one: RoundRecord) -> dict[str, Any]:
    """A record as a reader of JSON sees it."""
    return json.loads(json.dumps(one.to_json()))


def test_every_round_stays_and_what_a_death_left_over_is_cut(files: ServerFiles):
    files.begin(head(0))
    first, second = record(files, 1), record(files, 2)
    files.end(first)
    files.end(second)
    assert read_rounds(files.folder) == [first, second]
    assert [p.name for p in sorted(files.folder.glob("round-*"))] == [
        f"round-{k:03d}" for k in range(3)
    ]
    # It died between the line and the number of the last whole round.
    write_rounds(files.folder, [first, second, replace(second, round=3)])
    files.repair()
    assert read_rounds(files.folder) == [first, second]
    assert files.latest() == 2


def test_the_last_release_of_a_site_is_found_with_its_round(files: ServerFiles):
    files.begin(head(0))
    first, second = record(files, 1), record(files, 2, sites=(2,))
    files.end(first)
    files.end(second)
    for site, of in ((1, first), (2, second)):
        path, round = received(files.folder, site)
        assert (path.read_bytes(), round) == (sent(site, of.round), of)
    assert received(files.folder, 3) is None


@pytest.mark.parametrize("wrong", [sent(2), sent(1, round=2), sent(1)[:-1], b"", b"junk"])
def test_what_is_no_release_of_that_site_and_round_is_not_kept(wrong: bytes, files: ServerFiles):
    with pytest.raises(BadInput):
        files.put_release(1, 1, wrong)
    assert not files.has_release(1, 1)
    assert list(files.releases(1, (1,))) == []


@pytest.mark.parametrize("victim", ["broadcast.safetensors", "site-0001.safetensors"])
def test_a_damaged_file_is_refused_by_name(victim: str, files: ServerFiles):
    files.begin(head(0))
    files.end(record(files))
    (files.folder / "round-001" / victim).write_bytes(b"tail")
    with pytest.raises(BadInput, match=victim):
        assert [files.broadcast(1), *files.releases(1, (1, 2))]


def test_another_answer_in_its_place_is_refused(files: ServerFiles):
    files.begin(head(0))
    files.end(record(files))
    (files.folder / "round-001" / "broadcast.safetensors").write_bytes(head(1, 2.0).to_bytes())
    with pytest.raises(BadInput, match="damaged"):
        files.broadcast(1)
