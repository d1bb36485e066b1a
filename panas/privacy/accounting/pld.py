"""Epsilon by privacy loss distributions: the upper bound that is reported and that gates.

Under "replace-one" a DP-SGD step is the pair (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), in
units of C. It dominates every other: by joint convexity the rest of the batch may be fixed, and the
hockey-stick divergence of (1-q) N(0) + q N(u) against (1-q) N(0) + q N(v) grows when |u| grows,
when |v| grows and when the angle between them grows, because it is optimal on a convex set whose
inner normals are positive mixtures of u and u - v.

The library inverts a privacy loss, and sums a profile, in loops of Python. Here both are arrays:
the same formulas, and the library's grid.

Sources: the dp-accounting library; Choquette-Choo et al. 2024 (mixtures of Gaussians).
"""

import math
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
import scipy
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as losses
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from jaxtyping import Float

from panas.privacy.accounting.closed_form import group_epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Merged, Relation

GROUP_INTERVAL = 2e-3  # the finest grid for a group: a mixture's is slow to fill


@lru_cache(maxsize=4096)
def pld_epsilon(merged: Merged, delta: float, interval: float) -> float:
    """An upper bound of epsilon; a coarser grid only adds to it.

    Args:
        merged: from `merge`: events that all protect, and are not free.
        delta: in (0, 1).
        interval: grid of the privacy loss, above 0; a coarser one takes less time and memory.
    """
    if merged.group > 1 and merged.relation == REPLACE:
        one = loss_distribution(merged._replace(group=1), interval)
        return group_epsilon(one.get_delta_for_epsilon, delta, merged.group)
    interval = interval if merged.group == 1 else max(interval, GROUP_INTERVAL)
    loss = loss_distribution(merged, interval)
    return max(0.0, float(loss.get_epsilon_for_delta(delta)))


@lru_cache(maxsize=4)
def loss_distribution(merged: Merged, interval: float) -> losses.PrivacyLossDistribution:
    """The privacy loss of all events together, on a grid."""
    total, group = losses.identity(value_discretization_interval=interval), merged.group
    if merged.precision:
        full = _gaussian(merged.precision**-0.5 / group, 1.0, interval)
        total = total.compose(full)
    if merged.sampled:
        total = total.compose(_sampled(merged.sampled, merged.relation, group, interval))
    # Not through the library's accountant: it takes n equal responses for one.
    for flip, classes, times in merged.responses:
        response = losses.from_randomized_response(
            flip,
            classes,
            value_discretization_interval=interval,
            neighboring_relation=_NEIGHBOURS[merged.relation],
        )
        total = total.compose(response.self_compose(times))
    return total


_NEIGHBOURS = {
    ADD_OR_REMOVE: dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    REPLACE: dpa.NeighboringRelation.REPLACE_ONE,
}


@lru_cache(maxsize=32)
def _sampled(
    steps: tuple[tuple[float, float, int], ...], relation: Relation, group: int, interval: float
) -> losses.PrivacyLossDistribution:
    """The loss of DP-SGD, remembered: what is looked for composes with what is known, often."""
    if len(steps) > 1:
        return _sampled(steps[:-1], relation, group, interval).compose(
            _sampled(steps[-1:], relation, group, interval)
        )
    [(q, sigma, times)] = steps
    if group == 1 and relation == ADD_OR_REMOVE:
        step = _gaussian(sigma, q, interval)
    elif group == 1:
        step = losses.from_gaussian_mechanism(
            sigma,
            value_discretization_interval=interval,
            sampling_prob=q,
            neighboring_relation=_NEIGHBOURS[relation],
        )
    else:
        # How many of the user's samples enter the batch is binomial; at worst all agree.
        counts = np.arange(group + 1)
        step = losses.from_mixture_gaussian_mechanism(
            sigma,
            counts.astype(float),
            scipy.stats.binom.pmf(counts, group, q),
            value_discretization_interval=interval,
        )
    return step.self_compose(times)


def _gaussian(sigma: float, q: float, interval: float) -> losses.PrivacyLossDistribution:
    """The loss of one Gaussian step of sampling rate q, if a sample is added or removed."""
    removed = _gaussian_pmf(sigma, q, interval, AdjacencyType.REMOVE)
    if q == 1:
        return losses.PrivacyLossDistribution(removed)
    added = _gaussian_pmf(sigma, q, interval, AdjacencyType.ADD)
    return losses.PrivacyLossDistribution(removed, added)


def _gaussian_pmf(
    sigma: float, q: float, interval: float, direction: AdjacencyType
) -> pld_pmf.PLDPmf:
    loss = GaussianPrivacyLoss(sigma, sampling_prob=q, adjacency_type=direction)
    bounds = loss.connect_dots_bounds()
    low = math.floor(bounds.epsilon_lower / interval)
    high = math.ceil(bounds.epsilon_upper / interval)
    deltas = _gaussian_profile(loss, sigma, q, np.arange(low, high + 1) * interval)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def _gaussian_profile(
    loss: GaussianPrivacyLoss, sigma: float, q: float, e: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "k"]:
    """delta at each epsilon e of one step: P(x <= cut) - exp(e) Q(x <= cut), where the loss at the
    cut is e."""
    sign = 1.0 if loss.adjacency_type == AdjacencyType.REMOVE else -1.0
    deltas = np.zeros_like(e) if sign < 0 else -np.expm1(e)  # where the loss is never that small
    inside = sign * e > (math.log1p(-q) if q < 1 else -math.inf)
    e = e[inside]
    cut = -sign * (sigma**2 * _unsampled(sign * e, q) + 0.5)
    deltas[inside] = loss.mu_upper_cdf(cut) - np.exp(e + loss.mu_lower_log_cdf(cut))
    return np.clip(deltas, 0, 1)


def _unsampled(e: Float[np.ndarray, "k"], q: float) -> Float[np.ndarray, "k"]:
    """log(1 + (exp(e) - 1) / q): the loss without sampling where it is e with it."""
    if q == 1:
        return e
    below, above = np.minimum(e, 0), np.maximum(e, 0)
    with np.errstate(divide="ignore"):
        low = np.log1p(np.maximum(np.expm1(below) / q, -1))
    high = above - math.log(q) + np.log1p(-(1 - q) * np.exp(-above))
    return np.where(e > 0, high, low)


def profile(
    loss: losses.PrivacyLossDistribution, epsilons: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "k"]:
    """delta at each of k epsilons, ascending, 0 or more: the library's `get_delta_for_epsilon`."""
    both = {id(pmf): pmf.to_dense_pmf() for pmf in (loss._pmf_remove, loss._pmf_add)}
    return np.max([_profile_of(pmf, epsilons) for pmf in both.values()], axis=0)


def _profile_of(
    pmf: pld_pmf.DensePLDPmf, epsilons: Float[np.ndarray, "k"]
) -> Float[np.ndarray, "k"]:
    """sum of (1 - exp(e - l)) p(l) over losses l > e, and the mass at infinity."""
    first = max(0, -pmf._lower_loss)
    probs = np.asarray(pmf._probs)[first:]
    l = (np.arange(len(probs)) + first + pmf._lower_loss) * pmf._discretization  # noqa: E741
    upper = np.append(np.cumsum(probs[::-1])[::-1], 0.0)
    lower = np.append(np.cumsum((probs * np.exp(-l))[::-1])[::-1], 0.0)
    at = np.searchsorted(l, epsilons, side="right")
    with np.errstate(over="ignore", invalid="ignore"):
        deltas = upper[at] - np.where(at < len(l), np.exp(epsilons) * lower[at], 0.0)
    return pmf._infinity_mass + deltas
