"""Representations and labels of public samples, without noise.

Privacy: no private sample is read, so that it is post-processing of DP-SGD's weights. Weights that
were trained without DP make it unprotected.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from panas.privacy.accounting.events import PostProcessing
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import ArraySpec, Moments, Rows
from panas.privacy.release.rows import sums_by_class

CHARGED_AS = PostProcessing
SENSITIVITY = 0.0
READS = "public"
UNIT = True
BARE = "representations of public samples leave, by weights that were trained without noise"


def run(rows: Rows, classes: int, scale: float, noise: NoiseSource) -> dict[str, Tensor]:
    """The rows as they are."""
    return {"z": rows.z.float(), "y": rows.y}


def arrays(classes: int, d: int) -> dict[str, ArraySpec]:
    """z (n, d) and y (n,)."""
    return {"z": ArraySpec((None, d)), "y": ArraySpec((None,), labels=True)}


def estimate(arrays: Mapping[str, Tensor], classes: int, scale: float) -> Moments:
    """The exact moments of the rows."""
    z, y = arrays["z"].double(), arrays["y"]
    counts = torch.bincount(y, minlength=classes).float()
    return Moments(z.T @ z, sums_by_class(z, y, classes), 0.0, counts)
