"""What a budget affords, by rule: the map's width, the one release, and DP-SGD with the rest.

What joining brings is more samples for the shared head: moments of N pooled samples under noise
are worth w N public ones (w is `trust` of `panas.training.linear.ridge`). What more samples
would bring, public labels tell: cross-validated, a head that learns from four times as many gains
twice as much as one doubling is worth. The gain of each further doubling is smaller by 2^-gamma;
a site starts from P public samples and its own n.

    gain = D / (1 - 2^-gamma) * ((P / (P + n))^gamma - (P / (P + n + w N))^gamma)

| symbol | name |
|---|---|
| P | labelled public samples |
| N | samples of all sites, K n |
| D | accuracy that a doubling of P brings, `doubling` |
| gamma | `CURVE`: errors above the best that the map allows fall with samples^-gamma |

Where the gain is large, as with few labels, hard classes or many sites, the release gets nearly
all: it is what the others need, and what makes a site's own head best, too. Where it is small, a
site that released would have less for itself and nothing in return: then nobody releases, and all
train on their own. A middle way costs points at both ends, but where noise hardly hides the pooled
moments, as of large sites and of large secure sums: there the residual makes more of a share than
the head does. `LARGE_SHARE` then gains .2 to .5 points on Fashion-MNIST, w from .75 to .9, and on
CIFAR-10 -.05 to .2; it loses .3 at .71 (`benchmarks.joining` and `joining_large`).

**Width of the map.** Noise on the moments has the same size in each coordinate, and the later a
principal axis, the less it tells of classes: the share of its variance that lies between them falls
like j^-1.5, of Gabor features as of an encoder's. So a small budget pays for few coordinates:

    d = 2.6 x^(3/4), x = N / (C S);   d >= P / 4

x is the length of a class's sum of rows over the noise S on each of its numbers. Exact moments of P
labelled public samples bear P / 4 coordinates. Scaling axes less instead (deviation^0 to -.6)
differs by less than a point once d follows this rule.

**Histogram.** What a tenth of epsilon buys at epsilon 8, a larger share buys at less; in all it
costs little, as variances add up, and a sharper prior brings 1 to 2 points at epsilon 1.

Privacy: budgets, sizes and public samples decide, and no private sample does.

**DP-SGD.** How long and how fast it trains a linear residual follows from public numbers. Chosen on
seeds 100 to 102 of Fashion-MNIST and CIFAR-10 (`benchmarks.joining`); n is a public
number near that of a site's privacy units. Rate times steps is how far it may get: as far as the
noise allows, which is in proportion to n epsilon. Over a head that all sites have made there is
little left to learn: half the passes, in larger batches, and slower.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from panas.privacy.accounting.events import Event
from panas.privacy.budget import Budget
from panas.privacy.calibration import release_multiplier
from panas.privacy.plan import TrainingSchedule
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds.moments import SENSITIVITY
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import one_thread, stream
from panas.training.linear.ridge import exact_moments, least_penalty, logits, ridge, trust

RELEASE_SHARE = 0.85  # of epsilon, where sites join
LARGE_SHARE, SURE = 0.7, 0.73
"""The same where pooled moments, at `RELEASE_SHARE`, have a w of so much."""
LEAST_GAIN = 0.025  # expected accuracy, evenly over classes, from which on they do
CURVE = 0.7
FEWEST = 100  # labelled public samples; fewer tell too little of how much there is to gain
LEAST_SIGNAL = 1.0  # x from which on they join then: noise is no longer than the sum of a class
FOLDS, REPEATS = 5, 4
AXES, PUBLIC_A_COORDINATE = 2.6, 4  # of the formula for d
NARROWEST, STEP = 8, 2  # coordinates at least, and what their number is a multiple of
HISTOGRAM, MOST_HISTOGRAM, EPSILON = 0.1, 0.3, 8.0
"""Share of epsilon for the label histogram at this epsilon, and at most at less."""


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """What is public of sites that might pool their moments."""

    sites: int  # K
    samples: int  # of one site, n, about
    classes: int
    budget: Budget  # of one site
    secure_sum: bool = False  # whether the server sees the noised sum alone, of one site's noise


def release_share(pooling: Pooling, public: Rows) -> float:
    """The share of epsilon for the release of moments; 0 where joining is not worth a release.

    `public` are the labelled public samples on the common map, or none. Equal arguments give equal
    shares.
    """
    if pooling.sites < 2:
        return 0.0
    share = LARGE_SHARE if _signal(pooling, public.z.shape[1]) >= SURE else RELEASE_SHARE
    if len(public.y) < FEWEST:
        return share if _class_signal(pooling) >= LEAST_SIGNAL else 0.0
    return share if expected_gain(pooling, public) >= LEAST_GAIN else 0.0


def map_width(pooling: Pooling, labelled: int, most: int) -> int:
    """d, coordinates of the common map, from public facts alone.

    Args:
        pooling: of the sites; `samples` is a planning value that all parties have.
        labelled: P, labelled public samples.
        most: coordinates at most, which a federation without noise has.
    """
    if not pooling.budget.private:
        return most
    signal = _class_signal(pooling)
    # Roots alone: they are rounded alike on all machines, and powers are not.
    wide = AXES * math.sqrt(signal) * math.sqrt(math.sqrt(signal))
    coarse = STEP * round(max(wide, labelled / PUBLIC_A_COORDINATE) / STEP)
    return max(min(coarse, most), min(NARROWEST, most))


def _class_signal(pooling: Pooling) -> float:
    """x: the pooled samples of a class over the noise S; 0 where the budget affords no release."""
    try:
        noise = math.sqrt(_variance(pooling))
    except BudgetExhausted:
        return 0.0
    return pooling.sites * pooling.samples / (pooling.classes * noise)


def histogram_share(epsilon: float) -> float:
    """Share of epsilon for the label histogram of a site that joins: .1 from epsilon 8 on."""
    return min(MOST_HISTOGRAM, HISTOGRAM * math.sqrt(max(1.0, EPSILON / epsilon)))


def expected_gain(pooling: Pooling, public: Rows) -> float:
    """Accuracy that joining is expected to bring a site's head, evenly over classes, in [0, 1]."""
    known = len(public.y)
    worth = _signal(pooling, public.z.shape[1]) * pooling.sites * pooling.samples
    start = known + pooling.samples
    left = (known / start) ** CURVE - (known / (start + worth)) ** CURVE
    return doubling(public, pooling.classes) * left / (1 - 2**-CURVE)


def _signal(pooling: Pooling, width: int) -> float:
    """w: the share of signal in the pooled moments of so many coordinates."""
    return trust(_variance(pooling), width, float(pooling.sites * pooling.samples))


def _variance(pooling: Pooling) -> float:
    """S^2, of the noise on each number of the pooled B."""
    s = SENSITIVITY * release_multiplier(pooling.budget, 1, RELEASE_SHARE)
    return s**2 * (1 if pooling.secure_sum else pooling.sites)


def doubling(public: Rows, classes: int) -> float:
    """Held-out accuracy that a head gains, in [0, 1], where its public samples double."""
    rng, gains = stream(0, "release share"), []
    with one_thread():
        for _ in range(REPEATS):
            parts = torch.from_numpy(rng.permutation(len(public.y))).tensor_split(FOLDS)
            for held in range(FOLDS):
                rest = torch.cat([part for i, part in enumerate(parts) if i != held])
                few, many = (
                    _right(public, rest[:k], parts[held], classes)
                    for k in (len(rest) // 4, len(rest))
                )
                gains.append((many - few) / 2)  # two doublings
    return max(0.0, sum(gains) / len(gains))


def _right(public: Rows, train: Int[Tensor, "m"], held: Int[Tensor, "k"], classes: int) -> float:
    learnt = exact_moments(public.z[train], public.y[train], classes)
    answers = logits(ridge(learnt, least_penalty(len(public.y))), public.z[held]).argmax(1)
    return float((answers == public.y[held]).double().mean())


SLOWEST, FASTEST = 0.25, 8.0
FEW = 500  # units below which a batch holds all of them
SMALLER, LONGEST = 4.0, 16.0
"""Times that batches get smaller, and steps more, at most, where a rate would not be stable."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of DP-SGD for a linear residual."""

    epochs: int
    batch_size: int
    learning_rate: float
    clip: float = 1.0


def joined_recipe(n: int, epsilon: float, share: float = RELEASE_SHARE) -> Recipe:
    """Over the shared head, with what a release of this share has left of epsilon.

    Args:
        n: privacy units that train at the site, at least 1; public, or noised.
        epsilon: of the site's whole budget, above 0.
        share: of epsilon that its release has, in [0, 1).
    """
    x, left = n * epsilon / 2400, 1 - share**2
    rate = 2 * max(math.sqrt(x), 2.7 * left * x)
    return _stable(n, rate, epochs=24, batches=1 if n < FEW else 2)


def alone_recipe(n: int, epsilon: float) -> Recipe:
    """Over the public head or nothing, with all of epsilon: the best that a site does by itself."""
    return _stable(n, n * epsilon / 600, epochs=48, batches=2)


def residual_schedule(
    n: int, recipe: Recipe, spent: Sequence[Event], *, share: float = 0.0
) -> TrainingSchedule:
    """The release and the residual that a site still makes.

    Args:
        n: privacy units that train at the site, at least 1; public, or noised.
        recipe: its epochs are the schedule's.
        spent: what the site was charged before.
        share: of epsilon that the release has, in [0, 1); 0: no release.
    """
    return TrainingSchedule(
        samples=n,
        epochs=recipe.epochs,
        rounds=1,
        releases=int(share > 0),
        release_share=share or RELEASE_SHARE,
        spent=spent,
    )


def _stable(n: int, rate: float, *, epochs: int, batches: int) -> Recipe:
    """Above `FASTEST` more and slower steps go as far: in smaller batches, which cost no time, and
    from where these would ask for more noise in more epochs."""
    more = min(LONGEST, max(1.0, rate / FASTEST))
    smaller = min(SMALLER, more)
    return Recipe(
        epochs=math.ceil(epochs * more / smaller),
        batch_size=max(1, int(n / (batches * smaller))),
        learning_rate=min(FASTEST, max(SLOWEST, rate / more)),
    )
