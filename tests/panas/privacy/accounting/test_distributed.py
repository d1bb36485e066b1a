"""The price of a sum against exact probabilities: convolutions at small sizes."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from panas.privacy.accounting import distributed as module
from panas.privacy.accounting.closed_form import gaussian_delta
from panas.privacy.accounting.distributed import (
    SummedVector,
    share_sigma,
    sum_distance,
    sum_multiplier,
)
from panas.runtime.errors import BadInput

EPSILONS = np.linspace(0, 12, 241)
JOINED = SummedVector(sensitivity=math.sqrt(2), step=2.0**-24, size=9546)


def discrete(variance: float, reach: int) -> np.ndarray:
    """Probabilities of -reach to reach."""
    z = np.arange(-reach, reach + 1)
    p = np.exp(-(z**2) / (2 * variance))
    return p / p.sum()


def summed(sigma: float, shares: int) -> np.ndarray:
    """Probabilities of the sum of so many discrete Gaussians, by convolution."""
    one = discrete(sigma**2, math.ceil(9 * sigma * math.sqrt(shares)) + 1)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return total


def apart(p: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """The same noise around two numbers `shift` steps apart."""
    return np.pad(p, (0, shift)), np.pad(p, (shift, 0))


def exact_delta(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.array([np.maximum(p - math.exp(e) * q, 0).sum() for e in EPSILONS])


def exact_rdp(p: np.ndarray, q: np.ndarray, order: float) -> float:
    both = np.minimum(p, q) > 1e-80  # beyond, the shares' own ends show
    return float(logsumexp(order * np.log(p[both]) + (1 - order) * np.log(q[both]))) / (order - 1)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "shares"), [(200, 3), (300, 1), (100.5, 9)])
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 3.0])
def test_no_shift_costs_more_than_the_stated_gaussian(sigma: float, shares: int, multiplier: float):
    """One number, of which rounding makes `shift` of a sensitivity of `shift` - 1 steps."""
    shift = round(math.sqrt(shares) * sigma / multiplier)
    vector = SummedVector(sensitivity=shift - 1, step=1, size=1)
    stated = sum_multiplier(vector, sigma, shares)
    delta = exact_delta(*apart(summed(sigma, shares), shift))
    assert (delta <= gaussian_delta(1 / stated, EPSILONS) + 1e-12).all()
    # And it is tight: a multiplier larger by 2 % would promise too much.
    assert (delta > gaussian_delta(1 / (1.02 * stated), EPSILONS)).any()


def test_forgotten_rounding_is_found(monkeypatch: pytest.MonkeyPatch):
    """The planted bug: the sensitivity before rounding, where 40 steps become 41."""
    monkeypatch.setattr(SummedVector, "steps", property(lambda v: v.sensitivity / v.step))
    stated = sum_multiplier(SummedVector(sensitivity=40, step=1, size=1), 200, 4)
    delta = exact_delta(*apart(summed(200, 4), 41))
    assert (delta > gaussian_delta(1 / stated, EPSILONS)).any()


def test_two_numbers_cost_what_their_distance_costs():
    """Two numbers, moved by 210 and 280 steps: as one number moved by 350."""
    (a, b), (c, d) = (
        tuple(x[np.minimum(*pair) > 1e-12] for x in pair)
        for pair in (apart(summed(200, 2), shift) for shift in (210, 280))
    )
    one, other = np.log(a / b), np.log(c / d)
    stated = sum_multiplier(SummedVector(sensitivity=350 - math.sqrt(2), step=1, size=2), 200, 2)
    for e in (0.0, 1.0, 3.0):
        excess = (
            c @ np.maximum(-np.expm1(e - other[:, None] - at), 0)
            for at in np.split(one, [*range(99, len(one), 99)])
        )
        delta = float(a @ np.concatenate(list(excess)))
        assert delta <= gaussian_delta(1 / stated, np.array([e]))[0] + 1e-9
        assert delta > gaussian_delta(1 / (1.03 * stated), np.array([e]))[0]


def concentrated_epsilon(vector: SummedVector, sigma: float, shares: int) -> float:
    """epsilon of epsilon^2 / 2 concentrated DP of the sum: Kairouz, Liu and Steinke, theorem 1."""
    mu = vector.steps / (math.sqrt(shares) * sigma)
    parts = (math.exp(-2 * (math.pi * sigma) ** 2 * j / (j + 1)) for j in range(1, shares))
    tau = 10 * sum(parts)
    return min(math.sqrt(mu**2 + tau * vector.size / 2), mu + tau * math.sqrt(vector.size))


@pytest.mark.parametrize(("sigma", "shares"), [(1.0, 4), (1.5, 3), (2.5, 10), (40, 4)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_renyi_divergences_are_those_of_the_published_bound(sigma: float, shares: int, shift: int):
    p, q = apart(summed(sigma, shares), shift)
    vector = SummedVector(sensitivity=shift - 1 or 1e-9, step=1, size=1)
    bound = concentrated_epsilon(vector, sigma, shares)
    for order in (1.5, 2, 4, 8):
        assert exact_rdp(p, q, order) <= order * bound**2 / 2 * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "shares"), [(200, 3), (100.5, 9)])
def test_renyi_divergences_are_below_the_stated_gaussian(sigma: float, shares: int):
    vector = SummedVector(sensitivity=99, step=1, size=1)
    stated = sum_multiplier(vector, sigma, shares)
    p, q = apart(summed(sigma, shares), 100)
    for order in (1.5, 2, 8, 32):
        assert exact_rdp(p, q, order) <= order / (2 * stated**2)


@pytest.mark.parametrize(("sigma", "shares"), [(0.6, 2), (0.7, 5), (0.8, 3), (1.0, 8)])
def test_a_sum_is_as_close_to_one_discrete_gaussian_as_stated(sigma: float, shares: int):
    p = summed(sigma, shares)
    q = discrete(shares * sigma**2, len(p) // 2)
    near = np.abs(np.arange(len(p)) - len(p) // 2) <= 4 * sigma * math.sqrt(shares)
    distance = np.abs(np.log(p[near] / q[near])).max()
    assert 0 < distance <= sum_distance(sigma, shares)


@pytest.mark.parametrize("spread", [0.8, 3.0, 50.0])
def test_a_discrete_gaussian_is_as_close_to_a_rounded_one_as_stated(spread: float):
    reach = math.ceil(6 * spread)
    z = np.arange(-reach, reach + 1)
    rounded = norm.sf(np.abs(z) - 0.5, scale=spread) - norm.sf(np.abs(z) + 0.5, scale=spread)
    rounded[reach] = 1 - 2 * norm.sf(0.5, scale=spread)
    p = discrete(spread**2, 40 * reach)[39 * reach : 41 * reach + 1]
    distance = np.abs(np.log(p / rounded))
    stated = np.maximum(1 / (8 * spread**2), z**2 / (8 * spread**4)) + module._theta(spread**2)
    assert (distance <= stated + 1e-9).all()


@pytest.mark.parametrize("variance", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("center", [0.0, 0.3, 0.5])
def test_sums_over_whole_numbers_are_as_stated(variance: float, center: float):
    total = np.exp(-((np.arange(-60, 61) - center) ** 2) / (2 * variance)).sum()
    off = abs(total / math.sqrt(2 * math.pi * variance) - 1)
    assert off <= module._theta(variance) + 1e-12


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0, 15.0])
@pytest.mark.parametrize("theta", [1e-9, 1e-5, 1e-3])
def test_the_larger_mu_covers_the_factors(mu: float, theta: float):
    """What probabilities within exp(+-theta) of a Gaussian's may cost, at every epsilon >= 0."""
    w = 3 * theta + 2 * theta / mu
    bump = 2 * theta * module._inverse_mills(w)
    if bump > 0.01 * mu:
        pytest.skip("refused: the grid is too coarse")
    e = np.linspace(0, 8 * mu + mu**2, 400)
    from_below = math.exp(theta) * gaussian_delta(mu, e - 2 * theta)
    from_above = 1 - math.exp(-theta) * (1 - gaussian_delta(mu, e))
    most = np.minimum(from_below, from_above)
    assert (most <= gaussian_delta(mu + bump, e) + 1e-13).all()
    if theta > 1e-6:  # a third of it does not
        assert (most > gaussian_delta(mu + bump / 3, e)).any()


@pytest.mark.parametrize("multiplier", [0.05, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("shares", [1, 3, 7, 34])
def test_the_grid_costs_next_to_nothing(multiplier: float, shares: int):
    sigma = share_sigma(JOINED, multiplier, shares)
    stated = sum_multiplier(JOINED, sigma, shares)
    assert multiplier <= stated < multiplier * (1 + 1e-5)
    # Against a Gaussian of this standard deviation, without a grid.
    plain = math.sqrt(shares) * sigma * JOINED.step / JOINED.sensitivity
    assert stated <= plain < stated * (1 + 1e-4)
    assert 1 / stated == pytest.approx(concentrated_epsilon(JOINED, sigma, shares), rel=1e-6)


def test_more_shares_more_noise_and_a_finer_grid_cost_less_and_a_coarse_one_is_refused():
    one = sum_multiplier(JOINED, 1 << 24, 4)
    assert sum_multiplier(JOINED, 1 << 24, 5) > one
    assert sum_multiplier(JOINED, 1 << 25, 4) > one
    finer = SummedVector(sensitivity=math.sqrt(2), step=2.0**-25, size=9546)
    assert sum_multiplier(finer, 1 << 25, 4) > one
    coarse = SummedVector(sensitivity=1, step=0.5, size=10_000)
    with pytest.raises(BadInput, match="finer grid"):
        share_sigma(coarse, 1.0, 4)
    with pytest.raises(BadInput, match="finer grid"):
        sum_multiplier(JOINED, 0.1, 4)
    with pytest.raises(BadInput, match="finer grid"):
        share_sigma(JOINED, 1e-5, 4)


def test_a_vector_or_a_multiplier_that_cannot_be_is_refused():
    for changed in ({"sensitivity": 0.0}, {"step": math.nan}, {"size": 0}):
        with pytest.raises(BadInput, match="above 0"):
            SummedVector(**({"sensitivity": 1.0, "step": 1.0, "size": 1} | changed))
    for multiplier in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BadInput, match="multiplier"):
            share_sigma(JOINED, multiplier, 4)
