"""A ledger with its account, and one without."""

from pathlib import Path

import pytest
from ledgers import BUDGET, opened

from panas.privacy.ledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return opened(tmp_path / "run", BUDGET)


@pytest.fixture
def other(tmp_path: Path) -> Ledger:
    """Another, without an account."""
    return Ledger(tmp_path / "other" / "ledger.jsonl")
