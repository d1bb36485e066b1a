"""A ledger with its account, and one without."""

from pathlib import Path

import pytest
from ledgers import BUDGET

from panas.privacy.ledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "run" / "ledger.jsonl")
    ledger.open_account(BUDGET)
    return ledger


@pytest.fixture
def other(tmp_path: Path) -> Ledger:
    """Another, without an account."""
    return Ledger(tmp_path / "other" / "ledger.jsonl")
