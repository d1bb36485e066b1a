"""What a soak finds in ledgers."""

import pytest

from benchmarks.soak import wrong
from dprbft.server.records import RoundRecord
from panas.privacy.accounting.events import Gaussian
from panas.privacy.ledger.charge import Charge


def charge(round: int | None, run: str = "r") -> Charge:
    event = Gaussian(noise_multiplier=1.0)
    about = {"phase": "training", "mechanism": "dp-sgd", "recipient": "server"}
    return Charge(event=event, sensitivity=1.0, run=run, round=round, **about)  # type: ignore[arg-type]


def record(round: int, *sites: int) -> RoundRecord:
    return RoundRecord(
        round=round, seconds=1, up_bytes=1, down_bytes=1, sites=sites, releases={}, broadcast=""
    )


@pytest.mark.parametrize(
    ("charges", "double", "lost"),
    [
        ([charge(1), charge(2)], 0, 0),
        ([charge(1), charge(2), charge(2)], 1, 0),
        ([charge(1)], 0, 1),
        ([charge(1), charge(2, "another")], 0, 1),
        ([charge(1), charge(2), charge(3)], 0, 0),  # what was charged, and has not arrived
    ],
)
def test_double_and_lost_charges_are_found(charges: list[Charge], double: int, lost: int):
    told = {"r": [record(0), record(1, 0, 1), record(2, 0)]}
    doubles, losses = wrong({"a": charges, "b": [charge(None)]}, told)
    assert (len(doubles), len(losses)) == (double, lost)
