"""What a list of mechanisms costs together: epsilon at a given delta.

| symbol | name |
|---|---|
| q | `rate`, probability that a sample enters a Poisson batch |
| sigma, m | `noise_multiplier`, see `panas.privacy.accounting.events` |
| T | `steps` |
| k | `group`, samples that one user holds |
| alpha | order of a Renyi divergence |

Methods: "pld" (privacy loss distributions, an upper bound, what is reported and what gates),
"rdp" (Renyi, a looser upper bound), "prv" (Opacus's accountant, an independent upper bound, see
`panas.privacy.accounting.prv`) and "gdp" (the central-limit approximation of DP-FNAS: no bound,
shown as approximate only). A private selection has a Renyi price alone: with one in the list,
"pld" is the Renyi bound of the whole list.

Relations are never mixed. Under "replace-one" a DP-SGD step is the pair (1-q) N(0) + q N(1)
against (1-q) N(0) + q N(-1), in units of C. It dominates every other: by joint convexity the rest
of the batch may be fixed, and the hockey-stick divergence of (1-q) N(0) + q N(u) against
(1-q) N(0) + q N(v) grows when |u| grows, when |v| grows and when the angle between them grows,
because it is optimal on a convex set whose inner normals are positive mixtures of u and u - v.

Sources: the dp-accounting library; Mironov 2017 (proposition 11, the weak triangle inequality);
Papernot and Steinke 2022; Choquette-Choo et al. 2024 (mixtures of Gaussians); Dong, Roth and Su
2022.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Literal, NamedTuple

import dp_accounting as dpa
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as losses
from dp_accounting.rdp import rdp_privacy_accountant as renyi
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.stats import binom, norm

from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    REPLACE,
    Event,
    Gaussian,
    NoisyRows,
    PostProcessing,
    PrivateSelection,
    RandomizedResponse,
    Relation,
    SampledGaussian,
    Unprotected,
    event_from_json,
    event_to_json,
)
from panas.runtime.errors import BadInput

__all__ = [
    "ACCOUNTANT",
    "ADD_OR_REMOVE",
    "REPLACE",
    "Event",
    "Gaussian",
    "Method",
    "NoisyRows",
    "PostProcessing",
    "PrivateSelection",
    "RandomizedResponse",
    "Relation",
    "SampledGaussian",
    "Unprotected",
    "epsilon",
    "event_from_json",
    "event_to_json",
    "prv_bounds",
]

Method = Literal["pld", "rdp", "prv", "gdp"]

ACCOUNTANT = f"dp-accounting {version('dp-accounting')} PLD"
"""Name and version of what computes the reported figures."""

LEAST, MOST = 1e-6, 1e6
"""Noise multipliers that are told apart: less counts as none, and more as the most."""

MOST_SAMPLES = 1000
"""The largest group of samples that is priced."""

LARGE = 100.0
"""Above this epsilon no guarantee is worth the name; RDP's bound is reported, it is quicker."""


def epsilon(
    events: Iterable[Event],
    delta: float,
    *,
    method: Method = "pld",
    relation: Relation = "add-or-remove-one",
    group: int = 1,
    interval: float = 1e-4,
) -> float:
    """Epsilon of all events together, at `delta`.

    Args:
        events: mechanisms applied to the same samples, in any order.
        delta: in (0, 1).
        method: see the module's text.
        relation: which datasets are neighbours.
        group: k, 1 to 1000: neighbours differ in up to k samples, all of one user. Tight for
            Gaussians, randomised response and, by "pld" under add-or-remove-one, for DP-SGD;
            else by the general rule (k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1)).
        interval: grid of the privacy loss; every choice gives an upper bound, a finer one a
            tighter one.

    Returns:
        Epsilon >= 0; infinity if any event is unprotected, or is no mechanism (a noise, rate or
        count that is no number, or out of range); 0 for no events.

    Raises:
        BadInput: if an event has no price under this relation, or by this method.

    """
    merged = _merge(events, relation, group)
    if merged is None:
        return math.inf
    if merged == _NOTHING:
        return 0.0
    if group > 1 and not merged.sampled and not merged.selections:
        merged, group = _whole_group(merged, group), 1
    if method == "gdp":
        return _gdp(merged, delta, relation, group)
    if method == "prv":
        return _prv(merged, delta, relation, group)[2]
    if method == "pld" and merged == Merged(merged.precision):
        # Rounded up by more than the root is off.
        return _gaussian(math.sqrt(merged.precision), delta) + 1e-9
    if method == "pld" and not merged.selections:
        # Without fractional orders the bound can be many times too large, where sigma is small; and
        # so can the bound under replace-one.
        large = all(
            _by_renyi(merged, delta, ADD_OR_REMOVE, group, o) > LARGE for o in (SCREEN, ORDERS)
        )
        if not large:
            loss = _by_loss(merged, delta, relation, group, interval)
            # The grid rounds the few losses of a response up; Renyi's orders are exact on them.
            exact = merged.responses and _by_renyi(merged, delta, relation, group, ORDERS)
            return min(loss, exact) if exact else loss
    return _by_renyi(merged, delta, relation, group, ORDERS)


def prv_bounds(
    events: Iterable[Event],
    delta: float,
    *,
    relation: Relation = "add-or-remove-one",
    group: int = 1,
) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound of epsilon by Opacus's PRV accountant.

    It knows add-or-remove-one and single samples. Else the lower bound is that of one sample
    added or removed, and the upper one the general rule for a group of them.

    Raises:
        BadInput: if the events are not Gaussian.

    """
    merged = _merge(events, relation, group)
    if merged is None:
        return math.inf, math.inf, math.inf
    if group > 1 and not merged.sampled:
        merged, group = _whole_group(merged, group), 1
    return (0.0, 0.0, 0.0) if merged == _NOTHING else _prv(merged, delta, relation, group)


class Merged(NamedTuple):
    """Equal events summed; `precision` is that of one Gaussian for all full-batch ones.

    Gaussians of multipliers m_i compose exactly to one of (sum of m_i^-2)^-1/2.
    """

    precision: float = 0.0
    sampled: tuple[tuple[float, float, int], ...] = ()  # q, sigma, T
    responses: tuple[tuple[float, int, int], ...] = ()  # flip, classes, times
    selections: tuple[tuple["Merged", float, float], ...] = ()  # candidate, mean, shape


_NOTHING = Merged()


def _merge(events: Iterable[Event], relation: Relation, group: int) -> Merged | None:
    """The events in merged form; None if any of them protects nothing."""
    if not 1 <= group <= MOST_SAMPLES:
        raise BadInput(
            f"expected a group of 1 to {MOST_SAMPLES} samples, got {group}; give another group"
        )
    precision, selections = 0.0, []
    sampled = defaultdict[tuple[float, float], int](int)
    responses = defaultdict[tuple[float, int], int](int)
    # Under replace-one a full batch moves by 2 C.
    reach = 2.0 if relation == REPLACE else 1.0
    for event in events:
        # Every check is written so that NaN, too, counts as no protection.
        if isinstance(event, PostProcessing):
            continue
        if isinstance(event, Unprotected):
            return None
        if isinstance(event, PrivateSelection):
            candidate = _merge([event.event] * max(0, event.count), relation, 1)
            if candidate is None or not (event.count >= 0 and event.mean >= 1 and event.shape >= 0):
                return None
            if candidate != _NOTHING:
                selections.append((candidate, event.mean, event.shape))
            continue
        if isinstance(event, RandomizedResponse | NoisyRows):
            if relation != REPLACE:
                raise BadInput(
                    "expected randomised response under replace-one, got it under "
                    f"{relation}, where it has no price; open the account as replace-one"
                )
            if not 0 < event.flip <= 1 or event.classes < 1:
                return None
            if event.flip < 1 and event.classes > 1:
                responses[event.flip, event.classes] += 1
            if isinstance(event, RandomizedResponse):
                continue
        if not event.noise_multiplier > LEAST:
            return None
        m = min(event.noise_multiplier, MOST)
        if not isinstance(event, SampledGaussian):
            precision += m**-2
        elif not (event.rate >= 0 and event.steps >= 0):
            return None
        elif event.rate >= 1:
            precision += event.steps * (m / reach) ** -2
        elif event.steps > 0 and event.rate > 0:
            sampled[event.rate, m] += event.steps
    return Merged(
        precision,
        tuple((q, s, t) for (q, s), t in sorted(sampled.items())),
        tuple((f, c, n) for (f, c), n in sorted(responses.items())),
        tuple(sorted(selections)),
    )


def _whole_group(merged: Merged, group: int) -> Merged:
    """What k samples cost where each is surely read: shifts add up, responses are independent."""
    responses = tuple((f, c, n * group) for f, c, n in merged.responses)
    return merged._replace(precision=merged.precision * group**2, responses=responses)


# Privacy loss distributions.

GROUP_INTERVAL = 2e-3
"""The finest grid for a group of samples; a coarser grid only adds to the bound."""


@lru_cache(maxsize=4096)
def _by_loss(
    merged: Merged, delta: float, relation: Relation, group: int, interval: float
) -> float:
    if group == 1 or relation == ADD_OR_REMOVE:
        # A mixture's grid is slow to fill, point by point.
        interval = interval if group == 1 else max(interval, GROUP_INTERVAL)
        loss = _loss(merged, relation, group, interval)
        return max(0.0, float(loss.get_epsilon_for_delta(delta)))
    one = _loss(merged, relation, 1, interval)
    return _grouped(one.get_delta_for_epsilon, delta, group)


def _loss(
    merged: Merged, relation: Relation, group: int, interval: float
) -> losses.PrivacyLossDistribution:
    total = losses.identity(value_discretization_interval=interval)
    neighbours = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    if merged.precision:
        full = losses.from_gaussian_mechanism(
            merged.precision**-0.5 / group, value_discretization_interval=interval
        )
        total = total.compose(full)
    if relation == REPLACE:
        neighbours = dpa.NeighboringRelation.REPLACE_ONE
    for q, sigma, steps in merged.sampled:
        if group == 1:
            step = losses.from_gaussian_mechanism(
                sigma,
                value_discretization_interval=interval,
                sampling_prob=q,
                neighboring_relation=neighbours,
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
        total = total.compose(step.self_compose(steps))
    # Not through the library's accountant: it takes n equal responses for one.
    for flip, classes, times in merged.responses:
        response = losses.from_randomized_response(
            flip, classes, value_discretization_interval=interval, neighboring_relation=neighbours
        )
        total = total.compose(response.self_compose(times))
    return total


# Renyi divergences.

Orders = tuple[float, ...]

ORDERS: Orders = tuple(float(a) for a in renyi.DEFAULT_RDP_ORDERS)

SCREEN: Orders = tuple(float(a) for a in range(2, 33))
"""Renyi orders whose bound is quick; where it is below LARGE, the bound of all orders is too."""


@lru_cache(maxsize=4096)
def _by_renyi(
    merged: Merged, delta: float, relation: Relation, group: int, orders: Orders
) -> float:
    with _quiet():
        curve = _curve(merged, relation, orders)
        if group == 1:
            return float(renyi.compute_epsilon(orders, curve, delta)[0])
        general = _grouped(lambda e: float(renyi.compute_delta(orders, curve, e)[0]), delta, group)
    if merged.selections or relation == REPLACE:
        return general
    # Also a bound: at least one of the k is in the batch, and then all k are.
    together = Merged(
        merged.precision * group**2,
        tuple((-math.expm1(group * math.log1p(-q)), s / group, t) for q, s, t in merged.sampled),
    )
    return min(general, _by_renyi(together, delta, relation, 1, orders))


def _curve(merged: Merged, relation: Relation, orders: Orders) -> Float[np.ndarray, " orders"]:
    """Renyi divergence of everything, at each order."""
    alpha = np.array(orders)
    curve = alpha * merged.precision / 2
    for q, sigma, steps in merged.sampled:
        curve = curve + steps * _step_curve(q, sigma, relation, orders)
    for flip, classes, times in merged.responses:
        curve = curve + times * _response_curve(flip, classes, orders)
    for candidate, mean, shape in merged.selections:
        one = _curve(candidate, relation, orders)
        # Theorems 2 and 6 of Papernot and Steinke; the event class that wraps this in the
        # library takes no DP-SGD under replace-one.
        curve = curve + renyi._compute_rdp_repeat_and_select(orders, one, mean, shape)
    return curve


@lru_cache(maxsize=4096)
def _step_curve(
    q: float, sigma: float, relation: Relation, orders: Orders
) -> Float[np.ndarray, " orders"]:
    """One step of DP-SGD.

    A replacement is a removal and an addition. By the weak triangle inequality its divergence of
    order a is at most (a - 1/2) / (a - 1) D_2a + D_(2a - 1).
    """
    if relation == ADD_OR_REMOVE:
        return _library_curve(
            dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(sigma)), ADD_OR_REMOVE, orders
        )
    alpha = np.array(orders)
    removal = _step_curve(q, sigma, ADD_OR_REMOVE, tuple(2 * alpha))
    addition = _step_curve(q, sigma, ADD_OR_REMOVE, tuple(2 * alpha - 1))
    return (alpha - 0.5) / (alpha - 1) * removal + addition


@lru_cache(maxsize=4096)
def _response_curve(flip: float, classes: int, orders: Orders) -> Float[np.ndarray, " orders"]:
    return _library_curve(dpa.RandomizedResponseDpEvent(flip, classes), REPLACE, orders)


def _library_curve(
    event: dpa.DpEvent, relation: Relation, orders: Orders
) -> Float[np.ndarray, " orders"]:
    known = dpa.NeighboringRelation
    neighbours = known.REPLACE_ONE if relation == REPLACE else known.ADD_OR_REMOVE_ONE
    return np.array(renyi.RdpAccountant(orders, neighbours).compose(event).rdp)


@contextmanager
def _quiet() -> Iterator[None]:
    """The library warns of each order whose series does not converge; the bound holds without."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# Groups, Opacus, and the central limit.


def _grouped(delta_at: Callable[[float], float], delta: float, group: int) -> float:
    """The general rule: (e, d)-DP for one sample is (k e, d (e^(ke) - 1) / (e^e - 1))-DP for k.

    Every e whose right side is at most delta gives a bound; the search need not find the least.
    """

    def affords(e: float) -> bool:
        d = delta_at(e)
        growth = group * e + math.log(-math.expm1(-group * e)) - math.log(math.expm1(e))
        return d <= 0 or math.log(d) + growth <= math.log(delta)

    low, high = 0.0, 1e-4
    while not affords(high):
        low, high = high, 2 * high
        if high > 500:
            return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if affords(middle) else (middle, high)
    return group * high


@lru_cache(maxsize=256)
def _prv(
    merged: Merged, delta: float, relation: Relation, group: int
) -> tuple[float, float, float]:
    from panas.privacy.accounting.prv import discrete_loss

    if merged.selections or merged.responses:
        raise BadInput("expected Gaussian events for prv, got others; use pld or rdp")
    reach, pairs = group, merged.precision
    if relation == REPLACE and merged.sampled:
        # A replacement is two steps of one sample; a Gaussian's halfway point is Delta / 2 away.
        reach, pairs = 2 * group, merged.precision / 4
    full = [(1.0, pairs**-0.5, 1)] if pairs else []
    loss = discrete_loss([*full, *merged.sampled], delta)
    low, estimate, high = loss.bounds(delta)
    if reach == 1:
        return low, estimate, high
    high = _grouped(loss.delta_above, delta, reach)
    return low, high, high


def _gdp(merged: Merged, delta: float, relation: Relation, group: int) -> float:
    """Central-limit approximation: mu^2 adds up; each step adds its chi-squared divergence.

    That is q^2 (e^(1/sigma^2) - 1) for one sample; 4 q^2 sinh(1/sigma^2) where it is replaced.
    """
    if merged.selections or merged.responses:
        raise BadInput("expected Gaussian events for gdp, got others; use pld or rdp")
    mu2 = merged.precision * group**2
    for q, sigma, steps in merged.sampled:
        counts = np.arange(group + 1.0)
        weights = binom.pmf(counts, group, q)
        power = np.minimum(np.outer(counts, counts) / sigma**2, 700.0)
        moved = np.sinh(power) * 4 if relation == REPLACE else np.expm1(power)
        mu2 += steps * float(weights @ moved @ weights)
    return _gaussian(math.sqrt(mu2), delta)


@lru_cache(maxsize=4096)
def _gaussian(mu: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism of multiplier 1 / mu, in closed form.

    Balle and Wang 2018, theorem 8. Infinity where epsilon would be above 1e11.
    """
    if not mu < 5e5:
        return math.inf

    def excess(e: float) -> float:
        log_tail = e + float(norm.logcdf(-e / mu - mu / 2))
        return float(norm.cdf(-e / mu + mu / 2)) - math.exp(log_tail) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-12))
