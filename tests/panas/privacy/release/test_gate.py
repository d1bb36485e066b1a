"""Releases and histograms: who paid first, what is noised how much, what may never leave."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import unwrap
from pathlib import Path

import pytest
import torch
from drawn_rows import rows
from ledgers import MOMENTS, opened
from noises import HalfNoise, NoNoise, Ones
from torch import Tensor

from panas.privacy.accounting.events import (
    REPLACE,
    Gaussian,
    PostProcessing,
    SampledGaussian,
    Unprotected,
)
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import Released, ReleaseRequest, release
from panas.privacy.release.histogram import label_histogram
from panas.privacy.release.kind import ReleaseEvent, event_of, kind_named, kind_names
from panas.privacy.unit import unit_name
from panas.runtime.errors import BadInput, BudgetExhausted

EVENTS: Mapping[str, ReleaseEvent] = {k: event_of(kind_named(k), 2.0) for k in kind_names()}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return opened(tmp_path, allow_unprotected=True)


def let_go(
    ledger: Ledger,
    kind: str,
    read: Callable[[], tuple[Tensor, Tensor]],
    event: ReleaseEvent | None = None,
) -> Released:
    return release(
        ReleaseRequest(kind=kind, event=event or EVENTS[kind], site=0, round=1, classes=3),
        read,
        ledger=ledger,
        noise=NoNoise(),
    )


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_the_noise_is_the_sensitivity_times_the_charged_multiplier(ledger: Ledger, kind: str):
    out = release(
        ReleaseRequest(kind=kind, event=Gaussian(2.5), site=0, round=0, classes=3),
        lambda: (torch.zeros(1, 2), torch.tensor([1])),
        ledger=ledger,
        noise=Ones(),
    )
    s = kind_named(kind).SENSITIVITY * 2.5
    first = out.arrays["B" if kind == "moments" else "S"]
    torch.testing.assert_close(first, torch.full((3, 2), s))
    if kind == "moments":
        torch.testing.assert_close(out.arrays["A"], 2 * torch.tensor([s, s / math.sqrt(2), s]))
    else:
        torch.testing.assert_close(out.arrays["counts"], torch.tensor([s, s + 1, s]))
    assert ledger.account().events() == [Gaussian(2.5)]
    assert ledger.account().entries[0].charge.sensitivity == kind_named(kind).SENSITIVITY


@pytest.mark.parametrize("kind", kind_names())
def test_the_ledger_is_charged_before_the_rows_are_read(ledger: Ledger, kind: str) -> None:
    seen = []

    def read() -> tuple[Tensor, Tensor]:
        seen.append(len(Ledger(ledger.path).account().entries))
        return rows(5, 4, 3, seed=0)

    let_go(ledger, kind, read)
    assert seen == [1]


@pytest.mark.parametrize("kind", kind_names())
def test_without_noise_a_kind_leaves_as_unprotected(ledger: Ledger, kind: str) -> None:
    let_go(ledger, kind, lambda: rows(5, 4, 3, seed=0), Unprotected())
    assert ledger.account().spent() == math.inf


@pytest.mark.parametrize("kind", kind_names())
@pytest.mark.parametrize("event", [*EVENTS.values(), SampledGaussian(0.01, 2.0, 1)], ids=repr)
def test_no_other_event_pays_for_a_release(ledger: Ledger, kind: str, event: ReleaseEvent) -> None:
    if isinstance(event, (kind_named(kind).CHARGED_AS, Unprotected)):
        return
    with pytest.raises((BadInput, TypeError)):
        let_go(ledger, kind, lambda: rows(5, 4, 3, seed=0), event)
    assert not ledger.account().entries


def test_a_release_from_an_account_of_another_relation_is_refused(tmp_path: Path) -> None:
    ledger = opened(tmp_path, relation=REPLACE, allow_unprotected=True)
    with pytest.raises(BadInput, match="add-or-remove-one"):
        let_go(ledger, "moments", lambda: rows(5, 4, 3, seed=0))
    assert not ledger.account().entries


def test_public_rows_of_weights_without_protection_are_no_post_processing(ledger: Ledger) -> None:
    ledger.charge(replace(MOMENTS, event=Unprotected(), phase="training", mechanism="sgd"))
    with pytest.raises(BadInput, match="trained under DP"):
        let_go(ledger, "public_rows", lambda: rows(5, 4, 3, seed=0))
    out = let_go(ledger, "public_rows", lambda: rows(5, 4, 3, seed=0), Unprotected())
    assert torch.equal(out.arrays["z"], rows(5, 4, 3, seed=0)[0])


def test_rows_are_never_read_where_the_charge_is_refused(ledger: Ledger) -> None:
    def read() -> tuple[Tensor, Tensor]:
        raise AssertionError("the rows were read")

    with pytest.raises(BudgetExhausted):
        let_go(ledger, "moments", read, Gaussian(0.1))
    strict = opened(ledger.path.parent, Budget(1.0, 1e-5), "strict")
    with pytest.raises(BadInput, match="protected"):
        let_go(strict, "raw_rows", read)


@pytest.mark.parametrize("kind", kind_names())
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_no_number_leaves_as_a_row_of_zeros(ledger: Ledger, kind: str, bad: float):
    z, y = rows(5, 4, 3, seed=0)
    zero, z[2, 1] = z.clone(), bad
    zero[2] = 0.0
    # A release that stopped here would show whose row it was.
    released = let_go(ledger, kind, lambda: (z, y))
    wanted = let_go(ledger, kind, lambda: (zero, y))
    for name, numbers in released.arrays.items():
        assert torch.equal(numbers, wanted.arrays[name])
        assert bool(torch.isfinite(numbers).all())


@pytest.mark.parametrize("kind", ["raw_rows", "public_rows"])
def test_rows_without_noise_are_exact(ledger: Ledger, kind: str) -> None:
    z, y = rows(5, 4, 3, seed=0)
    out = let_go(ledger, kind, lambda: (z, y))
    assert torch.equal(out.arrays["z"], z)
    assert torch.equal(out.arrays["y"], y)
    known = {"raw_rows": None, "public_rows": 0.0}[kind]
    assert ledger.account().entries[0].charge.sensitivity == known


def test_an_account_that_promises_groups_releases_nothing_without_them(tmp_path: Path) -> None:
    ledger = opened(tmp_path, unit=unit_name("patient"))
    z, y = rows(5, 4, 3, seed=0)
    with pytest.raises(BadInput, match="expected the groups of the samples"):
        let_go(ledger, "moments", lambda: (z, y), Gaussian(4.0))
    let_go(ledger, "moments", lambda: Rows(z, y, torch.tensor([0, 0, 1, 1, 2])), Gaussian(4.0))
    let_go(ledger, "public_rows", lambda: (z, y))
    with pytest.raises(BadInput, match="expected the groups of the samples"):
        label_histogram(
            lambda: (y, None), classes=3, event=Gaussian(4.0), ledger=ledger, noise=NoNoise()
        )


@pytest.fixture
def replacing(tmp_path: Path) -> Ledger:
    """One under replace-one, which allows nothing unprotected."""
    return opened(tmp_path, name="replacing", relation="replace-one")


def test_the_histogram_is_the_counts_with_noise_of_sensitivity_one(ledger: Ledger) -> None:
    y = torch.tensor([0, 2, 2, 2])
    events: list[Gaussian | Unprotected] = [Gaussian(4.0), Unprotected()]
    for event in events:
        counts = label_histogram(
            lambda: (y, None), classes=4, event=event, ledger=ledger, noise=NoNoise()
        )
        assert counts.tolist() == [1, 0, 3, 0]
    first, second = ledger.account().entries
    assert first.charge == replace(
        first.charge, phase="search", event=Gaussian(4.0), sensitivity=1.0
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
    result = histogram_ratio(ledger, SystemNoise())
    assert result == pytest.approx(delta, rel=0.06)
    assert histogram_ratio(ledger, HalfNoise()) != pytest.approx(delta, rel=0.06)
    entry = ledger.account().entries[0]
    assert entry.charge.sensitivity == pytest.approx(delta)
    assert entry.event == Gaussian(20.0)


def test_labels_are_never_read_where_the_charge_is_refused_or_the_event_has_no_noise(
    replacing: Ledger, ledger: Ledger
) -> None:
    def read() -> Tensor:
        raise AssertionError("the labels were read")

    with pytest.raises(BadInput, match="protected"):
        label_histogram(read, classes=3, event=Unprotected(), ledger=replacing, noise=NoNoise())
    with pytest.raises(BadInput, match="Gaussian or unprotected"):
        unwrap(label_histogram)(  # past the tests' type checks
            lambda: torch.tensor([0, 1]),
            classes=2,
            event=PostProcessing(),
            ledger=ledger,
            noise=SystemNoise(),
        )
    assert not ledger.account().entries
