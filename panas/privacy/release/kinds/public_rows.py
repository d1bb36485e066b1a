"""Representations and labels of public samples, without noise.

Privacy: no private sample is read, so that it is post-processing of DP-SGD's weights. Weights that
were trained without DP make it unprotected.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from panas.privacy.accounting.events import PostProcessing
from panas.privacy.release.estimate import Moments
from panas.privacy.release.kinds import raw_rows
from panas.privacy.release.rows import sums_by_class

CHARGED_AS = PostProcessing
SENSITIVITY = 0.0
READS = "public"
UNIT = True
BARE = "representations of public samples leave, by weights that were trained without noise"


run, arrays = raw_rows.run, raw_rows.arrays  # the rows as they are


def estimate(arrays: Mapping[str, Tensor], classes: int, scale: float) -> Moments:
    """The exact moments of the rows.

    Args:
        arrays: z and y, as `run` returned them.
        classes: how many there are.
        scale: not read, as nothing is noised.
    """
    z, y = arrays["z"].double(), arrays["y"]
    counts = torch.bincount(y, minlength=classes).float()
    return Moments(z.T @ z, sums_by_class(z, y, classes), 0.0, counts)
