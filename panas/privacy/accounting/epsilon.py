"""What a list of mechanisms costs together: epsilon at a given delta.

| symbol | name |
|---|---|
| q | `rate`, probability that a sample enters a Poisson batch |
| sigma, m | `noise_multiplier`, see `panas.privacy.accounting.events` |
| T | `steps` |
| k | `group`, samples that one user holds |

| method | module | what it is |
|---|---|---|
| pld | `pld`, `closed_form` | an upper bound: what is reported, and what gates |
| rdp | `rdp` | a looser upper bound |
| prv | `prv` | Opacus's upper bound, which shares no code with the others |
| gdp | `closed_form` | the central-limit approximation of DP-FNAS: no bound |

Relations are never mixed: every event is priced under the one that is asked for.
"""

import math
from collections.abc import Iterable
from importlib.metadata import version
from typing import Literal, get_args

from panas.privacy.accounting.closed_form import gaussian_epsilon, gdp_epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, Event, Merged, Relation, merge
from panas.privacy.accounting.pld import pld_epsilon
from panas.privacy.accounting.rdp import FEW_ORDERS, ORDERS, rdp_epsilon
from panas.runtime.errors import BadInput

Method = Literal["pld", "rdp", "prv", "gdp"]

ACCOUNTANT = f"dp-accounting {version('dp-accounting')} PLD"  # of the reported figures
LARGE = 100.0  # above it no guarantee is left, and RDP's quicker bound is reported


def epsilon(
    events: Iterable[Event],
    delta: float,
    *,
    method: Method = "pld",
    relation: Relation = ADD_OR_REMOVE,
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
        interval: grid of the privacy loss; any gives an upper bound, a finer one a tighter one.

    Returns:
        Epsilon >= 0; infinity if an event is unprotected or out of range; 0 for no events.

    Raises:
        BadInput: if an event has no price under this relation, or by this method.

    >>> import panas
    >>> round(panas.epsilon([panas.Gaussian(4.0), panas.Gaussian(4.0)], delta=1e-5), 2)
    1.36
    """
    if not 0 < delta < 1:
        raise BadInput(f"expected delta in (0, 1), got {delta}; give another")
    for value, known in ((method, get_args(Method)), (relation, get_args(Relation))):
        if value not in known:
            raise BadInput(f"expected one of {', '.join(known)}, got {value!r}; give another")
    if method == "prv":
        return prv_bounds(events, delta, relation=relation, group=group)[2]
    merged = merge(events, relation, group)
    if merged is None or merged.free:
        return math.inf if merged is None else 0.0
    if method == "gdp":
        _check_gaussian(merged, method)
        return gdp_epsilon(merged, delta)
    return rdp_epsilon(merged, delta) if method == "rdp" else _tightest(merged, delta, interval)


def _tightest(merged: Merged, delta: float, interval: float) -> float:
    if not merged.sampled and not merged.responses:
        # Rounded up by more than the root is off.
        return gaussian_epsilon(math.sqrt(merged.precision), delta) + 1e-9
    if is_large(merged, delta):
        return rdp_epsilon(merged, delta)
    loss = pld_epsilon(merged, delta, interval)
    # The grid rounds the few losses of a response up; Renyi's orders are exact on them.
    return min(loss, rdp_epsilon(merged, delta)) if merged.responses else loss


def is_large(merged: Merged, delta: float) -> bool:
    """Whether epsilon is so large that its exact loss, slow to compute, matters to nobody."""
    # Without fractional orders the bound can be many times too large, where sigma is small; and
    # so can the bound under replace-one.
    plain = merged._replace(relation=ADD_OR_REMOVE)
    return all(rdp_epsilon(plain, delta, orders) > LARGE for orders in (FEW_ORDERS, ORDERS))


def prv_bounds(
    events: Iterable[Event], delta: float, *, relation: Relation = ADD_OR_REMOVE, group: int = 1
) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound of epsilon by Opacus's PRV accountant.

    BadInput if the events are not Gaussian.

    Args:
        events: mechanisms applied to the same samples, in any order.
        delta: in (0, 1).
        relation: under another one than add-or-remove-one the bounds are those of a group.
        group: k, 1 to 1000; beyond 1 the lower bound is that of one, the upper one by the general
            rule.
    """
    from panas.privacy.accounting.prv import prv_epsilon  # Opacus takes seconds to import

    merged = merge(events, relation, group)
    if merged is None or merged.free:
        return (math.inf,) * 3 if merged is None else (0.0,) * 3
    _check_gaussian(merged, "prv")
    return prv_epsilon(merged, delta)


def _check_gaussian(merged: Merged, method: Method) -> None:
    if merged.responses:
        raise BadInput(f"expected Gaussian events for {method}, got others; use pld or rdp")
