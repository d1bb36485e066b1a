"""What may be chosen by an outcome: anything that is no worse than a reserve fixed beforehand.

A client's settings follow from its noised histogram, and decide the noise that comes after. The
price of fixed mechanisms does not cover that: whoever chooses among plans that each fit the budget,
by the outcome, gets past it. So what the histogram leaves becomes one Gaussian mechanism, before
anything is read, and every plan must stay below that.

| symbol | name |
|---|---|
| l | privacy loss of what was seen |
| delta_M(e) | privacy profile of M: the larger hockey-stick divergence of both directions |
| mu | `Reserve.mu`, of a Gaussian mechanism of multiplier 1 / mu |
| t | `SLACK`, so that the far tail, where nothing happens, decides nothing |

If delta_M(e) <= delta_mu(e) + t delta at all e >= 0, then at all e, since both directions count and
delta(-e) = 1 - exp(-e) + exp(-e) delta(e). Then, whichever M was chosen by what was seen,

    E_l delta_M(epsilon - l) <= E_l delta_mu(epsilon - l) + t delta <= delta,

where the last step is the price of what was seen and the Gaussian, two fixed mechanisms.

Source: Zhu, Dong and Wang 2022, theorem 10 (what dominates composes adaptively).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from panas.privacy.accounting.closed_form import gaussian_delta
from panas.privacy.accounting.epsilon import epsilon, is_large
from panas.privacy.accounting.events import ADD_OR_REMOVE, Event, Gaussian, merge
from panas.privacy.accounting.pld import loss_distribution

SLACK = 0.02  # t
BETWEEN = 1.01  # how far a profile can rise above its reserve between two points, relatively
POINTS = 40  # a unit of mu
MOST = 1e3  # of mu


@dataclass(frozen=True)
class Reserve:
    """What is left after something was seen, whatever is chosen by it."""

    mu: float  # 0 or more; 0 where nothing is left
    delta: float  # of the budget

    def holds(self, events: Sequence[Event], interval: float) -> bool:
        """Whether events together are no worse; a coarser interval only refuses more."""
        merged = merge(events, ADD_OR_REMOVE, 1)
        if merged is None or merged.free or not merged.sampled:
            return merged is not None and math.sqrt(merged.precision) <= self.mu
        if self.mu <= 0 or is_large(merged, self.delta):
            return False
        found = np.array(loss_distribution(merged, interval).get_delta_for_epsilon(self._points))
        most = gaussian_delta(self.mu, self._points) + SLACK * self.delta
        return bool((found <= most).all()) and bool(found[-1] <= SLACK * self.delta)

    @property
    def _points(self) -> Float[np.ndarray, "k"]:
        """From 0 to where the Gaussian's profile is next to nothing."""
        far = self.mu**2 / 2 - self.mu * float(norm.ppf(SLACK * self.delta / 100))
        return np.arange(0.0, far + self.mu / POINTS, self.mu / POINTS)


@lru_cache(maxsize=256)
def reserve(seen: tuple[Event, ...], target: float, delta: float) -> Reserve:
    """The largest reserve with which what was seen costs `target` epsilon at `delta`."""
    part = delta * (1 - SLACK) / BETWEEN

    def affords(mu: float) -> bool:
        interval = min(1e-3, target / 2000)
        return epsilon([*seen, Gaussian(1 / mu)], part, interval=interval) <= target

    low, high = 1e-3, MOST
    if not affords(low):
        return Reserve(0.0, delta)
    while high / low > 1.0002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if affords(middle) else (low, middle)
    return Reserve(low, delta)
