"""Prices in closed form: one Gaussian exactly, DP-SGD by the central limit, groups by a rule."""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
import scipy
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from panas.privacy.accounting.events import REPLACE, Merged, SampledGaussian

MOST_MU = 5e5  # above it epsilon is above 1e11
LEAST_EPSILON, MOST_EPSILON = 1e-9, 1e6  # of a Gaussian that is sought at another delta


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism of multiplier 1 / mu, in closed form.

    Balle and Wang 2018, theorem 8. Infinity where epsilon would be above 1e11.
    """
    if not mu < MOST_MU:
        return math.inf
    if _gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while _gaussian_delta(mu, high) > delta:
        high *= 2
    return float(brentq(lambda e: _gaussian_delta(mu, e) - delta, 0.0, high, xtol=1e-12))


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The multiplier of the Gaussian mechanism of this epsilon, finite, at this delta."""

    def excess(log_mu: float) -> float:
        return _gaussian_delta(math.exp(log_mu), epsilon) - delta

    reach = math.log(MOST_MU)
    return math.exp(-float(brentq(excess, -reach, reach, xtol=1e-14)))


def equivalent_epsilon(epsilon: float, delta: float, target: float) -> float:
    """What (epsilon, delta) is at another delta: that of the Gaussian mechanism that costs it.

    Args:
        epsilon: above 0; infinity stays so.
        delta: in (0, 1), at which epsilon was asked for.
        target: in (0, 1), the delta of whoever compares.

    Returns:
        Epsilon of the same Gaussian mechanism at `target`: smaller where `target` is larger.
        Epsilon itself where the two are equal, or where it is too large or small for a Gaussian of
        the ledger and `target` is no smaller; infinity where it is smaller then.
    """
    if target == delta:
        return epsilon
    known = LEAST_EPSILON <= epsilon <= MOST_EPSILON
    if known and _gaussian_delta(1 / MOST_MU, epsilon) <= delta:
        return gaussian_epsilon(1 / gaussian_multiplier(epsilon, delta), target)
    return epsilon if target > delta else math.inf


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta at epsilon of one Gaussian mechanism of multiplier 1 / mu."""
    log_tail = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return float(ndtr(-epsilon / mu + mu / 2)) - math.exp(log_tail)


def gaussian_delta(mu: float, e: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
    """Delta of one Gaussian mechanism of multiplier 1 / mu at each epsilon; mu above 0."""
    return ndtr(mu / 2 - e / mu) - np.exp(e + log_ndtr(-e / mu - mu / 2))


def gdp_epsilon(merged: Merged, delta: float) -> float:
    """Epsilon of Gaussian events by the central limit: an approximation, no bound.

    mu^2 adds up; a step adds its chi-squared divergence, q^2 (e^(1/sigma^2) - 1) for one sample
    and 4 q^2 sinh(1/sigma^2) where it is replaced. Source: Dong, Roth and Su 2022.
    """
    mu2, counts = merged.precision * merged.group**2, np.arange(merged.group + 1.0)
    for q, sigma, steps in merged.sampled:
        weights = scipy.stats.binom.pmf(counts, merged.group, q)
        power = np.minimum(np.outer(counts, counts) / sigma**2, 700.0)
        moved = np.sinh(power) * 4 if merged.relation == REPLACE else np.expm1(power)
        mu2 += steps * float(weights @ moved @ weights)
    return gaussian_epsilon(math.sqrt(mu2), delta)


def limit_mu(events: Iterable[SampledGaussian]) -> float:
    """mu of DP-SGD on single samples by the central limit: an approximation, no bound.

    sqrt(sum q^2 T (e^(1/sigma^2) - 1)). Source: DP-FNAS (Singh et al. 2020), theorem 3.1.
    """
    powers = ((e, min(e.noise_multiplier**-2, 700.0)) for e in events)
    return math.sqrt(sum(e.rate**2 * e.steps * math.expm1(power) for e, power in powers))


def group_epsilon(delta_at: Callable[[float], float], delta: float, group: int) -> float:
    """The general rule: (e, d)-DP for one sample is (k e, d (e^(ke) - 1) / (e^e - 1))-DP for k.

    Args:
        delta_at: delta of the mechanism for one sample, in [0, 1], at an epsilon of 0 or more.
        delta: of the group's guarantee, in (0, 1).
        group: k, samples of one user, 1 to 1000.
    """

    def affords(e: float) -> bool:
        d = delta_at(e)
        growth = group * e + math.log(-math.expm1(-group * e)) - math.log(math.expm1(e))
        return d <= 0 or math.log(d) + growth <= math.log(delta)

    # Every e that it affords gives a bound; the search need not find the least.
    low, high = 0.0, 1e-4
    while not affords(high):
        low, high = high, 2 * high
        if high > 500:
            return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if affords(middle) else (middle, high)
    return group * high
