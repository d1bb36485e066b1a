"""Blind guesses: what labels and known samples say of a sample that nobody looked at.

| guess | x of a sample of class c |
|---|---|
| mean | the mean of the known samples |
| class mean | of those of class c; the mean where none is |
| regression | b_c + a d + v (d_c - d), of x on site and class, shrunk |

| symbol | name |
|---|---|
| b_c | `base`: the mean public sample of class c, or 0 |
| d, d_c | mean of x - b over the known samples, and over those of class c |
| n, n_c | their numbers |
| a = n / (n + s), v = n_c / (n_c + t) | shrinkage; s and t (`STRENGTHS`) are chosen by the error |
| | on known samples, each left out of its own guess |

Regression holds the others as limits, so that it follows a site whose mean, classes or spread
differ from the public ones. Known are a few leaked samples, or *all others*: every sample of the
site but the one that is guessed. The second is what anybody could say of a sample that had not
taken part; more than that can only come from the sample itself.

Source: James and Stein 1961 (shrinkage); Kasiviswanathan and Smith 2014 (what a sample's absence
would have told is no leak); Balle et al. 2022 (an adversary that knows all others).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attacks.threats.observation import class_means
from panas.data.samples import Samples

STRENGTHS = ((0.0, 10.0, 100.0), (0.0, 1.0, 4.0, 16.0, 64.0, math.inf))
"""Candidates for s and t, in samples."""

GUESSES = ("mean", "class mean", "regression")

BATCH = 512  # samples that are summed at a time


def from_known(
    public: Samples, known: Samples, y: Int[Tensor, "m"]
) -> dict[str, Float[Tensor, "m c h w"]]:
    """Guesses of samples with labels y from public and known samples, of which they are none."""
    found = {}
    for name, (base, s, t) in _rules(public, known, None).items():
        guess = _Sums.of(known, base).guess(base[y], y, s, t, None)
        found[name] = guess.float().unflatten(1, public.shape)
    return found


def from_all_others(
    public: Samples, samples: Samples, others: Samples | None
) -> dict[str, Float[Tensor, "m c h w"]]:
    """Guesses of each of some samples from public ones, `others`, and the rest of `samples`."""
    found, y = {}, samples.y
    for name, (base, s, t) in _rules(public, samples, others).items():
        own = samples.inputs().flatten(1).double() - base[y]
        guess = _Sums.of_both(samples, others, base).guess(base[y], y, s, t, own)
        found[name] = guess.float().unflatten(1, public.shape)
    return found


def _rules(
    public: Samples, known: Samples, others: Samples | None
) -> dict[str, tuple[Float[Tensor, "classes p"], float, float]]:
    """Base, s and t of each guess; those of the regression by leaving out each known sample."""
    zero = torch.zeros(public.classes, math.prod(public.shape), dtype=torch.float64)
    means = class_means(public.inputs().flatten(1).double(), public)
    x, y = known.inputs().flatten(1).double(), known.y
    best, lowest = (zero, 0.0, math.inf), math.inf
    for base in (zero, means):
        sums, own = _Sums.of_both(known, others, base), x - base[y]
        for s, t in product(*STRENGTHS):
            # Without a base there is nothing that a mean could be drawn to.
            if s and base is zero:
                continue
            error = float((sums.guess(base[y], y, s, t, own) - x).square().sum())
            if error < lowest:
                best, lowest = (base, s, t), error
    return dict(zip(GUESSES, ((zero, 0.0, math.inf), (zero, 0.0, 0.0), best), strict=True))


@dataclass(frozen=True)
class _Sums:
    """Sums of x - b over known samples by class, and how many these are."""

    sums: Float[Tensor, "classes p"]
    counts: Float[Tensor, "classes"]

    @classmethod
    def of(cls, samples: Samples, base: Float[Tensor, "classes p"]) -> "_Sums":
        sums = torch.zeros_like(base)
        for x, y in _batches(samples):
            sums.index_add_(0, y, x - base[y])
        return cls(sums, samples.histogram().double())

    @classmethod
    def of_both(
        cls, samples: Samples, others: Samples | None, base: Float[Tensor, "classes p"]
    ) -> "_Sums":
        mine = cls.of(samples, base)
        if others is None:
            return mine
        theirs = cls.of(others, base)
        return cls(mine.sums + theirs.sums, mine.counts + theirs.counts)

    def guess(
        self,
        base: Float[Tensor, "m p"],
        y: Int[Tensor, "m"],
        s: float,
        t: float,
        own: Float[Tensor, "m p"] | None,
    ) -> Float[Tensor, "m p"]:
        """b_c + a d + v (d_c - d); `own` is of the samples themselves, which are left out."""
        total, n = self.sums.sum(0), self.counts.sum()
        by_class, n_c = self.sums[y], self.counts[y][:, None]
        if own is not None:
            total, n, by_class, n_c = total - own, n - 1, by_class - own, n_c - 1
        d, d_c = total / n.clamp(min=1), by_class / n_c.clamp(min=1)
        a = n / (n + s) if n > 0 else torch.zeros(())
        v = torch.where(n_c > 0, n_c / (n_c + t), torch.zeros_like(n_c))
        return base + a * d + v * (d_c - d)


def _batches(samples: Samples) -> Iterator[tuple[Float[Tensor, "b p"], Int[Tensor, "b"]]]:
    for at in torch.arange(len(samples)).split(BATCH):
        yield samples.inputs(at).flatten(1).double(), samples.y[at]
