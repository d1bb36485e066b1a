"""A linear residual without noise, for a predictor that stays where its samples are.

    logits = offset + V u + v,    loss = mean cross-entropy + l2 / (2 n) ||V||^2

Offset and l2 are chosen by cross-validation: of several heads the one over which the least is left
to learn. Privacy: none; whatever comes of it must stay with the site.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from panas.training.linear.residual import zero_residual

PENALTIES = (0.1, 1.0, 10.0, 100.0)  # l2
FOLDS = 5
STEPS = 60  # of L-BFGS


@dataclass(frozen=True)
class Chosen:
    """A residual, and the head that it is over."""

    over: str
    residual: nn.Linear


def fit_logistic(
    z: Float[Tensor, "n d"],
    y: Int[Tensor, "n"],
    offset: Float[Tensor, "n classes"],
    l2: float,
) -> nn.Linear:
    """The residual with the least loss; n >= 1."""
    residual = zero_residual(z.shape[1], offset.shape[1])
    optimizer = torch.optim.LBFGS(
        residual.parameters(), max_iter=STEPS, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        penalty = l2 / (2 * len(y)) * residual.weight.square().sum()
        total = F.cross_entropy(residual(z) + offset, y) + penalty
        total.backward()
        return total

    optimizer.step(loss)
    return residual.requires_grad_(False)


def cross_validated(
    z: Float[Tensor, "n d"],
    y: Int[Tensor, "n"],
    offsets: Mapping[str, Float[Tensor, "n classes"]],
    rng: np.random.Generator,
) -> Chosen:
    """The offset and penalty with the least loss on samples left out, fitted on all of them.

    Without samples the first offset stands as it is.
    """
    if not len(y):
        over, offset = next(iter(offsets.items()))
        return Chosen(over, zero_residual(z.shape[1], offset.shape[1]).requires_grad_(False))
    folds = torch.from_numpy(rng.permutation(len(y)) % FOLDS)

    def left_out(name: str, l2: float) -> float:
        total = 0.0
        for k in range(FOLDS):
            out = folds == k
            if out.all() or not out.any():
                continue
            offset = offsets[name]
            residual = fit_logistic(z[~out], y[~out], offset[~out], l2)
            total += float(F.cross_entropy(residual(z[out]) + offset[out], y[out], reduction="sum"))
        return total

    pairs = [(name, l2) for name in offsets for l2 in PENALTIES]
    over, l2 = min(pairs, key=lambda pair: left_out(*pair))
    return Chosen(over, fit_logistic(z, y, offsets[over], l2))
