"""A linear residual on a common representation, trained by DP-SGD over a head that is given.

    logits = offset + V u + v

V and v start at zero: without a gain a site keeps the head that it was given. The offset is a
function of releases (the shared head, the log of the noised label frequencies), so that only the
steps read private samples. With log frequencies alone as offset it is DP logistic regression, the
strongest that a site can do by itself on a fixed representation.

**Without noise**, for a predictor that stays where its samples are, it minimises

    mean cross-entropy + l2 / (2 n) ||V||^2

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

from panas.features.exact import product
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import NoiseSource
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows


def zero_residual(width: int, classes: int) -> nn.Linear:
    """V (classes, width) and v (classes,), both zero."""
    residual = nn.Linear(width, classes)
    nn.init.zeros_(residual.weight)
    nn.init.zeros_(residual.bias)
    return residual


def residual_logits(residual: nn.Linear, z: Float[Tensor, "n width"]) -> Float[Tensor, "n classes"]:
    """V u + v, float32; a row has its bits whatever is beside it."""
    return (product(z, residual.weight.detach().T) + residual.bias.detach().double()).float()


def fit_residual(
    residual: nn.Linear,
    rows: Rows,
    offset: Float[Tensor, "n classes"],
    *,
    plan: Plan,
    learning_rate: float,
    noise: NoiseSource,
) -> None:
    """Train V and v in place for one round of a plan.

    A row's gradient depends on that row alone, bit for bit: the layer's outputs are exact sums.

    Args:
        residual: V and v, as `zero_residual` begins.
        rows: representations (n, width), classes, and groups where they are the unit.
        offset: logits that the residual is added to, one row for each of `rows`.
        plan: batches, epochs, clip and sigma.
        learning_rate: step size of SGD, above 0.
        noise: of batches and gradients; `SystemNoise()`, unless for a test.

    Privacy: `plan.training_event`, which the caller has charged to the ledger before, for one
    unit, provided that `offset` is a function of a row and of what was released.
    """
    gradient = PrivateGradient(residual, _loss_over_offset)
    optimizer = torch.optim.SGD(residual.parameters(), lr=learning_rate)
    targets = torch.cat([rows.y[:, None].to(offset), offset], dim=1)
    for batch in plan.batches(noise, len(rows.y), rows.groups):
        groups = None if rows.groups is None else rows.groups[batch]
        gradient.step(rows.z[batch], targets[batch], plan.clip_and_noise, noise, groups)
        optimizer.step()


def _loss_over_offset(
    outputs: Float[Tensor, "b classes"], targets: Float[Tensor, "b more"]
) -> Float[Tensor, "b"]:
    """Cross-entropy of outputs plus offset; a target is the label and the offset in one row."""
    return F.cross_entropy(outputs + targets[:, 1:], targets[:, 0].long(), reduction="none")


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
    """The residual with the least loss; n >= 1.

    Args:
        z: representations of n >= 1 rows.
        y: their classes.
        offset: logits that the residual is added to.
        l2: weight of |V|^2 / 2n in the loss, 0 or more.
    """
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

    Args:
        z: representations of n rows; of none, the first offset stands as it is.
        y: their classes.
        offsets: logits that a residual may be added to, by name; at least one.
        rng: divides the rows into folds.
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
