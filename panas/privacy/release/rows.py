"""What kinds of a release share: checking, clipping, weighing and summing rows."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.privacy.release.estimate import Rows
from panas.privacy.unit import members
from panas.runtime.errors import BadInput

Length = Callable[[Float[Tensor, "m d"], Int[Tensor, "m"]], float]
"""How far rows and labels that are added move a release, in L2 norm."""


def clip_rows(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Scale rows with norm above 1 down to norm 1; leave the others."""
    return z / z.norm(dim=1, keepdim=True).clamp(min=1.0)


def unit_weights(rows: Rows, most: float, length: Length) -> Float[Tensor, "n"]:
    """A weight of at most 1 a row, with which a whole unit moves a release by `most` at most.

    A row that is a unit has weight 1: its own clip bounds it. The rows of a group share the largest
    weight that keeps them to the bound: rows that point apart, or have several classes, move a
    release less than as many equal ones, so that they weigh more than their mean would.
    """
    weights = torch.ones(len(rows.y), dtype=torch.float64)
    for unit in members(rows.groups):
        moved = length(rows.z[unit], rows.y[unit])
        weights[unit] = min(1.0, most / moved) if moved > 0 else 1.0
    return weights


def sums_by_class(
    u: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int
) -> Float[Tensor, "classes d"]:
    """Sum of the rows of each class."""
    return torch.zeros(classes, u.shape[1], dtype=u.dtype).index_add_(0, y, u)


def counts_by_class(
    weights: Float[Tensor, "n"], y: Int[Tensor, "n"], classes: int
) -> Float[Tensor, "classes"]:
    """Sum of the weights of each class."""
    return sums_by_class(weights[:, None], y, classes)[:, 0]


def checked_rows(rows: Rows, classes: int, client: int) -> Rows:
    """The rows on the CPU, those that are not finite as zeros; BadInput for what is no class.

    A refusal would reveal the row that caused it.
    """
    z, y = rows.z.detach().cpu(), rows.y.cpu().long()
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise BadInput(
            f"expected labels of client {client} in 0 to {classes - 1}, got others; check the "
            "data set's classes"
        )
    finite = torch.isfinite(z).all(dim=1, keepdim=True)
    return Rows(torch.where(finite, z, torch.zeros_like(z)), y, rows.groups)
