"""Groups: all samples of one user, by closed forms and by the general rule."""

import math
from itertools import pairwise

import numpy as np
import pytest
from accounting_oracles import analytic_gaussian
from scipy.optimize import brentq
from scipy.stats import norm

from panas.privacy.accounting.closed_form import group_epsilon
from panas.privacy.accounting.epsilon import Method, epsilon
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
