"""What a secure sum is of: the moments and label counts of sites, under shares of one noise."""

import numpy as np
from jaxtyping import Int64

from dprbft.secure_sum.masks import CHECK_NUMBERS, Vector
from dprbft.secure_sum.messages import SumPlan
from panas.privacy.release.estimate import Moments
from panas.privacy.release.gate import SumNoise, from_steps
from panas.privacy.release.kind import summed_kind

KIND, ROUND = "moments", 1
"""What is summed, and in which round."""


def masked_size(width: int, classes: int) -> int:
    """How many numbers a site's masked vector has."""
    return summed_kind(KIND).numbers_of(width, classes) + CHECK_NUMBERS


def noise_of(plan: SumPlan, width: int, classes: int) -> SumNoise:
    """The noise of a planned sum, which all its sites and the server compute alike.

    Args:
        plan: multiplier, sites and how many may be missing.
        width: d, of the representations.
        classes: C.
    """
    kind, sites = summed_kind(KIND), len(plan.sites)
    size = kind.numbers_of(width, classes)
    return SumNoise.of(kind, plan.noise_multiplier, sites, plan.missing, size)


def to_vector(steps: Int64[np.ndarray, "k"]) -> Vector:
    """A site's numbers, in steps of the grid, modulo 2^64."""
    return steps.view(np.uint64)


def from_total(total: Vector, classes: int, noise: SumNoise, present: int) -> Moments:
    """What the sum over the sites says; its variance is that of all their shares.

    Args:
        total: modulo 2^64, without masks.
        classes: C.
        noise: of the planned sum.
        present: how many sites are in it.
    """
    numbers = from_steps(total.view(np.int64), noise.step)
    return summed_kind(KIND).from_numbers(numbers, classes, noise.scale(present))
