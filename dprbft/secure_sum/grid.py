"""Numbers as whole steps of a fixed grid, modulo 2^64, so that they add up exactly.

The step is a power of two: dividing by it is exact, and only the rounding to a whole step changes a
number, by half a step at most. What that costs is in `panas.privacy.accounting.distributed`.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, UInt64

from panas.runtime.errors import BadInput

MOST_STEPS = 1 << 50
"""A site's number, noise included, is at most this many steps from 0, and 4096 sites' sum 2^62."""


@dataclass(frozen=True)
class Grid:
    """A grid with this step, in the units of the numbers: a power of two."""

    step: float

    def __post_init__(self) -> None:
        if not (0 < self.step < math.inf and math.frexp(self.step)[0] == 0.5):
            raise BadInput(f"expected a power of two as step of a grid, got {self.step}")

    @staticmethod
    def under(size: float, steps: int = 1 << 24) -> "Grid":
        """The coarsest grid with at least `steps` steps to `size`, as the noise's std."""
        if not 0 < size < math.inf:
            raise BadInput(f"expected a size above 0 to lay a grid under, got {size}")
        return Grid(math.ldexp(0.5, math.frexp(size / steps)[1]))

    def encode(self, x: Float64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
        """Each number as its nearest whole step; BadInput if one is not finite, or too large."""
        with np.errstate(over="ignore"):
            steps = np.rint(np.asarray(x, dtype=np.float64) / self.step)
        if not bool(np.all(np.abs(steps) < MOST_STEPS / 2)):  # also not for NaN
            raise BadInput(
                f"expected finite numbers below {self.step * MOST_STEPS / 2:.3g} for a secure sum, "
                "got others; use a coarser grid"
            )
        return steps.astype(np.int64).view(np.uint64)

    def decode(self, total: UInt64[np.ndarray, "n"], sites: int) -> Float64[np.ndarray, "n"]:
        """The numbers that a sum over `sites` sites stands for; BadInput if out of their range."""
        return checked_range(total, sites).astype(np.float64) * self.step


def checked_range(total: UInt64[np.ndarray, "n"], sites: int) -> np.ndarray:
    """The sum as signed steps, int64; BadInput if so many sites cannot have come to it."""
    steps = np.ascontiguousarray(total).view(np.int64)
    bound = sites * MOST_STEPS
    if not bool(np.all((steps >= -bound) & (steps <= bound))):
        raise BadInput(
            f"expected a sum that {sites} sites can come to, got one out of range: a masked vector "
            "was changed, or is of another session; start a new run"
        )
    return steps
