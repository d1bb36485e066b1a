"""How long and how fast DP-SGD trains a linear residual, by rule from public numbers.

Chosen on seeds 100 to 102 of Fashion-MNIST (`benchmarks.joining`); n is the number of a site's
privacy units. Over a head that all sites have made there is little left to learn: half the
passes, in larger batches, and slower.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from panas.privacy.accounting.events import Event
from panas.privacy.schedule import TrainingSchedule
from panas.training.linear.split import RELEASE_SHARE

SLOWEST, FASTEST = 0.25, 8.0
FEW = 500  # units below which a batch holds all of them


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of DP-SGD for a linear residual."""

    epochs: int
    batch_size: int
    learning_rate: float
    clip: float = 1.0


def joined_recipe(n: int, epsilon: float) -> Recipe:
    """Over the shared head, with what a release has left of epsilon."""
    rate = _bounded(2 * math.sqrt(n * epsilon / 2400))
    return Recipe(epochs=24, batch_size=n if n < FEW else n // 2, learning_rate=rate)


def alone_recipe(n: int, epsilon: float) -> Recipe:
    """Over the public head or nothing, with all of epsilon: the best that a site does by itself."""
    return Recipe(epochs=48, batch_size=max(1, n // 2), learning_rate=_bounded(n * epsilon / 600))


def residual_schedule(
    n: int, recipe: Recipe, spent: Sequence[Event], *, share: float = 0.0
) -> TrainingSchedule:
    """What a site of n units still makes: a release of this share of epsilon, or none where it is
    0, and one residual; `spent` is what it was charged before.
    """
    return TrainingSchedule(
        samples=n,
        epochs=recipe.epochs,
        rounds=1,
        releases=int(share > 0),
        release_share=share or RELEASE_SHARE,
        spent=spent,
    )


def _bounded(rate: float) -> float:
    return min(FASTEST, max(SLOWEST, rate))
