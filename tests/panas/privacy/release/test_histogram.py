"""The label histogram: its noise, its relation, and that it is charged before it is counted."""

import math
from inspect import unwrap
from pathlib import Path

import pytest
import torch
from noises import HalfNoise, NoNoise
from torch import Tensor

from panas.privacy.accounting.events import Gaussian, PostProcessing, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.release.histogram import label_histogram
from panas.runtime.errors import BadInput


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open_account(Budget(8.0, 1e-5), allow_unprotected=True)
    return ledger


@pytest.fixture
def replacing(tmp_path: Path) -> Ledger:
    """One under replace-one, which allows nothing unprotected."""
    ledger = Ledger(tmp_path / "replacing.jsonl")
    ledger.open_account(Budget(8.0, 1e-5), relation="replace-one")
    return ledger


def test_the_histogram_is_the_counts_with_noise_of_sensitivity_one(ledger: Ledger) -> None:
    y = torch.tensor([0, 2, 2, 2])
    events: list[Gaussian | Unprotected] = [Gaussian(4.0), Unprotected()]
    for event in events:
        counts = label_histogram(
            lambda: (y, None), classes=4, event=event, ledger=ledger, noise=NoNoise()
        )
        assert counts.tolist() == [1, 0, 3, 0]
    first, second = ledger.account().entries
    assert (first.charge.phase, first.event, first.charge.sensitivity) == (
        "search",
        Gaussian(4.0),
        1.0,
    )
    assert second.event == Unprotected()


def histogram_ratio(ledger: Ledger, source: SystemNoise) -> float:
    counts = label_histogram(
        lambda: (torch.zeros(0, dtype=torch.int64), None),
        classes=4000,
        event=Gaussian(20.0),
        ledger=ledger,
        noise=source,
    )
    return float(counts.std()) / 20.0


@pytest.mark.parametrize(("fixture", "delta"), [("ledger", 1.0), ("replacing", math.sqrt(2))])
def test_the_histogram_has_the_noise_of_its_relation(
    fixture: str, delta: float, request: pytest.FixtureRequest
) -> None:
    ledger = request.getfixturevalue(fixture)
    found = histogram_ratio(ledger, SystemNoise())
    assert found == pytest.approx(delta, rel=0.06)
    assert histogram_ratio(ledger, HalfNoise()) != pytest.approx(delta, rel=0.06)
    entry = ledger.account().entries[0]
    assert entry.charge.sensitivity == pytest.approx(delta)
    assert entry.event == Gaussian(20.0)


def test_labels_are_never_read_where_the_charge_is_refused(replacing: Ledger) -> None:
    def read() -> Tensor:
        raise AssertionError("the labels were read")

    with pytest.raises(BadInput, match="protected"):
        label_histogram(read, classes=3, event=Unprotected(), ledger=replacing, noise=NoNoise())


def test_an_event_without_noise_is_refused_before_it_is_charged(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="Gaussian or unprotected"):
        unwrap(label_histogram)(  # past the tests' type checks
            lambda: torch.tensor([0, 1]),
            classes=2,
            event=PostProcessing(),
            ledger=ledger,
            noise=SystemNoise(),
        )
    assert not ledger.account().entries
