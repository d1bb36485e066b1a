"""Accounting: published anchors, closed forms, and Opacus as an independent second opinion."""

import json
import math
from typing import Any

import numpy as np
import pytest
from accounting_oracles import GRID, analytic_gaussian
from dp_accounting.pld import privacy_loss_distribution as losses
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant, RDPAccountant

from panas.privacy.accounting.closed_form import (
    equivalent_epsilon,
    gaussian_epsilon,
    gaussian_multiplier,
    limit_mu,
)
from panas.privacy.accounting.epsilon import Method, epsilon, prv_bounds
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    Event,
    Gaussian,
    NoisyRows,
    PostProcessing,
    RandomizedResponse,
    SampledGaussian,
    Unprotected,
    event_from_json,
    event_to_json,
    merge,
)
from panas.privacy.accounting.pld import loss_distribution, profile
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.plan import TrainingSchedule
from panas.runtime.errors import BadInput


@pytest.mark.slow
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


@pytest.mark.slow
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
    if sigma == "1.03":  # to three digits
        exact, q = 1.026, 256 / 5000
        below, above = (
            epsilon([SampledGaussian(q, s, plan.steps), *plan.events()[1:]], 1e-5)
            for s in (exact - 1.5e-3, exact + 1.5e-3)
        )
        assert above < 8 < below


@pytest.mark.parametrize(
    ("q", "sigma", "steps"),
    [
        pytest.param(*case, marks=pytest.mark.thorough if i % 6 else pytest.mark.slow)
        for i, case in enumerate(GRID)
    ],
)
def test_pld_agrees_with_prv_and_lies_below_both_renyi_bounds(q: float, sigma: float, steps: int):
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


@pytest.mark.slow
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
        *(SampledGaussian(0.1, 1.4, 5), Gaussian(3.0), SampledGaussian(0.2, 1.4, 3)),
        *(SampledGaussian(0.1, 1.4, 7), Gaussian(4.0), SampledGaussian(1.0, 5.0, 2)),
    ]
    whole = [
        SampledGaussian(0.1, 1.4, 12),
        SampledGaussian(0.2, 1.4, 3),
        Gaussian((3.0**-2 + 4.0**-2 + 2 * 5.0**-2) ** -0.5),
    ]
    expected = epsilon(whole, 1e-5, method=method)
    assert epsilon(parts, 1e-5, method=method) == pytest.approx(expected, rel=1e-9)
    assert epsilon(parts[::-1], 1e-5, method=method) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", ["pld", "rdp", "gdp"])
def test_limits_and_post_processing(method: Method) -> None:
    assert epsilon([], 1e-5, method=method) == 0
    assert epsilon([SampledGaussian(0.0, 1.0, 9), SampledGaussian(0.5, 1.0, 0)], 1e-5) == 0
    assert epsilon([Gaussian(5.0), Unprotected()], 1e-5, method=method) == math.inf
    assert epsilon([Gaussian(1e5)], 1e-5, method=method) <= 1e-3
    assert epsilon([PostProcessing()] * 9, 1e-5) == 0
    assert epsilon([PostProcessing(), Gaussian(3.0)], 1e-5) == epsilon([Gaussian(3.0)], 1e-5)


@pytest.mark.parametrize(
    "event",
    [
        *map(Gaussian, (0.0, -1.0, math.nan)),
        *(SampledGaussian(q, 1.0, 3) for q in (math.nan, -0.1)),
        *(SampledGaussian(0.1, math.nan, 3), SampledGaussian(0.1, 1.0, -3)),
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


@pytest.mark.slow
def test_a_small_sigma_is_not_refused_by_a_looser_bound() -> None:
    # Integer Renyi orders alone say 150 here, all orders 66, the truth is below 20.
    events = [SampledGaussian(0.001, 0.2, 10)]
    assert epsilon(events, 1e-5, interval=1e-3) < 25
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
        *(Gaussian(1.5), SampledGaussian(0.25, np.pi, 12), RandomizedResponse(0.1, 10)),
        *(NoisyRows(2.5, 0.1, 10), PostProcessing(), Unprotected()),
    ],
)
def test_events_round_trip_as_json(event: Event) -> None:
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(json.loads(text)) == event


@pytest.mark.slow
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


@pytest.mark.parametrize("sigma", [0.3, 0.8, 2.5, 30.0])
@pytest.mark.parametrize("q", [1e-3, 0.1, 0.95, 1.0])
def test_a_step_is_that_of_the_library(sigma: float, q: float) -> None:
    interval = 2e-2
    merged = merge([SampledGaussian(q, sigma, 1) if q < 1 else Gaussian(sigma)], ADD_OR_REMOVE, 1)
    ours = loss_distribution(merged, interval)
    theirs = losses.from_gaussian_mechanism(
        sigma, value_discretization_interval=interval, sampling_prob=q
    )
    for name in ("_pmf_remove", "_pmf_add"):
        mine, other = (getattr(result, name).to_dense_pmf() for result in (ours, theirs))
        # Composed with nothing, the library cuts 1e-15 of the tails off.
        shift = mine._lower_loss - other._lower_loss
        assert shift >= 0
        same = other._probs[shift : shift + len(mine._probs)]
        np.testing.assert_allclose(mine._probs, same, atol=1e-11)
        assert mine._infinity_mass == pytest.approx(other._infinity_mass, abs=1e-12)


@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("sigma", [0.6, 1.5, 20.0])
def test_a_profile_is_that_of_the_library(sigma: float, steps: int) -> None:
    loss = losses.from_gaussian_mechanism(
        sigma, value_discretization_interval=1e-2, sampling_prob=0.1
    ).self_compose(steps)
    e = np.linspace(0, 9, 200)
    np.testing.assert_allclose(profile(loss, e), loss.get_delta_for_epsilon(e), atol=1e-13)


def test_the_limit_is_that_of_theorem_3_1_and_of_the_gdp_method() -> None:
    steps = [SampledGaussian(0.04, 1.5, 2000), SampledGaussian(0.04, 1.5, 250)]
    mu = limit_mu(steps)
    assert mu == pytest.approx(0.04 * math.sqrt(2250 * (math.exp(1 / 1.5**2) - 1)))
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon(steps, 1e-5, method="gdp"))
    assert limit_mu([SampledGaussian(0.1, 1e-3, 10)]) > 1e100
    assert limit_mu([]) == 0


DELTAS = st.floats(1e-10, 1e-2)


@given(st.floats(0.01, 50), DELTAS, DELTAS)
def test_epsilon_at_another_delta_is_that_of_the_same_gaussian(
    asked: float, delta: float, target: float
) -> None:
    result = equivalent_epsilon(asked, delta, target)
    mu = 1 / gaussian_multiplier(asked, delta)
    assert result == pytest.approx(gaussian_epsilon(mu, target), rel=1e-6)
    assert (result <= asked) == (target >= delta) or target == pytest.approx(delta)
    if result > 0.01:
        assert equivalent_epsilon(result, target, delta) == pytest.approx(asked, rel=1e-6)


def test_what_no_gaussian_is_stays_a_bound() -> None:
    assert equivalent_epsilon(math.inf, 1e-5, 1e-6) == math.inf
    assert equivalent_epsilon(3.0, 1e-5, 1e-5) == 3.0
    for asked in (1e-12, 1e-7, 1e7):
        assert equivalent_epsilon(asked, 1e-12, 1e-5) == asked  # true of any mechanism
    assert equivalent_epsilon(1e7, 1e-5, 1e-6) == math.inf
    # A delta of nine in a thousand hides more than twice the epsilon.
    assert equivalent_epsilon(1.0, 9e-3, 1e-6) == pytest.approx(2.3686, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "steps"), [(0.01, 0.7, 10), (0.1, 1.0, 200), (0.5, 5.0, 200)]
)
def test_dp_sgd_costs_no_more_than_that_at_a_larger_delta(q: float, sigma: float, steps: int):
    event = SampledGaussian(q, sigma, steps)
    asked = epsilon([event], 1e-9)
    assert epsilon([event], 1e-5) < equivalent_epsilon(asked, 1e-9, 1e-5) < asked
