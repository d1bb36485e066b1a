"""What kinds of a release share: checking, clipping and summing rows."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.privacy.release.estimate import Rows
from panas.runtime.errors import BadInput


def clip_rows(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Scale rows with norm above 1 down to norm 1; leave the others."""
    return z / z.norm(dim=1, keepdim=True).clamp(min=1.0)


def sums_by_class(
    u: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int
) -> Float[Tensor, "classes d"]:
    """Sum of the rows of each class."""
    return torch.zeros(classes, u.shape[1], dtype=u.dtype).index_add_(0, y, u)


def check_rows(rows: Rows, classes: int, client: int) -> None:
    """Refuse rows that no mechanism is proved for: not finite, or with a label that is no class."""
    z, y = rows
    if not bool(torch.isfinite(z).all()):
        raise BadInput(
            f"expected finite representations from client {client}, got NaN or infinity; "
            "lower the learning rate or the clipping norm"
        )
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise BadInput(
            f"expected labels of client {client} in 0 to {classes - 1}, got {int(y.min())} to "
            f"{int(y.max())}; check the data set's classes"
        )
