"""From features to unit rows of a given width: centred, projected on principal axes, scaled.

| symbol | meaning |
|---|---|
| f | features of a sample, (f,) |
| mean, C | mean and covariance of the features of public or synthetic samples |
| U, v | eigenvectors and eigenvalues of C, largest first |
| p | power of whitening: 0 leaves variances as they are, 1 makes them all equal |

    z = (f - mean) U_d diag(v^(-p/2)),   phi = z / |z|

Half whitening (p about .6) keeps noise on the moments out of directions of little variance, where
C is of the data's own kind. A covariance of synthetic samples does not know those directions:
there full whitening (p = 1) is better.

**A row has its bits whatever the others** (`panas.features.exact`): the sums of z are exact, and
what follows is one rounded operation after another. phi lies on a grid of `GRID`, cut towards zero,
so that its norm is at most 1 exactly, and heads and moments on it can be exact as well.

**Sites compare maps by their bytes.** Mean and covariance are exact sums of rounded features, so
that order, threads and processors do not change them. Eigenvectors do differ between builds of
LAPACK and kinds of processor, in their last bits, and the more the nearer two eigenvalues are.
So the covariance is rounded before (`COVARIANCE_BITS`), axes below `LEAST` of the largest are left
out, and the matrix is rounded after (`MATRIX_BITS`); each axis has a fixed sign. Two machines
then make other bytes only where a number lies on the edge of two roundings, or two eigenvalues
are equal to about 1e-10 of the largest.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from panas.features.exact import BITS, WholeMatrix, on_grid, row_norms, significant
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread

GradientPath = Callable[[Tensor], Tensor]
"""Rows (n, d) of network inputs, through which gradients flow back to these."""

LEAST = 1e-6  # axes whose variance is below this share of the largest are left out
NO_LENGTH = 1e-12  # a row shorter than this has no direction: it becomes zero
SHORTER = 1 - 2.0**-20  # length of a unit row before it is cut to the grid, to stay under 1
GRID = 2.0**-20
"""Step of a unit row's numbers. Products of two are whole steps of 2^-40, which float32 and float64
hold exactly."""

MATRIX_BITS, MEAN_BITS, COVARIANCE_BITS, FEATURE_BITS = 10, 20, 24, 16
"""Of a map's numbers, relative to the largest of an axis, of the mean, of the covariance, and of
the features that these two are made of. A coarser map is as good a map, but for these bits."""

MULTIPLIED_BITS = 16  # of a matrix as it multiplies: above `MATRIX_BITS`, for older files
FARTHEST = 1e9  # no number of a fitted map comes near this


@dataclass(frozen=True)
class Cloud:
    """Mean and covariance of the features of some samples."""

    count: float  # of samples; what it weighs beside others
    mean: Float[Tensor, "f"]  # float64
    covariance: Float[Tensor, "f f"]  # float64


@dataclass(frozen=True)
class Projection:
    """An affine map from f features to d coordinates; float32."""

    mean: Float[Tensor, "f"]
    matrix: Float[Tensor, "f d"]

    @property
    def width(self) -> int:
        """Number of coordinates d."""
        return self.matrix.shape[1]

    @cached_property
    def whole(self) -> WholeMatrix:
        """The matrix as it multiplies: any other that is given is rounded to this."""
        return WholeMatrix.of(self.matrix, MULTIPLIED_BITS)

    @cached_property
    def origin(self) -> Float[Tensor, "d"]:
        """The coordinates of the mean, float64."""
        return self.whole.after(self.mean[None])[0]

    def __call__(
        self, features: Float[Tensor, "n f"], largest: float | None = None
    ) -> Float[Tensor, "n d"]:
        """Coordinates (n, d), float64, each row by itself; faster if features have a `largest`."""
        if largest is None:
            return self.whole.after(features) - self.origin
        return self.whole.after_bounded(features, largest) - self.origin

    def smooth(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        """The same up to rounding, in the features' type and with gradients, for attacks."""
        return (features - self.mean) @ self.matrix

    @staticmethod
    def restored(mean: Tensor, matrix: Tensor, features: int) -> "Projection":
        """Arrays from a file as a projection; BadInput for any other shape, type or size.

        Args:
            mean: (features,), untrusted.
            matrix: (features, d), untrusted.
            features: how many features there are.
        """
        axes = matrix.shape[1] if matrix.dim() == 2 else 0
        fits = mean.shape == (features,) and matrix.shape == (features, axes)
        if not (fits and 1 <= axes <= features and is_bounded(mean) and is_bounded(matrix)):
            raise BadInput(
                f"expected a map's finite mean and matrix of {features} features, got others; "
                "make the map again"
            )
        return Projection(mean, matrix)


def is_bounded(array: Tensor) -> bool:
    """Whether an array of a map is float32, finite and of a size that a fit can give."""
    return array.dtype == torch.float32 and bool((array.abs() <= FARTHEST).all())


def check_names(arrays: Mapping[str, Tensor], names: tuple[str, ...]) -> None:
    """BadInput if a map's file holds other arrays than these."""
    if sorted(arrays) != sorted(names):
        raise BadInput(
            f"expected a map of {', '.join(names)}, got {', '.join(arrays):.80}; make the map again"
        )


def cloud(features: Float[Tensor, "n f"]) -> Cloud:
    """Mean and covariance of features (n, f), n >= 1, of at most 2^19 rows exactly.

    Both are of features rounded to `FEATURE_BITS` bits: their sums are whole numbers, which no
    order changes.
    """
    with one_thread():
        n, rows = len(features), features.double()
        largest = float(rows.abs().max()) if rows.numel() else 0.0
        step = 2.0 ** (math.ceil(math.log2(max(largest, NO_LENGTH))) - FEATURE_BITS)
        whole = (rows / step).round()
        mean = whole.sum(0) / n
        products = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
        for part in whole.split(1 << (BITS - 2 * FEATURE_BITS - 1)):
            products += part.T @ part
        covariance = products / n - mean[:, None] * mean[None, :]
        return Cloud(float(n), mean * step, covariance * step**2)


def filled_up(seen: Cloud, synthetic: Cloud, count: float) -> Cloud:
    """The mean of what was seen, and its covariance as if synthetic samples had been seen beside.

    Few samples leave most directions without any.

    Args:
        seen: of public samples; it may be of none.
        synthetic: scaled to the same total variance.
        count: how many synthetic samples it counts as, 0 or more.
    """
    total, other = (math.fsum(c.covariance.diagonal().tolist()) for c in (seen, synthetic))
    scale = total / other if total > 0 and other > 0 else 1.0
    share = seen.count / (seen.count + count)
    mixed = share * seen.covariance + (1 - share) * scale * synthetic.covariance
    return Cloud(seen.count + count, seen.mean, mixed)


def principal(cloud: Cloud, d: int, power: float) -> Projection:
    """Projection on principal axes, over a power of their standard deviation.

    Args:
        cloud: mean and covariance of features.
        d: the most axes.
        power: p, in [0, 1]; 0 leaves the lengths as they are, and 1 makes all axes alike.
    """
    with one_thread():
        covariance = _rounded(cloud.covariance, COVARIANCE_BITS)
        values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
        values, vectors = values.flip(0)[:d], vectors.flip(1)[:, :d]
        kept = max(1, int((values > LEAST * max(float(values[0]), NO_LENGTH)).sum()))
        values, vectors = values[:kept], vectors[:, :kept]
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        vectors = vectors * torch.where(largest < 0, -1.0, 1.0)  # the sign of an axis is free
        scaled = vectors * values.clamp(min=NO_LENGTH) ** (-power / 2)
        whole = WholeMatrix.of(scaled, MATRIX_BITS)
        matrix = (whole.steps * significant(whole.step, 1)).float().contiguous()
        return Projection(_rounded(cloud.mean, MEAN_BITS).float(), matrix)


def _rounded(array: Float[Tensor, "..."], bits: int) -> Float[Tensor, "..."]:
    """Numbers of so many bits, relative to the largest of all."""
    largest = significant(array.abs().max().clamp(min=NO_LENGTH), 1, up=True)
    return on_grid(array, float(largest) * 2.0**-bits)


def unit_rows(z: Float[Tensor, "n d"], usable: Bool[Tensor, "n"]) -> Float[Tensor, "n d"]:
    """Rows of length 1 less what a grid of `GRID` takes, never above 1; a row that is not usable,
    not finite or of no length becomes zero. float32.

    Privacy: whatever a sample holds, its row's norm is at most 1, and no other row changes it.
    """
    rows = z.double()
    norm = row_norms(rows)[:, None]
    usable = usable[:, None] & norm.isfinite() & (norm > NO_LENGTH)
    unit = (rows / norm.clamp(min=NO_LENGTH) * (SHORTER / GRID)).trunc() * GRID
    return torch.where(usable, unit, 0.0).float()
