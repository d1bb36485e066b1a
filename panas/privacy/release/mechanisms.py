"""The mechanisms behind the releases: pure functions of rows and noise, and their sensitivities.

| symbol | name |
|---|---|
| z, y | representations (n, d) and labels (n,) |
| u | z clipped to norm 1 |
| k | `classes` |
| m | noise multiplier; s = Delta m is the noise's standard deviation |

| kind | what leaves | relation | L2 sensitivity Delta |
|---|---|---|---|
| `moments` | A = sum u u^T, B = sum e_y u^T, noised | add-or-remove-one | sqrt(2) |
| `class_sums` | S = sum e_y u^T and counts n_c, noised | add-or-remove-one | sqrt(2) |
| `public_rows` | z and y of public samples | none is read | 0 |
| `raw_rows` | z and y of every sample (the paper) | | nothing bounds it |

Off-diagonal numbers of the symmetric A get s / sqrt(2), because each stands for two equal entries.
(For S alone the sensitivity is 1; the counts, released with it, raise it to sqrt(2).)

Source: Dwork and Roth 2014 (Gaussian mechanism); Sheffet 2017 (moments).
"""

import math
from collections.abc import Mapping
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.privacy.accounting.events import ADD_OR_REMOVE, Relation
from panas.privacy.noise import NoiseSource
from panas.runtime.errors import BadInput

Kind = Literal["moments", "class_sums", "public_rows", "raw_rows"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SENSITIVITY: Mapping[tuple[str, Relation], float] = {
    ("moments", "add-or-remove-one"): math.sqrt(2.0),
    ("class_sums", "add-or-remove-one"): math.sqrt(2.0),
    ("public_rows", "add-or-remove-one"): 0.0,
    ("label-histogram", "add-or-remove-one"): 1.0,
    ("label-histogram", "replace-one"): math.sqrt(2.0),
}


def sensitivity(kind: Kind | Literal["label-histogram"], relation: Relation) -> float | None:
    """How far one sample can move what is released, in L2 norm; None where nothing bounds it."""
    return _SENSITIVITY.get((kind, relation))


def noise_scale(kind: Kind, noise_multiplier: float | None) -> float:
    """Standard deviation s of the noise on each number of a release; 0 where there is none."""
    return (sensitivity(kind, ADD_OR_REMOVE) or 0.0) * (noise_multiplier or 0.0)


def clip_rows(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Scale rows with norm above 1 down to norm 1; leave the others."""
    return z / z.norm(dim=1, keepdim=True).clamp(min=1.0)


def moments(
    z: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int, scale: float, noise: NoiseSource
) -> dict[str, Tensor]:
    """Noised second moments: "B" (classes, d) and "A" (d (d + 1) / 2,), upper triangle by rows.

    `scale` is s.
    """
    u = clip_rows(z.double())
    d = u.shape[1]
    B = _class_sums(u, y, classes) + scale * noise.normal(classes, d)
    row, column = torch.triu_indices(d, d)
    off_diagonal = torch.where(row == column, 1.0, math.sqrt(0.5)).double()
    A = (u.T @ u)[row, column] + scale * off_diagonal * noise.normal(len(row))
    return {"A": A.float(), "B": B.float()}


def class_sums(
    z: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int, scale: float, noise: NoiseSource
) -> dict[str, Tensor]:
    """Noised sums "S" (classes, d) and "counts" (classes,) by class; `scale` is s."""
    u = clip_rows(z.double())
    S = _class_sums(u, y, classes) + scale * noise.normal(classes, u.shape[1])
    counts = torch.bincount(y, minlength=classes).double() + scale * noise.normal(classes)
    return {"S": S.float(), "counts": counts.float()}


def _class_sums(
    u: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int
) -> Float[Tensor, "classes d"]:
    return torch.zeros(classes, u.shape[1], dtype=u.dtype).index_add_(0, y, u)


def unpack_symmetric(upper: Float[Tensor, "k"], d: int) -> Float[Tensor, "d d"]:
    """The symmetric matrix whose upper triangle, by rows, is `upper` (d (d + 1) / 2 numbers)."""
    row, column = torch.triu_indices(d, d)
    A = torch.zeros(d, d, dtype=upper.dtype)
    A[row, column] = upper
    A[column, row] = upper
    return A


def check_rows(z: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int, client: int) -> None:
    """Refuse rows that no mechanism is proved for, before any runs.

    Raises:
        BadInput: if a representation is not finite, or a label is no class.

    """
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
