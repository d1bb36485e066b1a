"""A budget, and releases charged to it."""

from dataclasses import replace

from panas.privacy.accounting.events import Event, Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.receipt import Receipt

BUDGET = Budget(3.0, 1e-5)
MOMENTS = Charge(
    event=Gaussian(1.0),
    phase="release",
    mechanism="moments",
    recipient="server",
    sensitivity=1.4,
)


def charge(ledger: Ledger, event: Event, client: int = 0) -> Receipt:
    return ledger.charge(client, replace(MOMENTS, event=event))
