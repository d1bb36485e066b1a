"""Accounting: published anchors, closed forms, and Opacus as an independent second opinion."""

import json
import math
from itertools import pairwise

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant, RDPAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from panas.privacy.accounting import epsilon as accounting
from panas.privacy.accounting.epsilon import Method, epsilon, prv_bounds
from panas.privacy.accounting.events import (
    Event,
    Gaussian,
    NoisyRows,
    PostProcessing,
    PrivateSelection,
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

GRID = [
    (q, sigma, steps)
    for q in (0.004, 0.05, 0.3)
    for sigma in (0.7, 1.3, 4.0)
    for steps in (1, 60, 700)
    # Below this the guarantee is void and PRV's grid does not fit into memory.
    if q * math.sqrt(steps) / sigma < 4
]


def analytic_gaussian(noise_multiplier: float, delta: float) -> float:
    """Exact epsilon of one Gaussian mechanism: Balle and Wang 2018, theorem 8."""

    def excess(e: float) -> float:
        a, b = 1 / (2 * noise_multiplier), e * noise_multiplier
        return norm.cdf(a - b) - math.exp(e + norm.logcdf(-a - b)) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, 500.0, xtol=1e-10))


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
    [(1, None, "1.03"), (10, None, "2.47"), (300, None, "13.0"), (1, 1.5, "1.08")],
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


@pytest.mark.parametrize(("sigma", "releases"), [(1.026, []), (1.080, [Gaussian(1.5)])])
def test_noise_that_epsilon_8_needs_to_three_digits(sigma: float, releases: list[Event]) -> None:
    q = 256 / 5000
    steps = math.ceil(30 / q)
    below, above = (
        epsilon([SampledGaussian(q, s, steps), *releases], 1e-5)
        for s in (sigma - 1.5e-3, sigma + 1.5e-3)
    )
    assert above < 8 < below


@pytest.mark.parametrize(("q", "sigma", "steps"), GRID)
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


def test_a_coarser_grid_is_never_below_a_finer_one() -> None:
    events = [SampledGaussian(0.05, 1.1, 200), Gaussian(2.0)]
    fine, *coarse = (epsilon(events, 1e-5, interval=i) for i in (1e-4, 1e-3, 1e-2))
    assert all(c >= fine - 1e-6 for c in coarse)


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
        PrivateSelection(SampledGaussian(0.25, 3.0, 12), 2, 10.0, 0.5),
        PrivateSelection(Gaussian(3.0), 1, 10.0, math.inf),
        Unprotected(),
    ],
)
def test_events_round_trip_as_json(event: Event) -> None:
    text = json.dumps(event_to_json(event), allow_nan=False)
    assert event_from_json(json.loads(text)) == event


def hockey_stick_epsilon(q: float, sigma: float, steps: int, delta: float) -> float:
    """Epsilon of replace-one DP-SGD by brute force: the loss's density on a grid, convolved.

    Shares nothing with the library: numeric densities of the two mixtures, plain convolution.
    """
    x = np.linspace(-12 * sigma - 1, 12 * sigma + 1, 400_001)
    up = (1 - q) * norm.pdf(x, 0, sigma) + q * norm.pdf(x, 1, sigma)
    down = (1 - q) * norm.pdf(x, 0, sigma) + q * norm.pdf(x, -1, sigma)
    width = 2e-3
    reach = 6_000
    cells = np.clip(np.rint(np.log(up / down) / width).astype(int) + reach, 0, 2 * reach)
    mass = np.bincount(cells, weights=up * (x[1] - x[0]), minlength=2 * reach + 1)
    total = mass
    for _ in range(steps - 1):
        total = np.convolve(total, mass)
    loss = (np.arange(len(total)) - steps * reach) * width

    def excess(e: float) -> float:
        above = loss > e
        return float(np.sum(total[above] * -np.expm1(e - loss[above]))) - delta

    return float(brentq(excess, 0.0, 11.0, xtol=1e-6))


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.1, 1.0, 1), (0.5, 2.0, 4), (0.9, 3.0, 3)])
def test_replacing_a_sample_costs_what_the_pair_of_mixtures_costs(
    q: float, sigma: float, steps: int
) -> None:
    events = [SampledGaussian(q, sigma, steps)]
    truth = hockey_stick_epsilon(q, sigma, steps, 1e-5)
    assert epsilon(events, 1e-5, relation="replace-one") == pytest.approx(truth, rel=3e-3)
    # The planted bugs: the price of adding or removing, and a reach doubled once more.
    assert epsilon(events, 1e-5) < 0.96 * truth
    twice = [SampledGaussian(q, sigma / 2, steps)]
    assert epsilon(twice, 1e-5, relation="replace-one") > 1.2 * truth


@pytest.mark.parametrize(("radius", "turn"), [(1.0, 2.4), (1.0, 1.5), (1.0, 0.0), (0.6, np.pi)])
def test_no_other_replacement_is_worse_than_the_opposite_one(radius: float, turn: float) -> None:
    q, sigma = 0.3, 0.8
    side = np.linspace(-7, 7, 561)
    x, y = np.meshgrid(side, side)
    cell = (side[1] - side[0]) ** 2

    def mixture(a: float, b: float) -> np.ndarray:
        centre = norm.pdf(x, 0, sigma) * norm.pdf(y, 0, sigma)
        return (1 - q) * centre + q * norm.pdf(x, a, sigma) * norm.pdf(y, b, sigma)

    up = mixture(1.0, 0.0)
    for e in (0.1, 0.5, 1.5):
        worst = np.maximum(up - math.exp(e) * mixture(-1.0, 0.0), 0).sum() * cell
        other = mixture(radius * math.cos(turn), radius * math.sin(turn))
        for p, r in ((up, other), (other, up)):
            assert np.maximum(p - math.exp(e) * r, 0).sum() * cell < worst


@pytest.mark.parametrize("method", ["pld", "rdp", "prv", "gdp"])
def test_a_replace_one_gaussian_is_not_doubled_again_and_a_full_batch_is(method: Method) -> None:
    truth = analytic_gaussian(2.0, 1e-5)
    plain = epsilon([Gaussian(2.0)], 1e-5, method=method, relation="replace-one")
    batch = epsilon([SampledGaussian(1.0, 4.0, 1)], 1e-5, method=method, relation="replace-one")
    assert plain == pytest.approx(batch, rel=1e-9)
    assert plain == pytest.approx(truth, rel=0.15 if method == "rdp" else 0.01)
    assert plain >= truth - 1e-6
    nearly = epsilon(
        [SampledGaussian(1 - 1e-7, 4.0, 1)], 1e-5, interval=1e-3, relation="replace-one"
    )
    assert nearly == pytest.approx(truth, rel=2e-3)


@pytest.mark.parametrize(("q", "sigma", "steps"), GRID[::2])
def test_replace_one_lies_between_one_step_and_two(q: float, sigma: float, steps: int) -> None:
    events = [SampledGaussian(q, sigma, steps), Gaussian(6.0)]
    one = epsilon([SampledGaussian(q, sigma, steps), Gaussian(12.0)], 1e-5, interval=1e-3)
    both = epsilon(events, 1e-5, relation="replace-one", interval=1e-3)
    assert one < both <= epsilon(events, 1e-5, relation="replace-one", method="rdp") + 1e-9
    low, _, high = prv_bounds(events, 1e-5, relation="replace-one")
    assert low <= both <= high


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize(("flip", "classes"), [(0.3, 2), (0.5, 10)])
def test_responses_compose_each_time_they_are_given(flip: float, classes: int, steps: int) -> None:
    likely, other = 1 - flip + flip / classes, flip / classes
    outcomes = [(likely, other), (other, likely)] + [(other, other)] * (classes - 2)
    ups, downs = np.ones(1), np.ones(1)
    for _ in range(steps):  # all classes ** steps answers, merged where the pair is the same
        ups = np.concatenate([ups * a for a, _ in outcomes])
        downs = np.concatenate([downs * b for _, b in outcomes])
        pairs, inverse = np.unique(np.round(np.log(ups / downs), 9), return_inverse=True)
        ups = np.bincount(inverse, weights=ups)
        downs = ups * np.exp(-pairs)

    def excess(e: float) -> float:
        return float(np.maximum(ups - math.exp(e) * downs, 0).sum()) - 1e-2

    truth = float(brentq(excess, 0.0, 60.0))
    events = [RandomizedResponse(flip, classes)] * steps
    got = epsilon(events, 1e-2, relation="replace-one")
    assert got == pytest.approx(truth, rel=1e-3)
    rdp = epsilon(events, 1e-2, relation="replace-one", method="rdp")
    assert rdp >= got - 1e-6


def test_a_noisy_row_is_its_gaussian_and_its_label() -> None:
    both = epsilon([NoisyRows(3.0, 0.4, 5)] * 2, 1e-5, relation="replace-one")
    parts = [Gaussian(3.0), RandomizedResponse(0.4, 5)] * 2
    assert both == epsilon(parts, 1e-5, relation="replace-one")
    assert both > epsilon([Gaussian(3.0)] * 2, 1e-5)
    alone = epsilon([NoisyRows(3.0, 1.0, 5)], 1e-5, relation="replace-one")
    assert alone == epsilon([Gaussian(3.0)], 1e-5)


@pytest.mark.parametrize("event", [RandomizedResponse(0.2, 3), NoisyRows(1.0, 0.2, 3)])
def test_relations_are_never_mixed(event: Event) -> None:
    with pytest.raises(BadInput, match="replace-one"):
        epsilon([event], 1e-5)


@pytest.mark.parametrize("method", ["prv", "gdp"])
def test_what_has_no_price_by_a_method_is_refused(method: Method) -> None:
    with pytest.raises(BadInput, match="use pld or rdp"):
        epsilon([RandomizedResponse(0.2, 3)], 1e-5, relation="replace-one", method=method)
    with pytest.raises(BadInput, match="use pld or rdp"):
        epsilon([PrivateSelection(Gaussian(3.0), 1, 4.0, 1.0)], 1e-5, method=method)


def test_post_processing_costs_nothing() -> None:
    assert epsilon([PostProcessing()] * 9, 1e-5) == 0
    assert epsilon([PostProcessing(), Gaussian(3.0)], 1e-5) == epsilon([Gaussian(3.0)], 1e-5)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, math.inf])
def test_a_selection_costs_what_its_theorem_says(shape: float) -> None:
    mean, sigma, delta = 8.0, 6.0, 1e-6
    orders = np.array(accounting.ORDERS)
    one = 2 * orders / (2 * sigma**2)
    if shape == math.inf:  # theorem 6, with delta of the candidate at e = log(1 + 1 / (a - 1))
        e = np.log1p(1 / (orders - 1))
        excess = [dpa.rdp.rdp_privacy_accountant.compute_delta(orders, one, float(x))[0] for x in e]
        curve = one + mean * np.array(excess) + np.log(mean) / (orders - 1)
    else:  # theorem 2; gamma from the mean of the truncated negative binomial

        def mean_of(gamma: float) -> float:
            if shape == 0:
                return (1 / gamma - 1) / math.log(1 / gamma)
            return shape * (1 - gamma) / (gamma * (1 - gamma**shape))

        gamma = brentq(lambda g: mean_of(g) - mean, 1e-6, 1 - 1e-6, xtol=1e-14)
        rest = (1 + shape) * np.min((1 - 1 / orders) * one + np.log(1 / gamma) / orders)
        curve = one + rest + np.log(mean) / (orders - 1)
        # A divergence of a higher order bounds those below.
        curve = np.minimum.accumulate(curve[::-1])[::-1]
    truth = min(
        c + math.log1p(-1 / a) - math.log(delta * a) / (a - 1)
        for a, c in zip(orders, curve, strict=True)
    )
    event = PrivateSelection(Gaussian(sigma), 2, mean, shape)
    assert epsilon([event], delta) == pytest.approx(truth, rel=1e-6)
    library = RdpAccountant(orders).compose(
        dpa.dp_event.RepeatAndSelectDpEvent(
            dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(sigma), 2), mean, shape
        )
    )
    assert epsilon([event], delta) == pytest.approx(library.get_epsilon(delta), rel=1e-9)
    assert epsilon([event], delta) > epsilon([Gaussian(sigma)] * 2, delta)


def test_a_selection_makes_the_whole_total_renyi() -> None:
    training = SampledGaussian(0.05, 2.0, 300)
    selection = PrivateSelection(SampledGaussian(0.05, 2.0, 50), 1, 5.0, 1.0)
    got = epsilon([selection, training], 1e-5)
    assert got == epsilon([training, selection], 1e-5, method="rdp")
    apart = epsilon([selection], 1e-5) + epsilon([training], 1e-5, method="rdp")
    assert max(epsilon([selection], 1e-5), epsilon([training], 1e-5)) < got < apart
    assert epsilon([selection, selection], 1e-5) > epsilon([selection], 1e-5)
    replaced = epsilon([selection, training], 1e-5, relation="replace-one")
    assert replaced > got


@pytest.mark.parametrize(
    "event",
    [
        PrivateSelection(Gaussian(0.0), 1, 4.0, 1.0),
        PrivateSelection(Gaussian(2.0), 1, 0.5, 1.0),
        PrivateSelection(Gaussian(2.0), 1, math.nan, 1.0),
        PrivateSelection(Gaussian(2.0), 1, 4.0, -1.0),
        PrivateSelection(Gaussian(2.0), -1, 4.0, 1.0),
        RandomizedResponse(0.0, 4),
        RandomizedResponse(1.5, 4),
        RandomizedResponse(math.nan, 4),
        NoisyRows(math.nan, 0.5, 4),
        NoisyRows(1.0, 0.0, 4),
    ],
)
def test_what_is_no_selection_or_response_counts_as_unprotected(event: Event) -> None:
    assert epsilon([event], 1e-5, relation="replace-one") == math.inf
    assert prv_bounds([event], 1e-5, relation="replace-one")[0] == math.inf


@pytest.mark.parametrize("method", ["pld", "rdp", "prv", "gdp"])
def test_a_group_of_k_whole_batches_is_one_gaussian_of_a_kth_of_the_noise(method: Method) -> None:
    got = epsilon([SampledGaussian(1.0, 12.0, 2), Gaussian(20.0)], 1e-5, method=method, group=3)
    truth = analytic_gaussian((2 * 4.0**-2 + (20 / 3) ** -2) ** -0.5, 1e-5)
    assert got == pytest.approx(truth, rel=0.15 if method == "rdp" else 0.01)
    assert got >= truth - 1e-6


def test_a_group_answers_for_each_of_its_records() -> None:
    rows = NoisyRows(9.0, 0.5, 4)
    got = epsilon([rows], 1e-5, relation="replace-one", group=3)
    parts = [Gaussian(3.0), *[RandomizedResponse(0.5, 4)] * 3]
    assert got == epsilon(parts, 1e-5, relation="replace-one")


def test_a_group_of_one_is_plain_and_a_larger_one_costs_more() -> None:
    events: list[Event] = [SampledGaussian(0.02, 1.5, 200), Gaussian(20.0)]
    plain = epsilon(events, 1e-5, interval=accounting.GROUP_INTERVAL)
    assert epsilon(events, 1e-5, interval=accounting.GROUP_INTERVAL, group=1) == plain
    totals = [plain, *(epsilon(events, 1e-5, group=k) for k in (2, 3, 5))]
    assert all(b > 1.5 * a for a, b in pairwise(totals))
    assert epsilon(events, 1e-5, group=3) < 5 * epsilon(events, 1e-5)


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.02, 1.5, 200), (0.3, 4.0, 60), (0.5, 9.0, 9)])
def test_a_tight_group_lies_below_the_general_rule(q: float, sigma: float, steps: int) -> None:
    events = [SampledGaussian(q, sigma, steps)]
    tight = epsilon(events, 1e-5, group=2)
    merged = accounting.Merged(0.0, ((q, sigma, steps),))
    one = accounting._loss(merged, "add-or-remove-one", 1, 1e-3)
    general = accounting._grouped(one.get_delta_for_epsilon, 1e-5, 2)
    assert tight <= general
    assert tight <= epsilon(events, 1e-5, method="rdp", group=2)
    assert tight >= 1.5 * epsilon(events, 1e-5)
    # The rule itself, checked where it lands.
    d = one.get_delta_for_epsilon(general / 2)
    assert d * math.expm1(general) / math.expm1(general / 2) == pytest.approx(1e-5, rel=1e-2)
    replaced = epsilon(events, 1e-5, relation="replace-one", group=2)
    assert replaced > tight


def test_the_mixture_of_a_group_is_the_binomial_one() -> None:
    """One step, k = 2: the hockey stick of the three-part mixture, integrated."""
    q, sigma, delta = 0.3, 2.0, 1e-4
    x = np.linspace(-30, 34, 400_001)
    base = norm.pdf(x, 0, sigma)
    mix = (
        (1 - q) ** 2 * base + 2 * q * (1 - q) * norm.pdf(x, 1, sigma) + q**2 * norm.pdf(x, 2, sigma)
    )

    def delta_at(e: float) -> float:
        both = ((mix, base), (base, mix))
        return max(float(np.maximum(a - math.exp(e) * b, 0).sum()) for a, b in both) * (x[1] - x[0])

    truth = float(brentq(lambda e: delta_at(e) - delta, 0.0, 20.0))
    assert epsilon([SampledGaussian(q, sigma, 1)], delta, group=2) == pytest.approx(truth, rel=2e-3)


@pytest.mark.parametrize("group", [0, 1001])
def test_groups_have_one_to_a_thousand_samples(group: int) -> None:
    with pytest.raises(BadInput, match="1 to 1000 samples"):
        epsilon([Gaussian(1.0)], 1e-5, group=group)


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("method", ["pld", "rdp", "prv", "gdp"])
def test_noise_of_any_size_has_a_price(rate: float, method: Method) -> None:
    def price(sigma: float, group: int = 1) -> float:
        return epsilon([SampledGaussian(rate, sigma, 3)], 1e-5, method=method, group=group)

    assert price(1e-200) == price(1e-9) == math.inf
    assert price(2e-6) > 1e6
    assert price(2e-6, 1000) > 1e6
    assert 0 <= price(1e200) == price(1e9) <= 0.011  # prv errs by up to 0.01


def test_prv_says_infinity_where_its_grid_would_not_fit() -> None:
    low, _, high = prv_bounds([SampledGaussian(0.5, 0.3, 5000)], 1e-5)
    assert low <= epsilon([SampledGaussian(0.5, 0.3, 5000)], 1e-5) <= high
