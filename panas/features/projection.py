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
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from panas.runtime.seeds import one_thread

GradientPath = Callable[[Tensor], Tensor]
"""Rows (n, d) of network inputs, through which gradients flow back to these."""

LEAST = 1e-6
"""Eigenvalues below this share of the largest count as this much."""

NO_LENGTH = 1e-12
"""A row shorter than this has no direction: it becomes zero."""

SHORTER = 1 - 2.0**-20
"""Length of a unit row, so that rounding to float32 never makes it longer than 1."""


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

    @property
    def macs(self) -> int:
        """Multiply-accumulates a sample."""
        return self.matrix.numel()

    @property
    def numbers(self) -> int:
        """Fixed numbers that it holds."""
        return self.matrix.numel() + self.mean.numel()

    def __call__(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        """Coordinates (n, d) of features (n, f)."""
        return (features - self.mean) @ self.matrix


def cloud(features: Float[Tensor, "n f"]) -> Cloud:
    """Mean and covariance of features (n, f), n >= 1."""
    with one_thread():
        rows = features.double()
        centred = rows - rows.mean(0)
        return Cloud(float(len(rows)), rows.mean(0), centred.T @ centred / len(rows))


def filled_up(seen: Cloud, synthetic: Cloud, count: float) -> Cloud:
    """The mean of `seen`, and its covariance as if `count` synthetic samples of the same total
    variance had been seen beside: few samples leave most directions without any."""
    total, other = seen.covariance.trace(), synthetic.covariance.trace()
    scale = float(total / other) if total > 0 and other > 0 else 1.0
    share = seen.count / (seen.count + count)
    mixed = share * seen.covariance + (1 - share) * scale * synthetic.covariance
    return Cloud(seen.count + count, seen.mean, mixed)


def principal(cloud: Cloud, d: int, power: float) -> Projection:
    """Projection on the first d principal axes (or on all, where there are fewer), each divided by
    its standard deviation to the `power` p."""
    with one_thread():
        values, vectors = torch.linalg.eigh(cloud.covariance)
        values, vectors = values.flip(0)[:d], vectors.flip(1)[:, :d]
        largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        vectors = vectors * torch.where(largest < 0, -1.0, 1.0)  # the sign of an axis is free
        scale = values.clamp(min=max(float(values[0]) * LEAST, NO_LENGTH)) ** (-power / 2)
        return Projection(cloud.mean.float(), (vectors * scale).float().contiguous())


def unit_rows(z: Float[Tensor, "n d"], usable: Bool[Tensor, "n"]) -> Float[Tensor, "n d"]:
    """Rows of length 1 (never above, also after rounding); a row that is not usable, not finite or
    of no length becomes zero. float32.

    Privacy: whatever a sample holds, its row's norm is at most 1.
    """
    rows = z.double()
    norm = rows.norm(dim=1, keepdim=True)
    usable = usable[:, None] & norm.isfinite() & (norm > NO_LENGTH)
    unit = rows / norm.clamp(min=NO_LENGTH) * SHORTER
    return torch.where(usable, unit, 0.0).float()
