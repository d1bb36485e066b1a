"""A ledger with one account."""

from pathlib import Path

import pytest
from ledgers import BUDGET

from panas.privacy.ledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "run" / "ledger.jsonl")
    ledger.open_account(0, BUDGET)
    return ledger
