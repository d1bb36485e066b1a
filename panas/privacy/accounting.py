"""What a list of mechanisms costs together: epsilon at a given delta.

All events here are for one adjacency: one sample added or removed. Two datasets that differ by
replacing a sample are two such steps apart, and no event of that relation is ever mixed in.

| symbol | name |
|---|---|
| q | `rate`, probability that a sample enters a Poisson batch |
| sigma, m | `noise_multiplier`, noise standard deviation over L2 sensitivity |
| T | `steps` |

Methods: "pld" (privacy loss distributions, an upper bound, what is reported and what gates),
"rdp" (Renyi, a looser upper bound) and "gdp" (the central-limit approximation of DP-FNAS: no
bound, shown as approximate only). Source: the dp-accounting library; Dong, Roth and Su 2022.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Literal

import dp_accounting as dpa
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm

Method = Literal["pld", "rdp", "gdp"]

ACCOUNTANT = f"dp-accounting {version('dp-accounting')} PLD"
"""Name and version of what computes the reported figures."""

LARGE = 100.0
"""Above this epsilon no guarantee is worth the name; RDP's bound is reported, it is quicker."""


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian mechanism on the whole subset: noise_multiplier = std / sensitivity, above 0."""

    noise_multiplier: float


@dataclass(frozen=True)
class SampledGaussian:
    """DP-SGD: `steps` Gaussian mechanisms, each on a Poisson sample of rate q in (0, 1]."""

    rate: float
    noise_multiplier: float
    steps: int


@dataclass(frozen=True)
class Unprotected:
    """Something that leaves, or is chosen, without protection: epsilon is infinity."""


Event = Gaussian | SampledGaussian | Unprotected
_KINDS: dict[str, type[Event]] = {
    "gaussian": Gaussian,
    "sampled-gaussian": SampledGaussian,
    "unprotected": Unprotected,
}


def event_to_json(event: Event) -> dict[str, Any]:
    """A JSON-able description of an event; `event_from_json` reads it back."""
    kind = next(k for k, t in _KINDS.items() if isinstance(event, t))
    return {"kind": kind, **asdict(event)}


def event_from_json(record: dict[str, Any]) -> Event:
    """The event that `event_to_json` described."""
    return _KINDS[record["kind"]](**{k: v for k, v in record.items() if k != "kind"})


def epsilon(
    events: Iterable[Event], delta: float, *, method: Method = "pld", interval: float = 1e-4
) -> float:
    """Epsilon of all events together, at `delta`.

    Args:
        events: mechanisms applied to the same samples, in any order.
        delta: in (0, 1).
        method: see the module's text.
        interval: grid of the privacy loss; every choice gives an upper bound, a finer one a
            tighter one.

    Returns:
        Epsilon >= 0; infinity if any event is unprotected, or is no mechanism (noise or rate that
        is no number, or below 0); 0 for no events.

    """
    merged = _merge(events)
    if merged is None:
        return math.inf
    if not merged:
        return 0.0
    if method == "gdp":
        return _gdp(merged, delta)
    if method == "pld":
        # Without fractional orders the bound can be many times too large, where sigma is small.
        large = _renyi(merged, delta, SCREEN) > LARGE and _renyi(merged, delta, None) > LARGE
        if not large:
            return _loss_distribution(merged, delta, interval)
    return _renyi(merged, delta, None)


Merged = tuple[tuple[float, float, int], ...]


def _merge(events: Iterable[Event]) -> Merged | None:
    """Equal events summed to sorted (q, sigma, T); full-batch Gaussians fused; None: unprotected.

    Gaussians of multipliers m_i compose exactly to one of (sum of m_i^-2)^-1/2.
    """
    precision, sampled = 0.0, defaultdict[tuple[float, float], int](int)
    for event in events:
        # Written so that NaN, too, counts as no protection.
        if isinstance(event, Unprotected) or not event.noise_multiplier > 0:
            return None
        if isinstance(event, Gaussian):
            precision += event.noise_multiplier**-2
        elif not (event.rate >= 0 and event.steps >= 0):
            return None
        elif event.rate >= 1:
            precision += event.steps * event.noise_multiplier**-2
        elif event.steps > 0 and event.rate > 0:
            sampled[event.rate, event.noise_multiplier] += event.steps
    full = ((1.0, precision**-0.5, 1),) if precision else ()
    return full + tuple((q, s, t) for (q, s), t in sorted(sampled.items()))


SCREEN = tuple(range(2, 33))
"""Renyi orders whose bound is quick; where it is below LARGE, the bound of all orders is too."""

_RELATION = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE


@lru_cache(maxsize=4096)
def _loss_distribution(merged: Merged, delta: float, interval: float) -> float:
    accountant = PLDAccountant(_RELATION, value_discretization_interval=interval)
    return float(accountant.compose(_composed(merged)).get_epsilon(delta))


@lru_cache(maxsize=4096)
def _renyi(merged: Merged, delta: float, orders: tuple[int, ...] | None) -> float:
    # The accountant warns of each order whose series does not converge; the bound holds without.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant = RdpAccountant(orders, _RELATION)
        return float(accountant.compose(_composed(merged)).get_epsilon(delta))
    finally:
        logger.setLevel(level)


def _composed(merged: Merged) -> dpa.DpEvent:
    parts = []
    for q, sigma, steps in merged:
        event: dpa.DpEvent = dpa.GaussianDpEvent(sigma)
        if q < 1:
            event = dpa.PoissonSampledDpEvent(q, event)
        parts.append(dpa.SelfComposedDpEvent(event, steps))
    return dpa.ComposedDpEvent(parts)


def _gdp(merged: Merged, delta: float) -> float:
    """Central-limit approximation: mu^2 adds up; each sampled step adds q^2 (e^(1/sigma^2) - 1)."""
    mu2 = sum(t * (s**-2 if q >= 1 else q**2 * math.expm1(min(s**-2, 700.0))) for q, s, t in merged)
    mu = math.sqrt(mu2)

    def excess(e: float) -> float:
        log_tail = e + float(norm.logcdf(-e / mu - mu / 2))
        return float(norm.cdf(-e / mu + mu / 2)) - math.exp(log_tail) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high))
