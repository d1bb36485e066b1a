"""Epsilon by Renyi divergences, an upper bound that is looser and quicker than the loss's.

Sources: Mironov 2017 (proposition 11, the weak triangle inequality); the dp-accounting library.
"""

import math
from functools import lru_cache

import dp_accounting as dpa
import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant as renyi
from jaxtyping import Float

from panas.privacy.accounting.closed_form import group_epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, REPLACE, Merged, Relation
from panas.runtime.errors import quiet

Orders = tuple[float, ...]
Curve = Float[np.ndarray, " orders"]

ORDERS: Orders = tuple(float(a) for a in renyi.DEFAULT_RDP_ORDERS)
FEW_ORDERS: Orders = tuple(float(a) for a in range(2, 33))  # a quicker, higher bound


@lru_cache(maxsize=4096)
def rdp_epsilon(merged: Merged, delta: float, orders: Orders = ORDERS) -> float:
    """An upper bound of epsilon, from the divergences at `orders`.

    Args:
        merged: from `merge`: events that all protect, and are not free.
        delta: in (0, 1).
        orders: alpha of the divergences, each above 1; more of them tighten the bound.
    """
    group = merged.group
    # The library warns of each order whose series does not converge; the bound holds without.
    with quiet("absl"):
        curve = _curve(merged, orders)
        if group == 1:
            return float(renyi.compute_epsilon(orders, curve, delta)[0])
        general = group_epsilon(
            lambda e: float(renyi.compute_delta(orders, curve, e)[0]), delta, group
        )
    if merged.relation == REPLACE:
        return general
    # Also a bound: at least one of the k is in the batch, and then all k are.
    together = Merged(
        merged.precision * group**2,
        tuple((-math.expm1(group * math.log1p(-q)), s / group, t) for q, s, t in merged.sampled),
    )
    return min(general, rdp_epsilon(together, delta, orders))


def _curve(merged: Merged, orders: Orders) -> Curve:
    """Renyi divergence of everything, at each order."""
    alpha = np.array(orders)
    curve = alpha * merged.precision / 2
    for q, sigma, steps in merged.sampled:
        curve = curve + steps * _step_curve(q, sigma, merged.relation, orders)
    for flip, classes, times in merged.responses:
        event = dpa.RandomizedResponseDpEvent(flip, classes)
        curve = curve + times * _library_curve(event, REPLACE, orders)
    return curve


def _step_curve(q: float, sigma: float, relation: Relation, orders: Orders) -> Curve:
    """One step of DP-SGD.

    A replacement is a removal and an addition. By the weak triangle inequality its divergence of
    order a is at most (a - 1/2) / (a - 1) D_2a + D_(2a - 1).
    """
    if relation == ADD_OR_REMOVE:
        event = dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(sigma))
        return _library_curve(event, ADD_OR_REMOVE, orders)
    alpha = np.array(orders)
    removal = _step_curve(q, sigma, ADD_OR_REMOVE, tuple(2 * alpha))
    addition = _step_curve(q, sigma, ADD_OR_REMOVE, tuple(2 * alpha - 1))
    return (alpha - 0.5) / (alpha - 1) * removal + addition


@lru_cache(maxsize=4096)
def _library_curve(event: dpa.DpEvent, relation: Relation, orders: Orders) -> Curve:
    known = dpa.NeighboringRelation
    neighbours = known.REPLACE_ONE if relation == REPLACE else known.ADD_OR_REMOVE_ONE
    return np.array(renyi.RdpAccountant(orders, neighbours).compose(event).rdp)
