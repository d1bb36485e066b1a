"""What may leave a client: releases of its representations, each with its guarantee.

A representation is computed by reading the private sample again, so that DP-SGD weights do not
protect it: post-processing covers functions of the weights alone. What leaves is therefore a
mechanism of its own, charged to the ledger first. Labels are covered by the same mechanism.

| kind | what leaves | L2 sensitivity |
|---|---|---|
| `moments` | A = sum u u^T and B = sum e_y u^T, with Gaussian noise | sqrt(2) |
| `class_sums` | S = sum e_y u^T and counts n_c, with Gaussian noise | sqrt(2) |
| `raw_rows` | z and y of every sample (the paper) | none: epsilon is infinity |

u is z clipped to norm 1 and m is the noise multiplier: each number gets noise of standard
deviation s = sqrt(2) m, the off-diagonal numbers of the symmetric A get s / sqrt(2) because each
stands for two equal entries. Adjacency: one sample added or removed. (For S alone the sensitivity
is 1; the counts, released with it, raise it to sqrt(2).)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.errors import BadInput
from panas.privacy.accounting import Gaussian, Unprotected
from panas.privacy.ledger import Ledger, Receipt
from panas.privacy.randomness import NoiseSource

Kind = Literal["moments", "class_sums", "raw_rows"]
Rows = tuple[Float[Tensor, "n d"], Int[Tensor, "n"]]

SENSITIVITY: Mapping[str, float | None] = {
    "moments": math.sqrt(2.0),
    "class_sums": math.sqrt(2.0),
    "raw_rows": None,
}
"""L2 sensitivity of each kind; None where nothing bounds it."""


@dataclass(frozen=True)
class Released:
    """What leaves a client. It cannot be built without the receipt of its charge."""

    kind: Kind
    arrays: Mapping[str, Tensor]
    receipt: Receipt

    def __post_init__(self) -> None:
        if not isinstance(self.receipt, Receipt) or self.receipt.mechanism != self.kind:
            raise BadInput(
                f"expected the receipt of a charge for {self.kind!r}, got {self.receipt!r}; "
                "charge the ledger first"
            )
        self.receipt.use()


def clip_rows(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Scale rows with norm above 1 down to norm 1; leave the others."""
    return z / z.norm(dim=1, keepdim=True).clamp(min=1.0)


def release(
    kind: Kind,
    rows: Callable[[], Rows],
    *,
    classes: int,
    event: Gaussian | Unprotected,
    ledger: Ledger,
    client: int,
    round: int,
    noise: NoiseSource,
) -> Released:
    """Charge the ledger, then read the data and let a noised summary of it leave.

    Args:
        kind: see the table above.
        rows: reads the representations (n, d) and labels (n,) of the private samples; called only
            after the charge is on disk.
        classes: number of classes; labels are in 0 .. classes - 1.
        event: `Gaussian(m)`; `Unprotected()` for no noise, which "raw_rows" demands.
        ledger: where it is charged.
        client: whose data it is.
        round: round of the federation.
        noise: source of the noise.

    Returns:
        Arrays in float32. moments: "B" (classes, d) and "A" (d (d + 1) / 2,), the upper triangle
        by rows. class_sums: "S" (classes, d) and "counts" (classes,). raw_rows: "z" (n, d) and
        "y" (n,).

    Raises:
        BudgetExhausted, BadInput: from the charge; or if a representation is not finite.

    Privacy: epsilon-delta of `Gaussian(m)` under add-or-remove-one, labels included; none for
    `Unprotected()`.

    """
    if not isinstance(event, Unprotected) and (
        kind == "raw_rows" or not isinstance(event, Gaussian)
    ):
        raise BadInput(
            f"expected {kind} to be charged as what it is, got {event}; give Gaussian(m) for "
            "noised sums, Unprotected() for rows"
        )
    receipt = ledger.charge(
        client,
        event,
        phase="release",
        mechanism=kind,
        recipient="server",
        sensitivity=SENSITIVITY[kind],
        round=round,
    )
    z, y = rows()
    if not bool(torch.isfinite(z).all()):
        raise BadInput(
            f"expected finite representations from client {client}, got NaN or infinity; "
            "lower the learning rate or the clipping norm"
        )
    z, y = z.detach().cpu(), y.cpu()
    if kind == "raw_rows":
        return Released(kind, {"z": z.float(), "y": y}, receipt)
    m = 0.0 if isinstance(event, Unprotected) else event.noise_multiplier
    scale = math.sqrt(2.0) * m
    mechanism = moments if kind == "moments" else class_sums
    return Released(kind, mechanism(z, y, classes, scale, noise), receipt)


def moments(
    z: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int, scale: float, noise: NoiseSource
) -> dict[str, Tensor]:
    """Noised second moments; `scale` is the noise's standard deviation s."""
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
    """Noised sums of representations and counts by class; `scale` is the standard deviation s."""
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


def label_histogram(
    labels: Callable[[], Int[Tensor, "n"]],
    *,
    classes: int,
    event: Gaussian | Unprotected,
    ledger: Ledger,
    client: int,
    noise: NoiseSource,
) -> Float[Tensor, "classes"]:
    """The client's label counts with Gaussian noise (L2 sensitivity 1), charged to its ledger.

    It sizes the public sample on which the client searches, and so shapes what leaves later.
    `event` is `Gaussian(m)`, or `Unprotected()` for the exact counts.
    """
    ledger.charge(
        client,
        event,
        phase="search",
        mechanism="label-histogram",
        recipient="whoever sees the architecture",
        sensitivity=1.0,
    )
    counts = torch.bincount(labels(), minlength=classes).double()
    if not isinstance(event, Unprotected):
        counts = counts + event.noise_multiplier * noise.normal(classes)
    return counts.float()
