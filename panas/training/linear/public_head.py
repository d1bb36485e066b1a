"""The head of labelled public samples, with the ridge penalty that they themselves ask for.

Nothing private has a part in it, so that the penalty can be chosen by cross-validation: the one
with the least negative log-likelihood of held-out samples, as it is what averages weigh by and
what a residual starts from. It is what a site has without spending anything.
"""

import torch
from torch.nn import functional as F

from panas.privacy.release.estimate import Rows
from panas.runtime.seeds import one_thread, stream
from panas.training.linear.ridge import Weights, exact_moments, logits, ridge

PENALTIES = (0.3, 0.6, 0.9, 1.5, 2.5, 4.0, 7.0)
FEWEST = 50  # samples; of fewer, `FOR_FEW` is taken
FOR_FEW = 0.9
FOLDS, REPEATS = 5, 3


def fit_public_head(public: Rows, classes: int) -> Weights:
    """The head of n >= 1 labelled public samples; equal samples give equal heads."""
    learnt = exact_moments(public.z, public.y, classes)
    return ridge(learnt, best_penalty(public, classes))


def best_penalty(public: Rows, classes: int) -> float:
    """The penalty by which held-out public samples are likeliest."""
    if len(public.y) < FEWEST:
        return FOR_FEW
    rng, loss = stream(0, "public head"), torch.zeros(len(PENALTIES))
    with one_thread():
        for _ in range(REPEATS):
            parts = torch.from_numpy(rng.permutation(len(public.y))).tensor_split(FOLDS)
            for at, held in enumerate(parts):
                rest = torch.cat([part for i, part in enumerate(parts) if i != at])
                learnt = exact_moments(public.z[rest], public.y[rest], classes)
                for i, penalty in enumerate(PENALTIES):
                    values = logits(ridge(learnt, penalty), public.z[held])
                    loss[i] += F.cross_entropy(values, public.y[held], reduction="sum")
    return PENALTIES[int(loss.argmin())]
