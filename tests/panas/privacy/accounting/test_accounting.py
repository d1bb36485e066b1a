"""Accounting: published anchors, closed forms, and Opacus as an independent second opinion."""

import json
import math
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
from accounting_oracles import GRID, analytic_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant, RDPAccountant

from panas.privacy.accounting.epsilon import Method, epsilon, prv_bounds
from panas.privacy.accounting.events import (
    Event,
    Gaussian,
    NoisyRows,
    PostProcessing,
    RandomizedResponse,
    SampledGaussian,
    Unprotected,
    event_from_json,
    event_to_json,
)
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.schedule import TrainingSchedule
from panas.runtime.errors import BadInput


@pytest.mark.parametrize(
    ("event", "delta", "method", "anchor"),
    [
        (SampledGaussian(0.04, 1.5, 2250), 1e-5, "rdp", "7.329"),
        (SampledGaussian(0.04, 1.5, 2250), 1e-5, "pld", "6.769"),
        (SampledGaussian(0.04, 1.5, 2250), 1e-5, "gdp", "6.60"),
        (SampledGaussian(256 / 60000, 1.1, 14062), 1e-5, "rdp", "2.597"),
        (SampledGaussian(256 / 60000, 1.1, 14062), 1e-5, "pld", "2.382"),
        (SampledGaussian(256 / 60000, 1.1, 14062), 1e-5, "gdp", "2.324"),
        (SampledGaussian(0.1, 3.0, 512), 1e-6, "rdp", "4.051"),
        (SampledGaussian(0.1, 3.0, 512), 1e-6, "pld", "3.770"),
        (SampledGaussian(0.1, 3.0, 512), 1e-6, "gdp", "3.668"),
        # The central-limit value is no bound: it says less than a quarter of the truth.
        (SampledGaussian(0.001, 0.5, 1000), 1e-5, "gdp", "0.85"),
        (SampledGaussian(0.001, 0.5, 1000), 1e-5, "pld", "3.24"),
    ],
)
def test_anchors(event: Event, delta: float, method: Method, anchor: str) -> None:
    digits = len(anchor.partition(".")[2])
    assert f"{epsilon([event], delta, method=method):.{digits}f}" == anchor


@pytest.mark.parametrize(
    ("rounds", "release", "sigma"),
    [
        (1, None, "1.03"),
        (10, None, "2.47"),
        pytest.param(300, None, "13.0", marks=pytest.mark.slow),
        (1, 1.5, "1.08"),
    ],
)
def test_noise_that_epsilon_8_needs(rounds: int, release: float | None, sigma: str) -> None:
    plan = calibrate(
        Budget(8.0, 1e-5),
        TrainingSchedule(samples=5000, epochs=30, rounds=rounds, releases=1 if release else 0),
        batch_size=256,
        clip=1.0,
        release_noise=release,
    )
    digits = len(sigma.partition(".")[2])
    assert f"{plan.noise_multiplier:.{digits}f}" == sigma


@pytest.mark.parametrize(
    ("sigma", "releases"),
    [(1.026, []), pytest.param(1.080, [Gaussian(1.5)], marks=pytest.mark.slow)],
)
def test_noise_that_epsilon_8_needs_to_three_digits(sigma: float, releases: list[Event]) -> None:
    q = 256 / 5000
    steps = math.ceil(30 / q)
    below, above = (
        epsilon([SampledGaussian(q, s, steps), *releases], 1e-5)
        for s in (sigma - 1.5e-3, sigma + 1.5e-3)
    )
    assert above < 8 < below


@pytest.mark.parametrize(
    ("q", "sigma", "steps"),
    [
        pytest.param(*case, marks=pytest.mark.thorough if i % 6 else pytest.mark.slow)
        for i, case in enumerate(GRID)
    ],
)
def test_pld_agrees_with_prv_and_lies_below_both_renyi_bounds(
    q: float, sigma: float, steps: int
) -> None:
    delta = 1e-5
    events = [SampledGaussian(q, sigma, steps)]
    pld = epsilon(events, delta)
    ours = epsilon(events, delta, method="rdp")
    theirs, prv = RDPAccountant(), PRVAccountant()
    theirs.history = [(sigma, q, steps)]
    prv.history = [(sigma, q, steps)]
    assert pld <= ours + 1e-9
    opacus_alphas = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    assert pld <= theirs.get_epsilon(delta, alphas=opacus_alphas) + 1e-9
    error = 0.01
    discrete = prv._get_dprv(eps_error=error, delta_error=delta / 1000)
    low, _, high = discrete.compute_epsilon(delta, delta / 1000, error)
    assert low <= pld <= high
    ours_low, estimate, ours_high = prv_bounds(events, delta)
    assert ours_low <= min(pld, estimate) <= max(pld, estimate) <= ours_high
    assert epsilon(events, delta, method="prv") == ours_high < pld + 0.2


@pytest.mark.parametrize(("q", "sigma", "steps"), GRID[::4])
def test_renyi_is_opacus_renyi(q: float, sigma: float, steps: int) -> None:
    theirs = RDPAccountant()
    theirs.history = [(sigma, q, steps)]
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64))
    ours = epsilon([SampledGaussian(q, sigma, steps)], 1e-5, method="rdp")
    # The orders differ: dp-accounting also tries ones above 63, which matter below epsilon 0.2.
    assert ours == pytest.approx(theirs.get_epsilon(1e-5, alphas=orders), rel=0.02, abs=0.05)


@pytest.mark.parametrize("sigma", [0.06, 0.1, 0.3, 1.0, 4.0, 30.0, 500.0])
def test_one_gaussian_is_the_analytic_mechanism(sigma: float) -> None:
    truth = analytic_gaussian(sigma, 1e-5)
    rdp = epsilon([Gaussian(sigma)], 1e-5, method="rdp")
    pld = epsilon([Gaussian(sigma)], 1e-5, interval=1e-3)
    assert epsilon([Gaussian(sigma)], 1e-5, method="gdp") == pytest.approx(truth, abs=1e-6)
    assert truth - 1e-6 <= pld <= rdp
    if rdp < 100:
        assert pld == pytest.approx(truth, rel=2e-3, abs=2e-4)


@settings(max_examples=8, deadline=None)
@given(multipliers=st.lists(st.floats(1.0, 30.0), min_size=1, max_size=5))
def test_gaussians_compose_in_closed_form(multipliers: list[float]) -> None:
    together = sum(m**-2 for m in multipliers) ** -0.5
    got = epsilon([Gaussian(m) for m in multipliers], 1e-5)
    assert got == pytest.approx(analytic_gaussian(together, 1e-5), rel=2e-3, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pld", "rdp", "gdp"])
def test_merging_and_order_change_nothing(method: Method) -> None:
    parts: list[Event] = [
        SampledGaussian(0.1, 1.4, 5),
        Gaussian(3.0),
        SampledGaussian(0.2, 1.4, 3),
        SampledGaussian(0.1, 1.4, 7),
        Gaussian(4.0),
        SampledGaussian(1.0, 5.0, 2),
    ]
    whole = [
        SampledGaussian(0.1, 1.4, 12),
        SampledGaussian(0.2, 1.4, 3),
        Gaussian((3.0**-2 + 4.0**-2 + 2 * 5.0**-2) ** -0.5),
    ]
    expected = epsilon(whole, 1e-5, method=method)
    assert epsilon(parts, 1e-5, method=method) == pytest.approx(expected, rel=1e-9)
    assert epsilon(parts[::-1], 1e-5, method=method) == pytest.approx(expected, rel=1e-9)


@pytest.mark.thorough
def test_merging_is_what_the_library_composes_step_by_step() -> None:
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for _ in range(6):
        accountant.compose(dpa.PoissonSampledDpEvent(0.2, dpa.GaussianDpEvent(1.5)))
        accountant.compose(dpa.GaussianDpEvent(6.0))
    naive = accountant.get_epsilon(1e-5)
    got = epsilon([SampledGaussian(0.2, 1.5, 1), Gaussian(6.0)] * 6, 1e-5)
    assert got == pytest.approx(naive, rel=1e-3)


@pytest.mark.parametrize("method", ["pld", "rdp", "gdp"])
def test_limits(method: Method) -> None:
    assert epsilon([], 1e-5, method=method) == 0
    assert epsilon([SampledGaussian(0.0, 1.0, 9), SampledGaussian(0.5, 1.0, 0)], 1e-5) == 0
    assert epsilon([Gaussian(5.0), Unprotected()], 1e-5, method=method) == math.inf
    assert epsilon([Gaussian(1e5)], 1e-5, method=method) <= 1e-3


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(0.0),
        Gaussian(-1.0),
        Gaussian(math.nan),
        SampledGaussian(0.1, math.nan, 3),
        SampledGaussian(math.nan, 1.0, 3),
        SampledGaussian(-0.1, 1.0, 3),
        SampledGaussian(0.1, 1.0, -3),
    ],
)
def test_what_is_no_mechanism_counts_as_unprotected(event: Event) -> None:
    assert epsilon([event], 1e-5) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "steps"), [(0.01, 0.05, 1000), (0.1, 0.2, 100), (0.001, 0.15, 10)]
)
def test_where_noise_is_tiny_pld_still_lies_below_renyi(q: float, sigma: float, steps: int) -> None:
    events = [SampledGaussian(q, sigma, steps)]
    rdp = epsilon(events, 1e-5, method="rdp")
    assert epsilon(events, 1e-5, interval=1e-3) <= rdp


def test_a_small_sigma_at_a_small_rate_is_not_refused_by_a_crude_screen() -> None:
    # Integer Renyi orders alone say 150 here, all orders 66, the truth is below 20.
    events = [SampledGaussian(0.001, 0.2, 10)]
    assert epsilon(events, 1e-5, interval=1e-3) < 25


def test_a_small_sigma_is_not_refused_by_the_looser_bound_of_replace_one() -> None:
    events = [SampledGaussian(2e-4, 0.33, 5000)]
    assert epsilon(events, 1e-5, relation="replace-one", method="rdp") > 100
    assert epsilon(events, 1e-5, relation="replace-one", interval=1e-3) < 20


@pytest.mark.slow
def test_a_coarser_grid_is_never_below_a_finer_one() -> None:
    events = [SampledGaussian(0.05, 1.1, 200), Gaussian(2.0)]
    fine, *coarse = (epsilon(events, 1e-5, interval=i) for i in (1e-4, 1e-3, 1e-2))
    assert all(c >= fine - 1e-6 for c in coarse)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    q=st.floats(0.001, 1.0),
    sigma=st.floats(0.8, 20.0),
    steps=st.integers(1, 50),
    extra=st.floats(0.8, 20.0),
)
def test_more_events_cost_more(q: float, sigma: float, steps: int, extra: float) -> None:
    few: list[Event] = [SampledGaussian(q, sigma, steps)]
    more = [*few, Gaussian(extra)]
    longer: list[Event] = [SampledGaussian(q, sigma, steps + 5)]
    base = epsilon(few, 1e-5, interval=1e-3)
    assert epsilon(more, 1e-5, interval=1e-3) >= base - 1e-6
    assert epsilon(longer, 1e-5, interval=1e-3) >= base - 1e-6


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(1.5),
        SampledGaussian(0.25, np.pi, 12),
        RandomizedResponse(0.1, 10),
        NoisyRows(2.5, 0.1, 10),
        PostProcessing(),
        Unprotected(),
    ],
)
def test_events_round_trip_as_json(event: Event) -> None:
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(json.loads(text)) == event


def test_post_processing_costs_nothing() -> None:
    assert epsilon([PostProcessing()] * 9, 1e-5) == 0
    assert epsilon([PostProcessing(), Gaussian(3.0)], 1e-5) == epsilon([Gaussian(3.0)], 1e-5)


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("method", ["pld", "rdp", "prv", "gdp"])
def test_noise_of_any_size_has_a_price(rate: float, method: Method) -> None:
    def price(sigma: float, group: int = 1) -> float:
        return epsilon([SampledGaussian(rate, sigma, 3)], 1e-5, method=method, group=group)

    assert price(1e-200) == price(1e-9) == math.inf
    assert price(2e-6) > 1e6
    assert price(2e-6, 1000) > 1e6
    assert 0 <= price(1e200) == price(1e9) <= 0.011  # prv errs by up to 0.01


@pytest.mark.slow
def test_prv_says_infinity_where_its_grid_would_not_fit() -> None:
    low, _, high = prv_bounds([SampledGaussian(0.5, 0.3, 5000)], 1e-5)
    assert low <= epsilon([SampledGaussian(0.5, 0.3, 5000)], 1e-5) <= high


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_that_is_no_probability_has_no_epsilon(delta: float) -> None:
    with pytest.raises(BadInput, match=r"delta in \(0, 1\)"):
        epsilon([Gaussian(1.0)], delta)


@pytest.mark.parametrize(
    ("events", "named", "says"),
    [
        ([(0.1, 1.0, 10)], {}, r"plan.events\(\)"),
        (TrainingSchedule(samples=9, epochs=1), {}, "got TrainingSchedule"),
        ([Gaussian(1.0)], {"method": "moments"}, "pld, rdp, prv, gdp, got 'moments'"),
        ([Gaussian(1.0)], {"relation": "remove"}, "replace-one, got 'remove'"),
    ],
)
def test_what_is_no_event_method_or_relation_is_refused(events: Any, named: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        epsilon(events, 1e-5, **named)
