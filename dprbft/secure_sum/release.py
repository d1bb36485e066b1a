"""What a secure sum is of: the moments of sites, under their shares of the noise, and label counts.

The counts of a site have the noise that was charged for its histogram, and get no other.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int64

from dprbft.secure_sum.masks import CHECK_NUMBERS, Vector
from dprbft.secure_sum.messages import SumPlan
from panas.privacy.release.estimate import Moments
from panas.privacy.release.kind import summed_kind
from panas.privacy.release.summed import SumNoise, from_steps, in_steps

KIND, ROUND = "moments", 1
"""What is summed, and in which round."""


def noised_size(width: int, classes: int) -> int:
    """How many numbers of a site get noise: the upper triangle of A, and B."""
    return width * (width + 1) // 2 + classes * width


def masked_size(width: int, classes: int) -> int:
    """How many numbers a site's masked vector has."""
    return noised_size(width, classes) + classes + CHECK_NUMBERS


def noise_of(plan: SumPlan, width: int, classes: int) -> SumNoise:
    """The noise of a planned sum, which all its sites and the server compute alike."""
    sites, size = len(plan.sites), noised_size(width, classes)
    return SumNoise.of(summed_kind(KIND), plan.noise_multiplier, sites, plan.missing, size)


def to_vector(steps: Int64[np.ndarray, "k"], counts: Sequence[float], noise: SumNoise) -> Vector:
    """A site's numbers, in steps of the grid, and its label counts, modulo 2^64."""
    own = in_steps(torch.tensor(counts, dtype=torch.float64), noise.step)
    return np.concatenate([steps, own]).view(np.uint64)


def from_total(found: Vector, classes: int, noise: SumNoise, present: int) -> Moments:
    """What the sum over so many sites says; its variance is that of all their shares."""
    numbers = from_steps(found.view(np.int64), noise.step)
    kind = summed_kind(KIND)
    moments = kind.from_numbers(numbers[:-classes], classes, noise.scale(present))
    return replace(moments, counts=numbers[-classes:].float())
