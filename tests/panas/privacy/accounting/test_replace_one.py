"""Replace-one, against brute force and by enumeration; groups: all samples of one user."""

import math
from itertools import pairwise

import numpy as np
import pytest
from accounting_oracles import GRID, analytic_gaussian
from scipy.optimize import brentq
from scipy.stats import norm

from panas.privacy.accounting.closed_form import group_epsilon
from panas.privacy.accounting.epsilon import Method, epsilon, prv_bounds
from panas.privacy.accounting.events import (
    Event,
    Gaussian,
    Merged,
    NoisyRows,
    RandomizedResponse,
    SampledGaussian,
)
from panas.privacy.accounting.pld import GROUP_INTERVAL, loss_distribution
from panas.runtime.errors import BadInput


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


@pytest.mark.thorough
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_noisy_row_is_its_gaussian_and_its_label_and_a_group_answers_for_each() -> None:
    both = epsilon([NoisyRows(3.0, 0.4, 5)] * 2, 1e-5, relation="replace-one")
    parts = [Gaussian(3.0), RandomizedResponse(0.4, 5)] * 2
    assert both == epsilon(parts, 1e-5, relation="replace-one")
    assert both > epsilon([Gaussian(3.0)] * 2, 1e-5)
    alone = epsilon([NoisyRows(3.0, 1.0, 5)], 1e-5, relation="replace-one")
    assert alone == epsilon([Gaussian(3.0)], 1e-5)
    got = epsilon([NoisyRows(9.0, 0.5, 4)], 1e-5, relation="replace-one", group=3)
    each = [Gaussian(3.0), *[RandomizedResponse(0.5, 4)] * 3]
    assert got == epsilon(each, 1e-5, relation="replace-one")


@pytest.mark.parametrize("event", [RandomizedResponse(0.2, 3), NoisyRows(1.0, 0.2, 3)])
def test_relations_are_never_mixed(event: Event) -> None:
    with pytest.raises(BadInput, match="replace-one"):
        epsilon([event], 1e-5)


@pytest.mark.parametrize("method", ["prv", "gdp"])
def test_what_has_no_price_by_a_method_is_refused(method: Method) -> None:
    with pytest.raises(BadInput, match="use pld or rdp"):
        epsilon([RandomizedResponse(0.2, 3)], 1e-5, relation="replace-one", method=method)


@pytest.mark.parametrize(
    "event",
    [
        *(RandomizedResponse(flip, 4) for flip in (0.0, 1.5, math.nan)),
        *(NoisyRows(math.nan, 0.5, 4), NoisyRows(1.0, 0.0, 4)),
    ],
)
def test_what_is_no_response_counts_as_unprotected(event: Event) -> None:
    assert epsilon([event], 1e-5, relation="replace-one") == math.inf
    assert prv_bounds([event], 1e-5, relation="replace-one")[0] == math.inf


@pytest.mark.parametrize("method", ["pld", "rdp", "prv", "gdp"])
def test_a_group_of_k_whole_batches_is_one_gaussian_of_a_kth_of_the_noise(method: Method) -> None:
    got = epsilon([SampledGaussian(1.0, 12.0, 2), Gaussian(20.0)], 1e-5, method=method, group=3)
    truth = analytic_gaussian((2 * 4.0**-2 + (20 / 3) ** -2) ** -0.5, 1e-5)
    assert got == pytest.approx(truth, rel=0.15 if method == "rdp" else 0.01)
    assert got >= truth - 1e-6


@pytest.mark.thorough
def test_a_group_of_one_is_plain_and_a_larger_one_costs_more() -> None:
    events: list[Event] = [SampledGaussian(0.02, 1.5, 200), Gaussian(20.0)]
    plain = epsilon(events, 1e-5, interval=GROUP_INTERVAL)
    assert epsilon(events, 1e-5, interval=GROUP_INTERVAL, group=1) == plain
    totals = [plain, *(epsilon(events, 1e-5, group=k) for k in (2, 3, 5))]
    assert all(b > 1.5 * a for a, b in pairwise(totals))
    assert epsilon(events, 1e-5, group=3) < 5 * epsilon(events, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.02, 1.5, 200), (0.3, 4.0, 60), (0.5, 9.0, 9)])
def test_a_tight_group_lies_below_the_general_rule(q: float, sigma: float, steps: int) -> None:
    events = [SampledGaussian(q, sigma, steps)]
    tight = epsilon(events, 1e-5, group=2)
    merged = Merged(0.0, ((q, sigma, steps),))
    one = loss_distribution(merged, 1e-3)
    general = group_epsilon(one.get_delta_for_epsilon, 1e-5, 2)
    assert tight <= general
    assert tight <= epsilon(events, 1e-5, method="rdp", group=2)
    assert tight >= 1.5 * epsilon(events, 1e-5)
    # The rule itself, checked where it lands.
    d = one.get_delta_for_epsilon(general / 2)
    assert d * math.expm1(general) / math.expm1(general / 2) == pytest.approx(1e-5, rel=1e-2)
    replaced = epsilon(events, 1e-5, relation="replace-one", group=2)
    assert replaced > tight


@pytest.mark.slow
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
