"""The one-run audit: a lower bound on epsilon from the canaries of one training.

For each of m canaries a fair coin decides whether it joins the training set. After the training
the auditor scores all m, guesses that the k+ highest were in and the k- lowest were not, and
abstains from the rest. If the training is (epsilon, delta)-private for one sample added or removed:

    P(V >= v) <= f(v) + 2 m delta max_{1 <= i <= v} (f(v - i) - f(v)) / i
    f(v) = P(Binomial(r, e^epsilon / (1 + e^epsilon)) >= v)

| symbol | name |
|---|---|
| m | number of canaries |
| r = k+ + k- | `guesses` |
| v, V | `correct`, the guesses that were right, and the same as a random variable |

Several pairs (k+, k-) share the error (a union bound). The audit can refute a claim at the stated
confidence. It cannot confirm one, nor show an epsilon above `ceiling` (with 1,000 canaries 5.6).
Two more bounds take the shape of the trade-off for granted (`attacks.epsilon.trade_off`).

Source: Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846), algorithm 1, theorem 5.2, appendix D.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import bdtrc
from torch import Tensor

from attacks.epsilon.mechanism import check_probabilities
from attacks.epsilon.trade_off import GAUSSIAN, Family, f_dp_bound, gdp_bound
from panas.data.samples import Indices, Samples
from panas.runtime.errors import BadInput

MOST = 60.0
"""No epsilon above this is ever tried; a float cannot tell it from infinity."""

STEP = 0.1
"""Of epsilon, in which p-values are scanned before they are bisected."""

C = TypeVar("C", bound="Canaries")
T = TypeVar("T")


@runtime_checkable
class Canaries(Protocol):
    """What an auditor plants: `Samples`, `gradient_canaries.DiracCanaries`, or one's own."""

    def __len__(self) -> int:
        """How many."""

    def take(self: C, indices: Indices) -> C:
        """Those at `indices`, in that order."""


def mislabelled(samples: Samples, m: int, rng: np.random.Generator) -> Samples:
    """Different samples, each with a wrong label, all wrong labels equally likely.

    Args:
        samples: m or more, of two or more classes; they must not be trained on themselves.
        m: how many canaries.
        rng: draws samples and labels; of the auditor alone.
    """
    if m > len(samples) or samples.classes < 2:
        raise BadInput(
            f"expected {m} samples or more of two or more classes, got {len(samples)} of "
            f"{samples.classes}; plant fewer canaries"
        )
    chosen = samples.take(rng.choice(len(samples), m, replace=False))
    shift = torch.from_numpy(rng.integers(1, samples.classes, m))
    return Samples(chosen.x, (chosen.y + shift) % samples.classes, samples.classes)


def random_patterns(like: Samples, m: int, rng: np.random.Generator) -> Samples:
    """Random images of black and white with random labels, which a network can only memorise.

    Args:
        like: gives shape, type and number of classes.
        m: how many canaries.
        rng: draws pixels and labels; of the auditor alone.
    """
    white = torch.from_numpy(rng.random((m, *like.shape)) < 0.5)
    y = torch.from_numpy(rng.integers(like.classes, size=m))
    if like.x.dtype == torch.uint8:
        return Samples(white.to(torch.uint8) * 255, y, like.classes)
    return Samples(2 * white.float() - 1, y, like.classes)


@dataclass(frozen=True, kw_only=True)
class OneRunConfig:
    """What is claimed, and how it is tested."""

    delta: float
    """Of the claim, in [0, 1)."""
    claim: float = math.inf
    """Epsilon at `delta`, for one sample added or removed; infinity if none is claimed."""
    confidence: float = 0.95
    """Least probability that a true claim is not refuted, in (0, 1)."""
    guesses: Sequence[tuple[int, int]] | None = None
    """Pairs (k+, k-), fixed before the scores are seen. None: a tenth of the canaries each, good
    for a noisy training, and half of them each, good for one without protection."""
    family: Family = GAUSSIAN
    """What `OneRunAudit.f_dp` takes for granted of the training."""

    def pairs(self, m: int) -> Sequence[tuple[int, int]]:
        """The pairs that are tried on m canaries."""
        tenth = (max(1, m // 10),) * 2
        return self._checked(self.guesses or (tenth, (m // 2,) * 2), m)

    def f_dp_pairs(self, m: int) -> Sequence[tuple[int, int]]:
        """The pairs of `OneRunAudit.f_dp`: a tenth each, or those that were given."""
        return self._checked(self.guesses or ((max(1, m // 10),) * 2,), m)

    @staticmethod
    def _checked(tried: Sequence[tuple[int, int]], m: int) -> Sequence[tuple[int, int]]:
        for k in tried:
            if min(k) < 0 or not 0 < sum(k) <= m:
                raise BadInput(f"expected pairs (k+, k-) of 1 to {m} guesses, got {k}; guess less")
        return tried


@dataclass(frozen=True, kw_only=True)
class OneRunAudit:
    """What the canaries of one training tell."""

    lower_bound: float  # epsilon is at least this, 0 or more, at `delta`; assumes nothing
    f_dp: float  # the same, where the training's trade-off is of `config.family`
    gdp: float  # the same, were the trade-off Gaussian *and* all canaries independent
    ceiling: float  # the bound if every guess were right
    canaries: int
    guesses: int  # r of the pair (k+, k-) that gave the bound
    correct: int  # v of the same pair
    config: OneRunConfig

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at the stated confidence and without any assumption."""
        return self.lower_bound > self.config.claim


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
        train: trains once on its own data and the canaries it is given; what the adversary sees.
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
    """The best bound of all pairs, from the scores of canaries and the coins that chose them.

    For an (epsilon, delta)-private training it exceeds epsilon with probability at most 1 -
    confidence.

    Args:
        scores: higher means rather in; may be infinite. Of equal ones the later ranks higher, so
            that their order must not tell the coins.
        included: the coins: fair, independent and unknown to the one who scored.
        config: delta, confidence, and which numbers of guesses are tried.
    """
    scores, included = torch.as_tensor(scores).detach().cpu(), torch.as_tensor(included).cpu()
    m = len(scores)
    if m < 2 or len(included) != m or bool(scores.isnan().any()):
        raise BadInput(
            "expected a score for each of two or more canaries, all numbers, and as many coins, "
            f"got {m} and {len(included)}; plant more, and see that no score is NaN"
        )
    order = scores.argsort(stable=True)

    def right(pair: tuple[int, int]) -> int:
        ins, outs = pair
        return int(included[order[m - ins :]].sum()) + int((~included[order[:outs]]).sum())

    tried, shaped = config.pairs(m), config.f_dp_pairs(m)
    level, shaped_level = (1 - (1 - config.confidence) / len(t) for t in (tried, shaped))
    results = [
        (epsilon_bound(m, sum(k), right(k), config.delta, level), sum(k), right(k)) for k in tried
    ]
    bound, r, v = max(results)
    return OneRunAudit(
        lower_bound=bound,
        f_dp=max(
            f_dp_bound(
                m, sum(k), right(k), config.delta, family=config.family, confidence=shaped_level
            )
            for k in shaped
        ),
        gdp=gdp_bound(scores.numpy(), included.numpy(), config.delta, config.confidence),
        ceiling=max(epsilon_bound(m, sum(k), sum(k), config.delta, level) for k in tried),
        canaries=m,
        guesses=r,
        correct=v,
        config=config,
    )


@cache
def epsilon_bound(m: int, r: int, v: int, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon, 0 or more, below which every p-value is less than 1 - confidence.

    Args:
        m: canaries, at least 2.
        r: guesses, 0 to m.
        v: right guesses, 0 to r.
        delta: of the training, in [0, 1).
        confidence: that the training's epsilon is not below the bound, in (0, 1).
    """
    check_probabilities(delta, confidence)

    def refuted(epsilon: float) -> bool:
        return p_value(m, r, v, epsilon, delta) < 1 - confidence

    # The part of delta does not always grow with epsilon: from below, no crossing is jumped.
    if not refuted(low := 0.0):
        return 0.0
    while low < MOST and refuted(low + STEP):
        low += STEP
    high = low + STEP
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of as many right guesses under (epsilon, delta)-privacy.

    Args:
        m: canaries.
        r: guesses, 0 to m.
        v: right guesses or more, 0 to r.
        epsilon: 0 or more.
        delta: in [0, 1).
    """
    if not 0 <= v <= r <= m:
        raise BadInput(f"expected 0 <= right <= guesses <= canaries, got {v}, {r} and {m}")
    q = 1 / (1 + math.exp(-epsilon))
    f = bdtrc(v - 1, r, q)
    i = np.arange(1, v + 1)
    slopes = (bdtrc(v - i - 1, r, q) - f) / i
    return float(min(1.0, f + 2 * m * delta * slopes.max(initial=0.0)))
