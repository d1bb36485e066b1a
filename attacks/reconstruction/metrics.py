"""How close a reconstruction is, on the scale [-1, 1], with its uncertainty.

| symbol | name |
|---|---|
| e_i | mean squared error of sample i over its values, images in [-1, 1] |
| r_i | the same error of the mean *public* image |
| MSE | mean of e_i |
| R^2 | 1 - sum e_i / sum r_i: 0 is as good as the mean public image, 1 is perfect |
| PSNR | mean over samples of 10 log10(2^2 / e_i), in dB, at most 106 |
| re-identified | share of samples whose reconstruction is nearer to them than to k - 1 others |

The mean image scores an MSE of about 0.06 on [0, 1] and 0.25 on [-1, 1]. SSIM is Wang et al. 2004
with a uniform window. Re-identification by chance is 1 / k: it detects a blurred image that is
still of one person. Intervals are of 95 %, bootstrapped; that of the re-identification rate is
Clopper and Pearson's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attacks.statistics import clopper_pearson, gain_interval, mean_interval

RANGE = 2.0
"""Largest minus smallest value of an image."""

CANDIDATES = 10
"""k, of re-identification: a sample, and others that it is to be told from."""


@dataclass(frozen=True)
class ReconstructionScore:
    """What one attack or control achieves on the scored samples of one site."""

    name: str
    mse: float
    r2: float
    psnr: float
    ssim: float
    reidentified: float
    intervals: Mapping[str, tuple[float, float]]  # of each of the above, by name
    errors: Float[Tensor, "n"]
    """e_i, for comparing two scores on the same samples; none where it was read from JSON."""
    threat: str | None = None
    """Of an attack, what it knows (`attacks.threats.observation`); None of a control."""

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record; what is no number (R^2 of constants, its interval of few) is None."""
        record: dict[str, Any] = {"name": self.name}
        if self.threat is not None:
            record["threat"] = self.threat
        for name, (low, high) in self.intervals.items():
            record[name] = _number(getattr(self, name))
            record[f"{name}_interval"] = [_number(low), _number(high)]
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "ReconstructionScore":
        """What `to_json` gave."""

        def number(value: float | None) -> float:
            return math.nan if value is None else value

        names = [key.removesuffix("_interval") for key in record if key.endswith("_interval")]
        ends = {k: record[f"{k}_interval"] for k in names}
        intervals = {k: (number(low), number(high)) for k, (low, high) in ends.items()}
        values: dict[str, Any] = {k: number(record[k]) for k in names}
        values |= {"threat": record.get("threat"), "errors": torch.empty(0)}
        return cls(record["name"], intervals=intervals, **values)


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def score(
    name: str,
    truth: Float[Tensor, "n c h w"],
    images: Float[Tensor, "n c h w"],
    mean_image: Float[Tensor, "c h w"],
    *,
    rng: np.random.Generator,
    among: Int[Tensor, "n k"] | None = None,
) -> ReconstructionScore:
    """Compare reconstructions with the truth.

    Args:
        name: of the attack.
        truth: the samples, in [-1, 1].
        images: their reconstructions, in the same order and range.
        mean_image: the mean public image.
        rng: of the bootstrap, and of candidates.
        among: rows of `candidates`; None: others at random.

    """
    errors = squared_errors(truth, images)
    reference = squared_errors(truth, mean_image.expand_as(truth))
    if among is None:
        among = candidates(torch.zeros(len(truth), dtype=torch.long), rng=rng)
    of_each = {
        "mse": errors,
        "psnr": psnr(errors),
        "ssim": ssim(truth, images),
        "reidentified": reidentified(truth, images, among),
    }
    means: dict[str, Any] = {k: float(v.mean()) for k, v in of_each.items()}
    intervals = {k: mean_interval(of_each[k], rng=rng) for k in ("mse", "psnr", "ssim")}
    # Exact: a bootstrap of no hits would exclude any.
    hits = round(float(of_each["reidentified"].sum()))
    intervals["reidentified"] = clopper_pearson(hits, len(truth))
    intervals["r2"] = gain_interval(errors, reference, reference, rng=rng)
    return ReconstructionScore(
        name, **means, r2=r2(errors, reference), intervals=intervals, errors=errors
    )


def candidates(
    y: Int[Tensor, "n"], *, rng: np.random.Generator, k: int = CANDIDATES
) -> Int[Tensor, "n k"]:
    """Each sample first, then k - 1 others (n - 1 if fewer): of its class, then of any.

    Args:
        y: classes of the samples.
        rng: draws the others.
        k: candidates a sample, itself included, at least 1.
    """
    labels, rows = y.numpy(), []
    for i in range(len(y)):
        order = rng.permutation(len(y))
        order = order[order != i]
        same = labels[order] == labels[i]
        rows.append(np.concatenate([[i], order[same], order[~same]])[:k])
    return torch.from_numpy(np.stack(rows))


def reidentified(
    truth: Float[Tensor, "n c h w"], images: Float[Tensor, "n c h w"], among: Int[Tensor, "n k"]
) -> Float[Tensor, "n"]:
    """1 where the reconstruction's nearest candidate is its sample; ties share the 1.

    Args:
        truth: private images in [-1, 1].
        images: their reconstructions, in the same order.
        among: positions of each sample's candidates, itself first, from `candidates`.
    """
    flat, guess = truth.flatten(1).double(), images.flatten(1).double()
    distances = torch.cdist(guess, flat).gather(1, among)
    nearest = distances <= distances.min(dim=1, keepdim=True).values
    return nearest[:, 0].double() / nearest.sum(1).clamp(min=1)  # no number is near to nobody


def squared_errors(
    truth: Float[Tensor, "n c h w"], images: Float[Tensor, "n c h w"]
) -> Float[Tensor, "n"]:
    """e_i, in float64."""
    return (truth.double() - images.double()).square().mean(dim=(1, 2, 3))


def r2(errors: Float[Tensor, "n"], reference: Float[Tensor, "n"]) -> float:
    """R^2 from errors e_i and reference errors r_i; NaN if the reference is perfect."""
    total = float(reference.sum())
    return 1 - float(errors.sum()) / total if total > 0 else math.nan


def psnr(errors: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Peak signal-to-noise ratio of each sample in dB; errors below 1e-10 count as 1e-10."""
    return 10 * torch.log10(RANGE**2 / errors.clamp(min=1e-10))


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
