"""What kinds of a release share: checking, clipping, weighing and summing rows.

**A sum's sensitivity holds in floating point.** Rows are clipped to `SHORTER` and cut to a grid of
2^-20 (`grid_rows`). Products of two numbers are whole steps of 2^-40, of which at most 2^53 add up
in `AT_ONCE` rows: float64 holds these sums exactly, whatever their order, and one row more adds its
own part and changes no other bit. What rounds is:

| what | by how much, in L2 norm |
|---|---|
| adding up parts of `AT_ONCE` rows, n rows in all | n 2^-53 a part: below n^2 2^-66 |
| rows of a group, whose weights are no whole steps | within a part AT_ONCE n 2^-53, too |

Both together stay below 1e-6 for n up to 2^17 with groups, and 2^22 without. A row of norm
`SHORTER` moves sums by 1.3e-6 less than the sensitivity that is claimed, which covers it. Counts
are exact: weights are whole steps of 2^-30.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.features.exact import row_norms
from panas.features.projection import GRID, SHORTER
from panas.privacy.release.estimate import Rows
from panas.privacy.unit import members
from panas.runtime.errors import BadInput

AT_ONCE = 1 << 13  # rows that are added exactly
WEIGHT = 2.0**-30  # step of weights

Length = Callable[[Float[Tensor, "m d"], Int[Tensor, "m"]], float]
"""How far rows and labels that are added move a release, in L2 norm."""


def clip_rows(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Scale rows with norm above 1 down to norm 1; leave the others."""
    return z / z.norm(dim=1, keepdim=True).clamp(min=1.0)


def grid_rows(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows clipped to norm `SHORTER` and cut towards zero to whole steps of `GRID`, float64."""
    wide = z.double()
    scale = (SHORTER / row_norms(wide).clamp(min=SHORTER))[:, None]
    return (wide * scale / GRID).trunc() * GRID


def products(a: Float[Tensor, "n k"], b: Float[Tensor, "n d"]) -> Float[Tensor, "k d"]:
    """The sum of a_i b_i^T over rows, float64; exact for rows on the grid, see the module."""
    total = a.new_zeros(a.shape[1], b.shape[1])
    for part, other in zip(a.split(AT_ONCE), b.split(AT_ONCE), strict=True):
        total += part.T @ other
    return total


def unit_weights(rows: Rows, most: float, length: Length) -> Float[Tensor, "n"]:
    """A weight of at most 1 a row, with which a whole unit moves a release by a bound at most.

    A row that is a unit has weight 1: its own clip bounds it. The rows of a group share the largest
    weight that keeps them to the bound: rows that point apart, or have several classes, move a
    release less than as many equal ones, so that they weigh more than their mean would.

    Args:
        rows: n of them, with groups or without.
        most: bound on what a unit moves the release by, in L2 norm.
        length: how far the weighed rows of a unit move it.
    """
    weights = torch.ones(len(rows.y), dtype=torch.float64)
    for unit in members(rows.groups):
        moved = length(rows.z[unit], rows.y[unit])
        weights[unit] = min(1.0, most / moved) if moved > 0 else 1.0
    return (weights / WEIGHT).floor() * WEIGHT


def sums_by_class(
    u: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int
) -> Float[Tensor, "classes d"]:
    """Sum of the rows of each class.

    Args:
        u: rows (n, d), already clipped and weighed.
        y: their classes (n,), 0 to C - 1.
        classes: C.
    """
    return torch.zeros(classes, u.shape[1], dtype=u.dtype).index_add_(0, y, u)


def counts_by_class(
    weights: Float[Tensor, "n"], y: Int[Tensor, "n"], classes: int
) -> Float[Tensor, "classes"]:
    """Sum of the weights of each class.

    Args:
        weights: of the rows (n,), in [0, 1].
        y: their classes (n,), 0 to C - 1.
        classes: C.
    """
    return sums_by_class(weights[:, None], y, classes)[:, 0]


def checked_rows(rows: Rows, classes: int, site: int) -> Rows:
    """The rows on the CPU, those that are not finite as zeros; BadInput for what is no class.

    A refusal would reveal the row that caused it.

    Args:
        rows: n of them, on any device.
        classes: C; labels must be 0 to C - 1.
        site: number of the site, for the message.
    """
    z, y = rows.z.detach().cpu(), rows.y.cpu().long()
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise BadInput(
            f"expected labels of site {site} in 0 to {classes - 1}, got others; check the "
            "data set's classes"
        )
    finite = torch.isfinite(z).all(dim=1, keepdim=True)
    return Rows(torch.where(finite, z, torch.zeros_like(z)), y, rows.groups)
