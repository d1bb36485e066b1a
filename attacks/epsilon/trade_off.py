"""Bounds on epsilon from one training that use the shape of a mechanism's trade-off.

`attacks.epsilon.one_run` grants the auditor no more than (epsilon, delta), which few mechanisms
exhaust. A Gaussian mechanism of epsilon 8 at delta 1e-5 is far more private at every other delta.
Two bounds make use of that; each says what it takes for granted.

| bound | takes for granted |
|---|---|
| `f_dp_bound` | the mechanism's trade-off is of the named `Family`, of unknown strength |
| `gdp_bound` | the trade-off is Gaussian, *and* canaries' scores are independent draws |

**f-DP.** g(P) is the least probability of an event without a canary, of probability P with it. Of m
canaries the auditor guesses r; let p_j be the probability that j guesses are right, and

    R_i = sum_{j >= i} j p_j / m,    W_i = sum_{j >= i} (r - j) p_j / m

the probabilities that a random canary is guessed right (wrong) and i or more guesses are right.
Turning a canary's coin turns its guess from right to wrong, hence W_{i-1} >= g(R_i). From P(V >= v)
= error, the rule gives the least W_{v-1}, and so R_{v-1}, down to i = 0. Where R_0 + W_0 > r / m,
all probabilities would add up to more than 1: so many right guesses are rarer than the error.

| symbol | name |
|---|---|
| g | `Least`, of a `Family` at a strength |
| r, v | `guesses`, `correct` |
| R, W | `right`, `wrong` |

With all guesses right and pure epsilon-privacy this is the binomial tail of `one_run`; with few
right it is looser. Sources: Mahloujifar, Melis and Chaudhuri 2024 (arXiv 2410.22235), algorithm 3;
Dong, Roth and Su 2022 (Gaussian trade-offs); Nasr et al. 2023 (audits that assume one).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr, ndtri

from attacks.epsilon.mechanism import check_probabilities
from attacks.statistics import lower_bounds, upper_bounds
from panas.privacy.accounting.closed_form import gaussian_epsilon
from panas.privacy.accounting.epsilon import epsilon as epsilon_of
from panas.privacy.accounting.events import ADD_OR_REMOVE, SampledGaussian, merge
from panas.privacy.accounting.pld import loss_distribution, profile
from panas.runtime.errors import BadInput

Least = Callable[[float], float]
"""g: from an event's probability with a canary to the least one without it."""

GRID, REACH = 2e-3, 20.0
"""Of privacy losses, and the largest epsilon at which a trade-off is read from them."""

RANKS = (0.05, 0.2, 0.5)
"""Shares of the canaries left out above the thresholds of `gdp_bound`, fixed beforehand."""

WEAKEST, STRONGEST, HALVINGS = 1 / 16, 32.0, 20
"""Where a strength is sought, and how finely."""


@runtime_checkable
class Family(Protocol):
    """Mechanisms whose trade-offs have one shape; a larger strength protects less."""

    def __hash__(self) -> int:
        """Bounds are remembered by family."""

    @property
    def name(self) -> str:
        """What a bound takes for granted, in words."""

    def least(self, strength: float) -> Least:
        """g of the mechanism of this strength, above 0."""

    def epsilon(self, strength: float, delta: float) -> float:
        """Epsilon of the mechanism of this strength, at delta in [0, 1)."""


@dataclass(frozen=True)
class GaussianFamily:
    """Gaussian mechanisms: the strength is mu, the shift in standard deviations of the noise."""

    name: str = "a Gaussian trade-off"

    def least(self, strength: float) -> Least:
        """Phi(Phi^-1(P) - mu)."""
        return lambda p: float(ndtr(ndtri(p) - strength))

    def epsilon(self, strength: float, delta: float) -> float:
        """In closed form; infinite at a delta of 0."""
        return gaussian_epsilon(strength, delta) if delta else math.inf


GAUSSIAN = GaussianFamily()


@dataclass(frozen=True)
class SampledFamily:
    """DP-SGD at this rate and number of steps: the strength is 1 / sigma."""

    rate: float  # of Poisson sampling, in (0, 1]
    steps: int

    @property
    def name(self) -> str:
        """What is taken for granted."""
        return f"the trade-off of {self.steps} steps of DP-SGD at a rate of {self.rate:g}"

    def _event(self, strength: float) -> SampledGaussian:
        return SampledGaussian(self.rate, 1 / strength, self.steps)

    def least(self, strength: float) -> Least:
        """By the privacy loss distribution."""
        return _least_of(self._event(strength))

    def epsilon(self, strength: float, delta: float) -> float:
        """As the ledger charges it; infinite at a delta of 0."""
        return epsilon_of([self._event(strength)], delta, interval=GRID) if delta else math.inf


@dataclass(frozen=True)
class AnyFamily:
    """All (epsilon, delta)-private mechanisms: the strength is epsilon. It assumes no shape."""

    delta: float
    name: str = "nothing"

    def least(self, strength: float) -> Least:
        """The two lines of (epsilon, delta)."""
        grown, d = math.exp(strength), self.delta
        return lambda p: max(0.0, (p - d) / grown, 1 - d - grown * (1 - p))

    def epsilon(self, strength: float, delta: float) -> float:
        """The strength itself, at the family's delta alone."""
        if delta != self.delta:
            raise BadInput(f"expected delta {self.delta}, got {delta}; make a family for it")
        return strength


@lru_cache(maxsize=256)
def _least_of(event: SampledGaussian) -> Least:
    """g from the losses: P <= e^epsilon Q + delta, and the same of the opposite event."""
    merged = merge([event], ADD_OR_REMOVE, 1)
    assert merged is not None
    e = np.linspace(0.0, REACH, 401)
    deltas = profile(loss_distribution(merged, GRID), e)
    grown, shrunk = np.exp(e), np.exp(-e)

    def least(p: float) -> float:
        lines = np.maximum(shrunk * (p - deltas), 1 - deltas - grown * (1 - p))
        return max(0.0, float(lines.max()))

    return least


def is_refuted(m: int, guesses: int, correct: int, least: Least, error: float) -> bool:
    """Whether as many right guesses have a probability below `error` under a trade-off.

    Args:
        m: canaries, at least 1.
        guesses: r, 1 to m.
        correct: v, 0 to r.
        least: g of the trade-off, the same in both directions.
        error: in (0, 1).
    """
    if not 0 <= correct <= guesses <= m or guesses < 1:
        raise BadInput(
            f"expected 0 <= right <= guesses <= canaries, got {correct}, {guesses} and {m}; "
            "count again"
        )
    right, wrong = error * correct / m, error * (guesses - correct) / m
    for i in range(correct - 1, -1, -1):
        needed = least(right)
        if needed <= wrong:
            return False  # no more is needed from here on
        right += i / (guesses - i) * (needed - wrong)
        wrong = needed
        if right + wrong > guesses / m:
            return True
    return False


@cache
def f_dp_bound(
    m: int, guesses: int, correct: int, delta: float, *, family: Family, confidence: float = 0.95
) -> float:
    """A lower bound on epsilon, 0 or more, for the mechanisms of a family.

    Of a mechanism with this family's shape it exceeds epsilon with probability at most 1 -
    confidence. Of another shape it may be too large.

    Args:
        m: canaries, included or not by fair coins.
        guesses: r, 1 to m, chosen by rank beforehand.
        correct: v, 0 to r.
        delta: at which epsilon is stated, in [0, 1).
        family: what is taken for granted.
        confidence: in (0, 1).
    """
    check_probabilities(delta, confidence)

    def refuted(strength: float) -> bool:
        return is_refuted(m, guesses, correct, family.least(strength), 1 - confidence)

    if not refuted(WEAKEST):
        return 0.0
    low = WEAKEST
    while low < STRONGEST and refuted(2 * low):
        low *= 2
    high = 2 * low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return family.epsilon(low, delta)


def gdp_bound(
    scores: Float[np.ndarray, "m"],
    included: Bool[np.ndarray, "m"],
    delta: float,
    confidence: float = 0.95,
) -> float:
    """A lower bound on epsilon, 0 or more, were canaries independent and the trade-off Gaussian.

    mu is at least Phi^-1(TPR) - Phi^-1(FPR) at each threshold. Thresholds are scores of canaries
    left out, of `RANKS` fixed beforehand; all bounds (Clopper and Pearson) share the error. Scores
    of one training may depend on each other, so that this refutes no claim by itself.

    Args:
        scores: higher means rather in; never NaN.
        included: the coins.
        delta: at which epsilon is stated, in [0, 1).
        confidence: in (0, 1).
    """
    check_probabilities(delta, confidence)
    ins, outs = scores[included], np.sort(scores[~included])[::-1]
    if min(len(ins), len(outs)) < 2:
        return 0.0
    above = np.unique((np.array(RANKS) * len(outs)).astype(int))
    hits = (ins[:, None] > outs[above]).sum(0)
    error = (1 - confidence) / (2 * len(above))
    found, false = lower_bounds(hits, len(ins), error), upper_bounds(above, len(outs), error)
    mu = float((ndtri(found) - ndtri(false)).max())
    return GAUSSIAN.epsilon(mu, delta) if mu > 0 else 0.0
