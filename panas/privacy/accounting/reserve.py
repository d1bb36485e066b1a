"""Plans may be chosen by an outcome if none is worse than a reserve that was fixed before it.

A site's settings follow from its noised histogram, and decide the noise that comes after. The
price of fixed mechanisms does not cover that: whoever chooses among plans that each fit the budget,
by the outcome, gets past it. So what the histogram leaves becomes one Gaussian mechanism, before
anything is read, and every plan must stay below that.

| symbol | name |
|---|---|
| l | privacy loss of what was seen |
| delta_M(e) | privacy profile of M: the larger hockey-stick divergence of both directions |
| mu | `Reserve.mu`, of a Gaussian mechanism of multiplier 1 / mu |
| t | `Rigour.slack`, so that the far tail, where nothing happens, decides nothing |

If delta_M(e) <= delta_mu(e) + t delta at all e >= 0, then at all e, since both directions count and
delta(-e) = 1 - exp(-e) + exp(-e) delta(e). Then, whichever M was chosen by what was seen,

    E_l delta_M(epsilon - l) <= E_l delta_mu(epsilon - l) + t delta <= delta,

where the last step is the price of what was seen and the Gaussian, two fixed mechanisms.

t is of delta: where nearly all is spent, as at the end of a budget for life, it would be more than
what is left. Then a smaller one is taken, by what was spent and no outcome, with more points.

Source: Zhu, Dong and Wang 2022, theorem 10 (what dominates composes adaptively).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import ndtri

from panas.privacy.accounting.closed_form import gaussian_delta, gaussian_multiplier
from panas.privacy.accounting.epsilon import epsilon, is_large
from panas.privacy.accounting.events import ADD_OR_REMOVE, Event, Gaussian, merge
from panas.privacy.accounting.pld import loss_distribution, profile


class Rigour(NamedTuple):
    """How closely a profile is compared with its reserve."""

    slack: float  # t
    between: float  # how far a profile can rise above its reserve between two points, relatively
    points: int  # a unit of mu


RIGOURS = (Rigour(0.02, 1.01, 40), Rigour(2e-3, 1.0001, 400), Rigour(2e-4, 1.0001, 400))
"""The quickest first."""
SLACK = RIGOURS[0].slack
KEEPS = 0.98  # of mu, that a rigour must leave; else a closer one is taken
LEAST, CLOSE = 1e-3, 2e-4  # of mu that is looked for, and by how much of it one may be off

MOST = 1e6  # of an epsilon that is weighed


@dataclass(frozen=True)
class Reserve:
    """What is left after something was seen, whatever is chosen by it."""

    mu: float  # 0 or more; 0 where nothing is left
    delta: float  # of the budget
    rigour: Rigour = RIGOURS[0]

    def holds(self, events: Sequence[Event], interval: float) -> bool:
        """Whether events together are no worse; a coarser interval only refuses more."""
        merged = merge(events, ADD_OR_REMOVE, 1)
        if merged is None or merged.free or not merged.sampled:
            return merged is not None and math.sqrt(merged.precision) <= self.mu
        if self.mu <= 0 or is_large(merged, self.delta):
            return False
        points, more = self._points, self.rigour.slack * self.delta
        result = profile(loss_distribution(merged, interval), points)
        most = gaussian_delta(self.mu, points) + more
        return bool((result <= most).all()) and bool(result[-1] <= more)

    @property
    def _points(self) -> Float[np.ndarray, "k"]:
        """From 0 to where the Gaussian's profile is next to nothing."""
        slack, _, points = self.rigour
        far = self.mu**2 / 2 - self.mu * float(ndtri(slack * self.delta / 100))
        return np.arange(0.0, far + self.mu / points, self.mu / points)


@lru_cache(maxsize=256)
def reserve(seen: tuple[Event, ...], target: float, delta: float) -> Reserve:
    """The largest reserve with which what was seen costs `target` epsilon at `delta`.

    Args:
        seen: events whose outcome may choose what follows.
        target: epsilon of everything together, above 0.
        delta: of the same guarantee, in (0, 1).
    """
    whole, mu, rigour = _largest_mu(seen, target, delta), 0.0, RIGOURS[0]
    for rigour in RIGOURS:
        mu = _largest_mu(seen, target, delta * (1 - rigour.slack) / rigour.between)
        if mu >= KEEPS * whole:
            break
    return Reserve(mu, delta, rigour)


def _largest_mu(seen: tuple[Event, ...], target: float, delta: float) -> float:
    """Of a Gaussian that composes with what was seen to `target` at `delta`; 0 if none does."""
    interval = min(1e-3, target / 2000)

    def excess(log_mu: float) -> float:
        both = [*seen, Gaussian(math.exp(-log_mu))]
        return min(epsilon(both, delta, interval=interval), 2 * target + 1) - target

    low, high = math.log(LEAST), -math.log(gaussian_multiplier(min(target, MOST), delta))
    if not high > low or excess(low) > 0:
        return 0.0
    if excess(high) <= 0:
        return math.exp(high)
    result = float(brentq(excess, low, high, xtol=CLOSE / 2, rtol=1e-12))
    while result > low and excess(result) > 0:
        result -= CLOSE / 2
    return math.exp(max(result, low))
