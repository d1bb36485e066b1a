"""The number of a charge follows from its line, so that a receipt carries nothing else."""

import json
from pathlib import Path

import pytest

from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge, number_of
from panas.privacy.ledger.ledger import Ledger

CHARGE = Charge(
    event=Gaussian(9.0), phase="release", mechanism="counts", recipient="server", sensitivity=1.0
)


def charged(path: Path, times: int) -> Ledger:
    ledger = Ledger(path)
    ledger.open_account(Budget(8.0, 1e-5), replicated=False)
    for _ in range(times):
        with ledger.charge(CHARGE):
            pass
    return ledger


def test_numbers_follow_from_the_lines(tmp_path: Path) -> None:
    ledger = charged(tmp_path / "ledger.jsonl", 3)
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    numbers = [number_of(ledger.id, line) for line in lines if line["kind"] == "charge"]
    assert [e.id for e in ledger.account().entries] == numbers
    assert len(set(numbers)) == 3
    assert all(e.derived for e in ledger.account().entries)


def test_equal_charges_at_one_time_have_different_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1e9)
    entries = charged(tmp_path / "ledger.jsonl", 2).account().entries
    assert entries[0].id != entries[1].id


def test_a_number_of_the_site_s_choice_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("panas.privacy.ledger.ledger.number_of", lambda *_: "ab" * 16)
    ledger = charged(tmp_path / "ledger.jsonl", 1)
    monkeypatch.undo()
    assert [e.derived for e in Ledger(ledger.path).account().entries] == [False]
