"""Noised sums S = sum e_y u^T and counts n_c by class.

Adding a sample moves one row of S by at most 1 and one count by 1: sensitivity sqrt(2).

Source: Dwork and Roth 2014 (Gaussian mechanism).
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from panas.privacy.accounting.events import Gaussian
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import ArraySpec, ClassSums, Rows
from panas.privacy.release.rows import clip_rows, sums_by_class

CHARGED_AS = Gaussian
SENSITIVITY = math.sqrt(2.0)
READS = "training"
UNIT = True
BARE = "sums of representations leave without noise"


def run(rows: Rows, classes: int, scale: float, noise: NoiseSource) -> dict[str, Tensor]:
    """S and counts; `scale` is s."""
    u = clip_rows(rows.z.double())
    S = sums_by_class(u, rows.y, classes) + scale * noise.normal(classes, u.shape[1])
    counts = torch.bincount(rows.y, minlength=classes).double() + scale * noise.normal(classes)
    return {"S": S.float(), "counts": counts.float()}


def arrays(classes: int, d: int) -> dict[str, ArraySpec]:
    """S (classes, d) and counts (classes,)."""
    ones = torch.ones(classes, d, dtype=torch.float64)
    return {"S": ArraySpec((classes, d), ones), "counts": ArraySpec((classes,), ones[:, 0])}


def estimate(arrays: Mapping[str, Tensor], classes: int, scale: float) -> ClassSums:
    """The noised sums as they are: their noise has mean 0."""
    return ClassSums(arrays["S"], arrays["counts"], scale**2)
