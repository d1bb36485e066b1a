"""What may leave a client: releases of its representations, each with its guarantee.

A representation is computed by reading the private sample again, so that DP-SGD weights do not
protect it: post-processing covers functions of the weights alone. What leaves is therefore a
mechanism of its own, charged to the ledger first. Labels are covered by the same mechanism.

| kind | what it is charged as | who can tell what from it |
|---|---|---|
| `moments` | `Gaussian(m)` | nobody more of a sample than its epsilon allows |
| `class_sums` | `Gaussian(m)` | the same |
| `public_rows` | `PostProcessing()` | what DP-SGD's weights tell of private samples, no more |
| `raw_rows` | `Unprotected()` | anyone can reconstruct the sample |

The mechanisms, their notation and their sensitivities are in `panas.privacy.release.mechanisms`.
With `Unprotected()` any kind leaves without noise: what a run without a budget does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    Event,
    Gaussian,
    PostProcessing,
    Unprotected,
)
from panas.privacy.ledger.account import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.receipt import Receipt
from panas.privacy.noise import NoiseSource
from panas.privacy.release.mechanisms import (
    Kind,
    check_rows,
    class_sums,
    moments,
    noise_scale,
    sensitivity,
)
from panas.runtime.errors import BadInput

Rows = tuple[Float[Tensor, "n d"], Int[Tensor, "n"]]
ReleaseEvent = Gaussian | PostProcessing | Unprotected

CHARGED_AS: Mapping[Kind, type[Event]] = {
    "moments": Gaussian,
    "class_sums": Gaussian,
    "public_rows": PostProcessing,
    "raw_rows": Unprotected,
}
"""The event that says what a kind is; `Unprotected` says of any kind that it had no noise."""


@dataclass(frozen=True)
class Released:
    """What leaves a client. It cannot be built without the receipt of its charge."""

    kind: Kind
    arrays: Mapping[str, Tensor]
    receipt: Receipt

    def __post_init__(self) -> None:
        if not isinstance(self.receipt, Receipt) or self.receipt.charge.mechanism != self.kind:
            raise BadInput(
                f"expected the receipt of a charge for {self.kind!r}, got {self.receipt!r}; "
                "charge the ledger first"
            )
        self.receipt.use()


def release(
    kind: Kind,
    rows: Callable[[], Rows],
    *,
    classes: int,
    event: ReleaseEvent,
    ledger: Ledger,
    client: int,
    round: int,
    noise: NoiseSource,
) -> Released:
    """Charge the ledger, then read the data and let what the mechanism makes of it leave.

    Args:
        kind: see the table above.
        rows: reads the representations (n, d) and labels (n,) of the samples; called only after
            the charge is on disk. For "public_rows" of public samples, else of private ones.
        classes: number of classes; labels are in 0 .. classes - 1.
        event: what the kind is charged as, or `Unprotected()` for no noise.
        ledger: where it is charged.
        client: whose data it is.
        round: round of the federation.
        noise: source of the noise.

    Returns:
        Arrays in float32, labels in int64. moments: "B" (classes, d) and "A" (d (d + 1) / 2,), the
        upper triangle by rows. class_sums: "S" (classes, d) and "counts" (classes,). All kinds of
        rows: "z" (n, d) and "y" (n,).

    Raises:
        BudgetExhausted, BadInput: from the charge; or if the event is not the kind's, the account
            is of another relation, a representation is not finite or a label is no class. Nothing
            leaves then, and what was charged stays charged.

    Privacy: epsilon-delta of the event under the account's relation, labels included; none for
    `Unprotected()`.

    """
    _check_event(kind, event, ledger, client)
    scale = noise_scale(kind, event.noise_multiplier) if isinstance(event, Gaussian) else 0.0
    with ledger.charge(
        client,
        Charge(
            event=event,
            phase="release",
            mechanism=kind,
            recipient="server",
            sensitivity=sensitivity(kind, ADD_OR_REMOVE),
            round=round,
        ),
    ) as receipt:
        z, y = rows()
        check_rows(z, y, classes, client)
        z, y = z.detach().cpu(), y.cpu().long()
        if kind == "moments":
            arrays = moments(z, y, classes, scale, noise)
        elif kind == "class_sums":
            arrays = class_sums(z, y, classes, scale, noise)
        else:
            arrays = {"z": z.float(), "y": y}
    return Released(kind, arrays, receipt)


def _check_event(kind: Kind, event: ReleaseEvent, ledger: Ledger, client: int) -> None:
    if isinstance(event, Unprotected):
        return
    if not isinstance(event, CHARGED_AS[kind]):
        raise BadInput(
            f"expected {kind} to be charged as what it is, {CHARGED_AS[kind].__name__}, got "
            f"{event}; give that event, or Unprotected() for no noise"
        )
    account = ledger.account(client)
    if isinstance(event, PostProcessing):
        if any(isinstance(e, Unprotected) for e in account.events("training")):
            raise BadInput(
                "expected public rows of weights that were trained under DP, got weights without; "
                "they are no post-processing: charge Unprotected()"
            )
    elif account.relation != ADD_OR_REMOVE:
        raise BadInput(
            f"expected an account under {ADD_OR_REMOVE} for {kind}, got one under "
            f"{account.relation}; open it with that relation"
        )


def label_histogram(
    labels: Callable[[], Int[Tensor, "n"]],
    *,
    classes: int,
    event: Gaussian | Unprotected,
    ledger: Ledger,
    client: int,
    noise: NoiseSource,
) -> Float[Tensor, "classes"]:
    """The client's label counts with Gaussian noise, charged to its ledger.

    L2 sensitivity 1 under add-or-remove-one, sqrt(2) under replace-one; the account says which.
    It sizes the public sample on which the client searches, and so shapes what leaves later.
    `event` is `Gaussian(m)`, or `Unprotected()` for the exact counts.
    """
    delta = sensitivity("label-histogram", ledger.account(client).relation)
    with ledger.charge(
        client,
        Charge(
            event=event,
            phase="search",
            mechanism="label-histogram",
            recipient="whoever sees the architecture",
            sensitivity=delta,
        ),
    ):
        counts = torch.bincount(labels(), minlength=classes).double()
        if not isinstance(event, Unprotected):
            counts = counts + (delta or 0.0) * event.noise_multiplier * noise.normal(classes)
    return counts.float()
