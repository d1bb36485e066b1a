"""A round on disk: it reads back, agrees with rounds.jsonl, and damage is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dprbft.server.checkpoint import Checkpoint, is_trained, read_checkpoint, write_checkpoint
from dprbft.server.records import ClientRound, RoundRecord, read_rounds
from dprbft.site.state import State
from panas.architecture.genome import Genome
from panas.runtime.errors import BadInput
from panas.runtime.store import read_lines
from panas.tuning.space import DPSGDSettings

CLIENT = ClientRound(
    id=1, local=0.5, shared=None, validation=0.25, blend=0.75, kept=0.5, release="ab"
)
RECORD = RoundRecord(
    round=1,
    seconds=2.5,
    up_bytes=10,
    down_bytes=20,
    clients=(CLIENT, replace(CLIENT, id=2, kept=1.0)),
)
STATE = State(
    bottom={},
    head={"w": torch.ones(2)},
    kept_bottom={},
    kept_head={},
    genome=Genome.parse("c4k3"),
    settings=DPSGDSettings(learning_rate=1.0, noise_multiplier=1.0, clip=1.0, batch_size=1),
).to_bytes()
ROUND = Checkpoint(
    round=1, states=(STATE, STATE), broadcast=b"head", releases={1: b"sent"}, records=(RECORD,)
)


def test_a_record_reads_back_and_names_the_shared_head_global():
    assert RoundRecord.from_json(RECORD.to_json()) == RECORD
    assert RECORD.to_json()["clients"][0]["global"] is None
    assert RECORD.mean == 0.75


def test_a_checkpoint_reads_back_and_agrees_with_the_rounds(tmp_path: Path):
    assert not is_trained(tmp_path)
    write_checkpoint(tmp_path, ROUND)
    assert read_checkpoint(tmp_path, 2) == ROUND
    assert read_rounds(tmp_path) == [RECORD]
    assert read_lines(tmp_path / "rounds.jsonl") == [RECORD.to_json()]


def test_a_round_replaces_the_one_before(tmp_path: Path):
    write_checkpoint(tmp_path, ROUND)
    second = replace(ROUND, round=2, broadcast=b"other", records=(RECORD, RECORD))
    write_checkpoint(tmp_path, second)
    assert read_checkpoint(tmp_path, 2) == second
    assert [p.name for p in (tmp_path / "checkpoint").glob("round-*")] == ["round-002"]


def test_no_round_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="train it first"):
        read_checkpoint(tmp_path, 2)


@pytest.mark.parametrize("victim", ["broadcast.safetensors", "client-001.safetensors"])
def test_a_damaged_file_is_refused_by_name(victim: str, tmp_path: Path):
    write_checkpoint(tmp_path, ROUND)
    (tmp_path / "checkpoint" / "round-001" / victim).write_bytes(b"tail")
    with pytest.raises(BadInput, match=victim):
        read_checkpoint(tmp_path, 2)
