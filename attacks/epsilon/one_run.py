"""The one-run audit: a lower bound on epsilon from the canaries of one training.

For each of m canaries a fair coin decides whether it joins the training set. After the training
the auditor scores all m, guesses that the k+ highest were in and the k- lowest were not, and
abstains from the rest. Were the training (epsilon, delta)-private for one sample added or removed,
no auditor would guess better than randomised response, which is right with probability
e^epsilon / (1 + e^epsilon), but for what delta allows:

    P(V >= v) <= f(v) + 2 m delta max_{1 <= i <= v} (f(v - i) - f(v)) / i
    f(v) = P(Binomial(r, e^epsilon / (1 + e^epsilon)) >= v)

| symbol | name |
|---|---|
| m | number of canaries |
| r = k+ + k- | `guesses` |
| v | `correct`, the guesses that were right |
| V | the same as a random variable |

A bound holds whatever the score is and whatever else the network was trained on. Of several pairs
(k+, k-) each answers for its share of the error (a union bound).

It shows that a claim is false, at the stated confidence. It cannot show that one is true, nor an
epsilon above `ceiling` (with 1,000 canaries 5.6). Black-box canaries hardly ever reach a DP-SGD's
claim; `attacks.epsilon.gradient_canaries` come nearer.

Source: Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846), algorithm 1, theorem 5.2, appendix D.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import bdtrc
from torch import Tensor

from attacks.epsilon.canaries import Canaries
from panas.runtime.errors import BadInput

MOST = 60.0
"""No epsilon above this is ever tried; a float cannot tell it from infinity."""

STEP = 0.1
"""Of epsilon, in which p-values are scanned before they are bisected."""


C = TypeVar("C", bound=Canaries)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OneRunAudit:
    """What the canaries of one training tell.

    Attributes:
        lower_bound: epsilon is at least this, 0 or more, at `delta`.
        ceiling: the bound if every guess were right.
        canaries: m.
        guesses: r of the pair (k+, k-) that gave the bound.
        correct: v of the same.
        confidence: probability that a true claim is not refuted, in (0, 1).
        delta: of the claim that is tested, in [0, 1).
        claim: epsilon that is claimed; infinity if none is.

    """

    lower_bound: float
    ceiling: float
    canaries: int
    guesses: int
    correct: int
    confidence: float
    delta: float
    claim: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at the stated confidence."""
        return self.lower_bound > self.claim


@dataclass(frozen=True, kw_only=True)
class OneRunConfig:
    """What is claimed, and how it is tested.

    Attributes:
        delta: of the claim, in [0, 1).
        claim: epsilon at `delta`, for one sample added or removed; infinity if none is claimed.
        confidence: in (0, 1).
        guesses: pairs (k+, k-) that are tried, fixed before the scores are seen; None: a tenth of
            the canaries each, and half of them each: good for a noisy training, and for one
            without protection.

    """

    delta: float
    claim: float = math.inf
    confidence: float = 0.95
    guesses: Sequence[tuple[int, int]] | None = None

    def pairs(self, m: int) -> Sequence[tuple[int, int]]:
        """The pairs that are tried on m canaries.

        Raises:
            BadInput: if one guesses nothing, or more than there are.

        """
        tried = self.guesses or ((max(1, m // 10),) * 2, (m // 2,) * 2)
        for k in tried:
            if min(k) < 0 or not 0 < sum(k) <= m:
                raise BadInput(f"expected pairs (k+, k-) of 1 to {m} guesses, got {k}; guess less")
        return tried


def audit_training(
    train: Callable[[C], T],
    canaries: C,
    score: Callable[[T, C], Float[Tensor, "m"]],
    config: OneRunConfig,
    *,
    rng: np.random.Generator,
) -> OneRunAudit:
    """Audit a training with one run of it; see `audit_scores`.

    Args:
        train: trains once on its own data and the canaries it is given, and gives what the
            adversary sees of the result, say a callable from images to logits.
        canaries: m of them; they count as samples of the training set.
        score: of each canary, from what the adversary sees; higher means rather in.
        config: what is claimed, and how it is tested.
        rng: of the coins; nobody else may know its draws.

    """
    included = torch.from_numpy(rng.random(len(canaries)) < 0.5)
    seen = train(canaries.take(included.nonzero().flatten()))
    return audit_scores(score(seen, canaries), included, config)


def audit_scores(
    scores: Float[Tensor, "m"], included: Bool[Tensor, "m"], config: OneRunConfig
) -> OneRunAudit:
    """A lower bound on epsilon from the scores of canaries and the coins that chose them.

    Args:
        scores: one a canary; infinite ones are welcome. Of equal ones the later canary ranks
            higher, so that their order must not tell the coins.
        included: the coins: fair, independent, and unknown to whoever scored.
        config: what is claimed, and how it is tested.

    Returns:
        The best bound of all pairs. For an (epsilon, delta)-private training it exceeds epsilon
        with probability at most 1 - confidence.

    Raises:
        BadInput: for fewer than 2 canaries, a score that is no number, or numbers out of range.

    """
    scores, included = scores.detach().cpu(), included.cpu()
    m = len(scores)
    if m < 2 or len(included) != m or bool(scores.isnan().any()):
        raise BadInput(
            "expected a score for each of two or more canaries, all numbers, and as many coins, "
            f"got {m} and {len(included)}; plant more, and see that no score is NaN"
        )
    tried, order = config.pairs(m), scores.argsort(stable=True)
    level = 1 - (1 - config.confidence) / len(tried)
    found = []
    for ins, outs in tried:
        r = ins + outs
        v = int(included[order[m - ins :]].sum()) + int((~included[order[:outs]]).sum())
        found.append((epsilon_bound(m, r, v, config.delta, level), r, v))
    bound, r, v = max(found)
    return OneRunAudit(
        lower_bound=bound,
        ceiling=max(epsilon_bound(m, sum(k), sum(k), config.delta, level) for k in tried),
        canaries=m,
        guesses=r,
        correct=v,
        confidence=config.confidence,
        delta=config.delta,
        claim=config.claim,
    )


@cache
def epsilon_bound(m: int, r: int, v: int, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon, 0 or more, below which every p-value is less than 1 - confidence.

    Args as of `p_value`; confidence in (0, 1).
    """
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise BadInput(
            f"expected delta in [0, 1) and confidence in (0, 1), got {delta} and {confidence}; "
            "give probabilities"
        )

    def refuted(epsilon: float) -> bool:
        return p_value(m, r, v, epsilon, delta) < 1 - confidence

    # The part of delta does not always grow with epsilon: from below, no crossing is jumped.
    low = 0.0
    if not refuted(low):
        return 0.0
    while low < MOST and refuted(low + STEP):
        low += STEP
    high = low + STEP
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of v or more right of r guesses on m canaries.

    0 <= v <= r <= m; the claim is (epsilon, delta), with epsilon >= 0 and delta in [0, 1).
    """
    if not 0 <= v <= r <= m:
        raise BadInput(f"expected 0 <= right <= guesses <= canaries, got {v}, {r} and {m}")
    q = 1 / (1 + math.exp(-epsilon))
    f = bdtrc(v - 1, r, q)
    i = np.arange(1, v + 1)
    slopes = (bdtrc(v - i - 1, r, q) - f) / i
    return float(min(1.0, f + 2 * m * delta * slopes.max(initial=0.0)))
