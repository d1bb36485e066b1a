"""What a release says, typed: the arrays that cross the wire, and what they estimate.

| symbol | name |
|---|---|
| z, y | representations (n, d) and labels (n,) |
| u | z clipped to norm 1 |
| s | standard deviation of the noise on each number |
"""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int, Int64
from torch import Tensor


class Rows(NamedTuple):
    """One row a sample: representations z and labels y, and groups where they are the unit."""

    z: Float[Tensor, "n d"]
    y: Int[Tensor, "n"]
    groups: Int64[Tensor, "n"] | None = None  # None: every row is a unit of its own


SECOND_MOMENTS = 0.5
"""a, what A counts beside B in a release: a number of A has noise of variance s^2 / a^2."""


@dataclass(frozen=True)
class Moments:
    """Second moments of unit rows: A = sum u u^T, B = sum e_y u^T; float64."""

    A: Float[Tensor, "d d"]
    B: Float[Tensor, "classes d"]
    variance: float  # s^2 of each number of B
    counts: Float[Tensor, "classes"] | None = None  # of rows, where they are known
    counts_variance: float = 0.0  # of the noise on each count


@dataclass(frozen=True)
class ClassSums:
    """Sums S = sum e_y u^T of unit rows and their counts, by class."""

    S: Float[Tensor, "classes d"]
    counts: Float[Tensor, "classes"]
    variance: float  # s^2 of each number


Estimate = Moments | ClassSums | Rows


@dataclass(frozen=True)
class ArraySpec:
    """One array of a release as it crosses the wire."""

    shape: tuple[int | None, ...]  # None stands for n, the number of samples that were read
    noise: Float[Tensor, "..."] | None = None  # standard deviation of each number, in units of s
    labels: bool = False  # int64, below the number of classes; else finite float32
