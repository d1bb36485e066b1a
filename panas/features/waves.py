"""Features of a row of a table: random Fourier features, the columns themselves, leaves of trees.

| symbol | meaning |
|---|---|
| x | a row as `panas.data` scales it: numbers, signs of categories and of missing cells |
| w | weights of the columns, so that a standard deviation and a category weigh alike |
| b | bandwidth: the median distance of public rows, times `WIDE` |
| omega, phase | fixed draws, standard normal and uniform |

Fourier features: sqrt(2 / D) cos(omega^T (w x) / b + phase); their inner products approximate a
Gaussian kernel (Rahimi and Recht 2007).

Columns: sqrt(2) (w x) / m, of length about 1, where m is the median distance of rows w x. Many
tables are nearly linear in them, which Fourier features need many rows to learn.

Leaves of a forest grown on labelled public rows (`panas.features.trees`).

A row has its bits whatever is beside it (`panas.features.exact`).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.features.exact import MapCost, WholeMatrix, cosines
from panas.features.projection import Projection
from panas.features.trees import Forest

FOURIER = 256  # D
FARTHEST = 16.0  # inputs are cut to plus and minus this
CHUNK = 1024  # rows at a time, and fewer where they are long
DIRECTION_BITS = 16  # of directions as they multiply


@dataclass(frozen=True)
class Fourier:
    """Random Fourier features."""

    directions: Float[Tensor, "f D"]  # weights and bandwidth are in them
    phases: Float[Tensor, "D"]

    def __call__(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n D"]:
        """Rows of length about 1, each by itself, bit for bit."""
        turns = self.whole.after_bounded(x, FARTHEST).add_(self.phases.double())
        return cosines(turns.mul_(1 / (2 * math.pi))).mul_((2 / self.width) ** 0.5)

    def smooth(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n D"]:
        """The same up to rounding, with gradients."""
        return (2 / self.width) ** 0.5 * torch.cos(x @ self.directions + self.phases)

    @property
    def width(self) -> int:
        """D."""
        return self.directions.shape[1]

    @cached_property
    def whole(self) -> WholeMatrix:
        """The directions as they multiply."""
        return WholeMatrix.of(self.directions, DIRECTION_BITS)


@dataclass(frozen=True)
class Blocks:
    """All features of a row, before the projection."""

    fourier: Fourier
    scale: Float[Tensor, "f"] | None = None  # of the columns
    forest: Forest | None = None

    def __call__(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n features"]:
        """Features of any rows: what is not finite counts as 0, what is too large is cut."""
        finite = _finite(x)
        rest = self._beside(self.fourier(finite), finite)
        return rest if self.forest is None else torch.cat([rest, self.forest(finite)], dim=1)

    def projected(self, x: Float[Tensor, "n f"], projection: Projection) -> Float[Tensor, "n d"]:
        """The coordinates of these features, float64: a leaf is one row of the matrix.

        Up to 50 rows of 16 bits add up to less than 2^24, which float32 holds exactly.
        """
        finite, whole, rest = _finite(x), projection.whole, self.rest
        beside = self._beside(self.fourier(finite), finite)
        first = WholeMatrix(whole.steps[:rest], whole.step, whole.bits)
        z = first.after_bounded(beside, self.largest) - projection.origin
        if self.forest is None:
            return z
        leaves = F.embedding_bag(self.forest.leaves(finite), whole.steps[rest:].float(), mode="sum")
        return z.add_(leaves.double().mul_(whole.step * self.forest.trees**-0.5))

    @property
    def rest(self) -> int:
        """Number of features that are no leaves."""
        return self.fourier.width + (0 if self.scale is None else len(self.scale))

    @property
    def largest(self) -> float:
        """What these stay within."""
        return max(1.0, 0.0 if self.scale is None else FARTHEST * float(self.scale.abs().max()))

    def _beside(
        self, waves: Float[Tensor, "n D"], x: Float[Tensor, "n f"]
    ) -> Float[Tensor, "n rest"]:
        return waves if self.scale is None else torch.cat([waves, x * self.scale], dim=1)

    def smooth(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n features"]:
        """Those of finite rows that have a gradient, up to rounding: all but the leaves."""
        return self._beside(self.fourier.smooth(x), x)

    @property
    def width(self) -> int:
        """Number of features of a row."""
        return self.rest + (0 if self.forest is None else self.forest.width)


def _finite(x: Float[Tensor, "n f"]) -> Float[Tensor, "n f"]:
    return torch.where(x.isfinite(), x.float(), 0.0).clamp_(-FARTHEST, FARTHEST)


def cost_of_rows(f: int, features: int, d: int) -> MapCost:
    """What a map of rows of numbers needs.

    Args:
        f: numbers of a row.
        features: of the map, before projection.
        d: coordinates.
    """
    return MapCost(
        macs=f + f * FOURIER + features * d,
        row_bytes=8 * (4 * f + 6 * FOURIER + 4 * features + 6 * d),
        most_rows=CHUNK,
        fixed_bytes=4 * (3 * f * FOURIER + features + 3 * features * d),
    )
