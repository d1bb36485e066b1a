"""A clock that is set back or ahead changes no budget: lines have an order, whatever their time."""

import json

import pytest
from ledgers import charge

from panas.privacy.accounting.events import Gaussian
from panas.privacy.ledger import ledger as ledgers
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BudgetExhausted


@pytest.mark.parametrize("step", [-10 * 365 * 86_400.0, -1.0, 0.0, 10 * 365 * 86_400.0])
def test_a_clock_that_is_set_between_charges_frees_no_budget(
    step: float, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
):
    charge(ledger, Gaussian(3.0))
    first = json.loads(ledger.path.read_text().splitlines()[2])["time"]
    spent, left = ledger.account().spent(), ledger.account().left()
    monkeypatch.setattr(ledgers.time, "time", lambda: first + step)
    again = Ledger(ledger.path)
    assert (again.account().spent(), again.account().left()) == (spent, left)
    with pytest.raises(BudgetExhausted):
        charge(again, Gaussian(1.0))
    charge(again, Gaussian(20.0))
    assert Ledger(ledger.path).account().spent() > spent
    assert Ledger(ledger.path).account().left() < left
    assert len(Ledger(ledger.path).account().entries) == 2
