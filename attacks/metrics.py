"""How close a reconstruction is, on the scale [-1, 1], with its uncertainty.

| symbol | name |
|---|---|
| e_i | mean squared error of sample i over its values, images in [-1, 1] |
| r_i | the same error of the mean *public* image |
| MSE | mean of e_i |
| R^2 | 1 - sum e_i / sum r_i: 0 is as good as the mean public image, 1 is perfect |
| PSNR | mean over samples of 10 log10(2^2 / e_i), in dB, at most 106 |

An error means nothing without its scale: the mean image scores about 0.06 on [0, 1] and 0.25 on
[-1, 1]. R^2 has none. SSIM is Wang et al. 2004 with a uniform window.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

RANGE = 2.0
"""Largest minus smallest value of an image."""

RESAMPLES = 1000
"""Bootstrap draws behind an interval."""


@dataclass(frozen=True)
class Score:
    """What one attack or control achieves on the scored samples of one client."""

    name: str
    mse: float
    r2: float
    r2_interval: tuple[float, float]
    """Bootstrap 95 % interval over samples."""
    psnr: float
    ssim: float
    errors: Float[Tensor, "n"]
    """e_i, for comparing two scores on the same samples."""

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record; what is no number (R^2 of constant images) is None."""
        low, high = self.r2_interval
        return {
            "name": self.name,
            "mse": _number(self.mse),
            "r2": _number(self.r2),
            "r2_interval": [_number(low), _number(high)],
            "psnr": _number(self.psnr),
            "ssim": _number(self.ssim),
        }


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def score(
    name: str,
    truth: Float[Tensor, "n c h w"],
    images: Float[Tensor, "n c h w"],
    mean_image: Float[Tensor, "c h w"],
    *,
    rng: np.random.Generator,
) -> Score:
    """Compare reconstructions with the truth.

    Args:
        name: of the attack or control.
        truth: private images in [-1, 1].
        images: their reconstructions, in the same order.
        mean_image: the mean public image, the reference of R^2.
        rng: of the bootstrap.

    """
    errors = squared_errors(truth, images)
    reference = squared_errors(truth, mean_image.expand_as(truth))
    return Score(
        name,
        float(errors.mean()),
        r2(errors, reference),
        gain_interval(errors, reference, reference, rng=rng),
        psnr(errors),
        float(ssim(truth, images).mean()),
        errors,
    )


def squared_errors(
    truth: Float[Tensor, "n c h w"], images: Float[Tensor, "n c h w"]
) -> Float[Tensor, "n"]:
    """e_i, in float64."""
    return (truth.double() - images.double()).square().mean(dim=(1, 2, 3))


def r2(errors: Float[Tensor, "n"], reference: Float[Tensor, "n"]) -> float:
    """R^2 from errors e_i and reference errors r_i; NaN if the reference is perfect."""
    total = float(reference.sum())
    return 1 - float(errors.sum()) / total if total > 0 else math.nan


def gain_interval(
    errors: Float[Tensor, "n"],
    baseline: Float[Tensor, "n"],
    reference: Float[Tensor, "n"],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
) -> tuple[float, float]:
    """Bootstrap interval of R^2(errors) - R^2(baseline), paired by sample.

    Percentiles of `RESAMPLES` draws of n samples. With the reference itself as baseline it is the
    interval of R^2. Pairing cancels what makes a sample hard for everyone.
    """
    n = len(errors)
    counts = rng.multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(float)
    above = counts @ (baseline - errors).double().numpy()
    below = counts @ reference.double().numpy()
    if not below.min() > 0:
        return math.nan, math.nan
    tail = (1 - level) / 2
    low, high = np.quantile(above / below, [tail, 1 - tail])
    return float(low), float(high)


def psnr(errors: Float[Tensor, "n"]) -> float:
    """Mean peak signal-to-noise ratio in dB; errors below 1e-10 count as 1e-10."""
    return float((10 * torch.log10(RANGE**2 / errors.clamp(min=1e-10))).mean())


def ssim(truth: Float[Tensor, "n c h w"], images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n"]:
    """Structural similarity of each pair: uniform windows of side min(7, h, w), stride 1."""
    side = min(7, *truth.shape[2:])

    def local(v: Tensor) -> Tensor:
        return F.avg_pool2d(v, side, stride=1)

    a, b = truth.double(), images.double()
    mean_a, mean_b = local(a), local(b)
    var_a, var_b = local(a * a) - mean_a**2, local(b * b) - mean_b**2
    covariance = local(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * RANGE) ** 2, (0.03 * RANGE) ** 2
    similarity = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    similarity = similarity / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return similarity.mean(dim=(1, 2, 3))
