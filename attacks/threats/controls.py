"""Controls: what an attack must be compared with before its error means anything.

| control | what it shows |
|---|---|
| mean image | the mean public image for everyone: R^2 = 0 by definition |
| same-class mean | the mean public image of the sample's class: what a label alone reveals |
| held-out class mean | the same, with samples of the site that no release was made of |
| leaked mean, class mean, regression | guesses from the samples that leaked, and public ones |
| others' mean, class mean, regression | guesses from all samples of the site but the one guessed |
| unrelated image | a public image drawn at random: what a sharp but wrong picture scores |
| shuffled | the attack's reconstructions, each given to a sample of another class |
| random extractor | the attacks on raw rows of an untrained bottom: what architecture alone leaks |
| ceiling | the attacks on noiseless raw rows of what made the release: as the paper's release |

The first five are *blind*: they use no release. An attack that does not beat those of its own
knowledge (`blind_to`) shows no leak. docs/explanation/audits.md says how to read the others; none
decides a verdict. The ceiling neither makes a leak nor excuses one: it and the attacks are the best
of a few inverters, and a release may hold what those rows do not.

Blind guesses of x, a sample of class c, from labels and known samples:

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

Source: James and Stein 1961 (shrinkage); Kasiviswanathan and Smith 2014 (what a sample's absence
would have told is no leak); Balle et al. 2022 (an adversary that knows all others).
"""

import copy
import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attacks.threats.observation import (
    LeakedPairs,
    Observation,
    Representation,
    WhiteBox,
    class_means,
    rows_of,
)
from panas.architecture.network import Bottom, initialise
from panas.data.samples import Samples, concat
from panas.runtime.seeds import torch_generator

STRENGTHS = ((0.0, 10.0, 100.0), (0.0, 1.0, 4.0, 16.0, 64.0, math.inf))
"""Candidates for s and t, in samples."""

GUESSES = ("mean", "class mean", "regression")

BATCH = 512  # samples that are summed at a time


def _rules(
    public: Samples, known: Samples, others: Samples | None
) -> dict[str, tuple[Float[Tensor, "classes p"], float, float]]:
    """Base, s and t of each guess; those of the regression by leaving out each known sample."""
    zero = torch.zeros(public.classes, math.prod(public.shape), dtype=torch.float64)
    means = class_means(public.inputs().flatten(1).double(), public)
    x, y = known.inputs().flatten(1).double(), known.y
    best, lowest = (zero, 0.0, math.inf), math.inf
    for base in (zero, means):
        sums, own = _Sums.of(base, known, others), x - base[y]
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
    def of(cls, base: Float[Tensor, "classes p"], *sets: Samples | None) -> "_Sums":
        total = cls(torch.zeros_like(base), torch.zeros(len(base), dtype=torch.float64))
        for samples in (s for s in sets if s is not None):
            sums = torch.zeros_like(base)
            for at in torch.arange(len(samples)).split(BATCH):
                x, y = samples.inputs(at).flatten(1).double(), samples.y[at]
                sums.index_add_(0, y, x - base[y])
            total = cls(total.sums + sums, total.counts + samples.histogram().double())
        return total

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


PUBLIC = ("mean image", "same-class mean", "held-out class mean")
OTHERS = tuple(f"others' {name}" for name in GUESSES)
LEAKED = tuple(f"leaked {name}" for name in GUESSES)

BLIND = (*PUBLIC, *OTHERS)
"""Controls of every attack that know nothing of the release."""


def blind_to(threat: str | None) -> tuple[str, ...]:
    """The controls that know what a threat knows besides the release."""
    return (*BLIND, *LEAKED) if threat == LeakedPairs.name else BLIND


def mean_image(public: Samples) -> Float[Tensor, "c h w"]:
    """The mean public image."""
    return public.inputs().mean(0)


def same_class_mean(public: Samples, y: Int[Tensor, "n"]) -> Float[Tensor, "n c h w"]:
    """For each label the mean public image of its class, or of all where the public has none."""
    return class_means(public.inputs(), public)[y]


def held_out_class_mean(
    public: Samples, held_out: Samples, y: Int[Tensor, "n"]
) -> Float[Tensor, "n c h w"]:
    """For each label the mean image of its class, of public and held-out samples together.

    Args:
        public: samples that anybody may see.
        held_out: the site's test samples.
        y: classes to guess for.
    """
    return same_class_mean(concat([replace(s, groups=None) for s in (public, held_out)]), y)


def by_others(
    public: Samples, samples: Samples, others: Samples | None
) -> dict[str, Float[Tensor, "n c h w"]]:
    """Each sample as all others of its site have it.

    Args:
        public: samples that anybody may see.
        samples: the ones to guess, each by the rest of them.
        others: further samples of the site; None for none.
    """
    images, y = {}, samples.y
    for name, (base, s, t) in _rules(public, samples, others).items():
        own = samples.inputs().flatten(1).double() - base[y]
        guess = _Sums.of(base, samples, others).guess(base[y], y, s, t, own)
        images[f"others' {name}"] = guess.float().unflatten(1, public.shape)
    return images


def by_leaked(
    public: Samples, leaked: Samples, y: Int[Tensor, "n"]
) -> dict[str, Float[Tensor, "n c h w"]]:
    """For each label what leaked samples, and public ones, say of its class.

    Args:
        public: samples that anybody may see.
        leaked: private ones that the attacker has.
        y: classes to guess for.
    """
    images = {}
    for name, (base, s, t) in _rules(public, leaked, None).items():
        guess = _Sums.of(base, leaked).guess(base[y], y, s, t, None)
        images[f"leaked {name}"] = guess.float().unflatten(1, public.shape)
    return images


def unrelated_image(
    public: Samples, n: int, *, rng: np.random.Generator
) -> Float[Tensor, "n c h w"]:
    """Public images, drawn at random with replacement.

    Args:
        public: at least one.
        n: how many.
        rng: draws them.
    """
    return public.inputs(rng.integers(len(public), size=n))


def shuffled(
    images: Float[Tensor, "n c h w"], y: Int[Tensor, "n"], *, rng: np.random.Generator
) -> Float[Tensor, "n c h w"]:
    """Give each sample the reconstruction of a random sample of another class, if there is one.

    In a release of sums a class shares an image, and samples of one class resemble one another.

    Args:
        images: reconstructions, one a sample.
        y: classes of the samples.
        rng: draws the partners.
    """
    labels = y.numpy()
    partner = rng.permutation(len(labels))
    for c in np.unique(labels):
        others = np.flatnonzero(labels != c)
        if len(others):
            partner[labels == c] = rng.choice(others, int((labels == c).sum()))
    return images[torch.from_numpy(partner)]


def raw_rows(
    observation: Observation[WhiteBox], private: Samples, representation: Representation
) -> Observation[WhiteBox]:
    """What the server would see, had the site sent noiseless representations.

    Args:
        observation: what it really saw; all but the release stays.
        private: the site's samples, which are represented.
        representation: what made the release: a bottom, or the common map.
    """
    arrays = {"z": rows_of(representation, private), "y": private.y}
    return replace(
        observation,
        kind="raw_rows",
        arrays=arrays,
        noise_multiplier=None,
        knowledge=WhiteBox(representation),
    )


def random_extractor(bottom: Bottom, *, rng: np.random.Generator) -> Bottom:
    """An untrained bottom of the same architecture."""
    fresh = copy.deepcopy(bottom)
    initialise(fresh, torch_generator(rng))
    return fresh
