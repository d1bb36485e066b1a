"""Noised sums S = sum e_y u^T and counts n_c by class.

Adding a sample moves one row of S by at most 1 and one count by 1: sensitivity sqrt(2).
A group's rows get one weight, at which all of them together move (S, n) by sqrt(2) at most; it
scales sums and counts alike, so that their ratios stay.

Both hold in floating point: see `panas.privacy.release.rows`.

Source: Dwork and Roth 2014 (Gaussian mechanism).
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.privacy.accounting.events import Gaussian
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import ArraySpec, ClassSums, Rows
from panas.privacy.release.rows import counts_by_class, grid_rows, sums_by_class, unit_weights

CHARGED_AS = Gaussian
SENSITIVITY = math.sqrt(2.0)
READS = "training"
UNIT = True
BARE = "sums of representations leave without noise"


def run(rows: Rows, classes: int, scale: float, noise: NoiseSource) -> dict[str, Tensor]:
    """S and counts.

    Args:
        rows: finite z (n, d), y, and groups where they are the privacy unit.
        classes: how many there are.
        scale: s, standard deviation of the noise on each number; 0 for none.
        noise: draws it.
    """
    u = grid_rows(rows.z)
    weights = unit_weights(rows._replace(z=u), SENSITIVITY, partial(_length, classes))
    sums = sums_by_class(u * weights[:, None], rows.y, classes)
    S = sums + scale * noise.normal(classes, u.shape[1])
    counts = counts_by_class(weights, rows.y, classes) + scale * noise.normal(classes)
    return {"S": S.float(), "counts": counts.float()}


def _length(classes: int, u: Float[Tensor, "m d"], y: Int[Tensor, "m"]) -> float:
    """How far rows move (S, counts) together."""
    ones = torch.ones(len(y), dtype=torch.float64)
    counts = counts_by_class(ones, y, classes)
    return math.hypot(sums_by_class(u, y, classes).norm(), counts.norm())


def arrays(classes: int, d: int) -> dict[str, ArraySpec]:
    """S (classes, d) and counts (classes,)."""
    ones = torch.ones(classes, d, dtype=torch.float64)
    return {"S": ArraySpec((classes, d), ones), "counts": ArraySpec((classes,), ones[:, 0])}


def estimate(arrays: Mapping[str, Tensor], classes: int, scale: float) -> ClassSums:
    """The noised sums as they are: their noise has mean 0.

    Args:
        arrays: S and counts, as `run` returned them.
        classes: how many there are; not read.
        scale: s, standard deviation of their noise.
    """
    return ClassSums(arrays["S"], arrays["counts"], scale**2)
