"""How long and how fast DP-SGD trains a linear residual, by rule from public numbers.

Chosen on seeds 100 to 102 of Fashion-MNIST and CIFAR-10 (`benchmarks.joining`); n is a public
number near that of a site's privacy units. Rate times steps is how far it may get: as far as the
noise allows, which is in proportion to n epsilon. Over a head that all sites have made there is
little left to learn: half the passes, in larger batches, and slower.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from panas.privacy.accounting.events import Event
from panas.privacy.plan import TrainingSchedule
from panas.training.linear.split import RELEASE_SHARE

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
    """Over the shared head, with what a release of this share has left of epsilon."""
    x, left = n * epsilon / 2400, 1 - share**2
    rate = 2 * max(math.sqrt(x), 2.7 * left * x)
    return _stable(n, rate, epochs=24, batches=1 if n < FEW else 2)


def alone_recipe(n: int, epsilon: float) -> Recipe:
    """Over the public head or nothing, with all of epsilon: the best that a site does by itself."""
    return _stable(n, n * epsilon / 600, epochs=48, batches=2)


def residual_schedule(
    n: int, recipe: Recipe, spent: Sequence[Event], *, share: float = 0.0
) -> TrainingSchedule:
    """The release and the residual that a site of n units still makes.

    The release has this share of epsilon (0: no release); `spent` is what was charged before.
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
