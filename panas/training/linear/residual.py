"""A linear residual on a common representation, trained by DP-SGD over a head that is given.

    logits = offset + V u + v

V and v start at zero: without a gain a site keeps the head that it was given. The offset is a
function of releases (the shared head, the log of the noised label frequencies), so that only the
steps read private samples. With log frequencies alone as offset it is DP logistic regression, the
strongest that a site can do by itself on a fixed representation.
"""

import torch
from jaxtyping import Float
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
    """Train V and v in place for one round of `plan`; `offset` holds a row for each of `rows`.

    A row's gradient depends on that row alone, bit for bit: the layer's outputs are exact sums.

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
