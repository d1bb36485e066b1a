"""Epsilon by privacy loss distributions: the upper bound that is reported and that gates.

Under "replace-one" a DP-SGD step is the pair (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1), in
units of C. It dominates every other: by joint convexity the rest of the batch may be fixed, and the
hockey-stick divergence of (1-q) N(0) + q N(u) against (1-q) N(0) + q N(v) grows when |u| grows,
when |v| grows and when the angle between them grows, because it is optimal on a convex set whose
inner normals are positive mixtures of u and u - v.

Sources: the dp-accounting library; Choquette-Choo et al. 2024 (mixtures of Gaussians).
"""

from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as losses
from scipy.stats import binom

from panas.privacy.accounting.closed_form import group_epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Merged, Relation

GROUP_INTERVAL = 2e-3  # the finest grid for a group: a mixture's is slow to fill


@lru_cache(maxsize=4096)
def pld_epsilon(merged: Merged, delta: float, interval: float) -> float:
    """An upper bound of epsilon; a coarser grid only adds to it."""
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
        full = losses.from_gaussian_mechanism(
            merged.precision**-0.5 / group, value_discretization_interval=interval
        )
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
    if group == 1:
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
            binom.pmf(counts, group, q),
            value_discretization_interval=interval,
        )
    return step.self_compose(times)
