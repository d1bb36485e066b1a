"""The head that a site makes of its own samples for itself, without noise.

A ridge head of the site's exact moments, shrunk to a head that others may know, or to 0. Which one,
and how much, held-out samples of the site say.

Privacy: it is protected by nothing, and must not leave the site; nor may a network learn from it
that leaves.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from panas.privacy.release.estimate import Rows
from panas.runtime.seeds import one_thread
from panas.training.linear.ridge import Weights, exact_moments, logits, ridge

PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FOLDS = 5


def home_head(
    rows: Rows,
    log_prior: Float[Tensor, "classes"],
    others: Sequence[Weights],
    rng: np.random.Generator,
) -> Weights:
    """The head by which held-out samples of the site are likeliest.

    Args:
        rows: the site's own representations (n, d) and classes, n >= 0.
        log_prior: log frequencies of its classes, which are added to logits.
        others: heads (C, d) that it may be shrunk to, beside 0.
        rng: deals the samples out to folds.
    """
    classes = len(log_prior)
    aims: list[Weights | None] = [None, *(head.double() for head in others)]
    parts = torch.from_numpy(rng.permutation(len(rows.y))).tensor_split(FOLDS)
    loss = torch.zeros(len(aims), len(PENALTIES), dtype=torch.float64)
    with one_thread():
        for at, held in enumerate(parts):
            rest = torch.cat([part for i, part in enumerate(parts) if i != at])
            learnt = exact_moments(rows.z[rest], rows.y[rest], classes)
            for j, aim in enumerate(aims):
                for i, penalty in enumerate(PENALTIES):
                    values = logits(ridge(learnt, penalty, aim), rows.z[held]) + log_prior
                    loss[j, i] += F.cross_entropy(values, rows.y[held], reduction="sum")
        j, i = divmod(int(loss.argmin()), len(PENALTIES))
        return ridge(exact_moments(rows.z, rows.y, classes), PENALTIES[i], aims[j])
