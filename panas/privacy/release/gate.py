"""The gate: what leaves a site is charged to its ledger first, and carries the receipt.

A representation is computed by reading the private sample again, so that DP-SGD weights do not
protect it: post-processing covers functions of the weights alone. What leaves is therefore a
mechanism of its own (`panas.privacy.release.kind`), which covers the labels too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from panas.privacy.accounting.events import ADD_OR_REMOVE, Gaussian, PostProcessing, Unprotected
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.charge import Charge, Receipt, SecureSum
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import ReleaseEvent, kind_named, noise_scale
from panas.privacy.release.rows import checked_rows
from panas.privacy.unit import check_unit
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class Released:
    """What leaves a site; it cannot be built without the receipt of its charge."""

    kind: str
    arrays: Mapping[str, Tensor]
    receipt: Receipt
    site: int  # who sends it

    def __post_init__(self) -> None:
        if not isinstance(self.receipt, Receipt) or self.receipt.charge.mechanism != self.kind:
            raise BadInput(
                f"expected the receipt of a charge for {self.kind!r}, got {self.receipt!r}; "
                "charge the ledger first"
            )
        self.receipt.use()


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """What is to leave."""

    kind: str
    event: ReleaseEvent  # the kind's, or `Unprotected()` for no noise
    site: int
    round: int
    classes: int
    subset: str = "train"  # of the site's samples that `rows` reads, as its account names them

    def charge(self, sensitivity: float | None, trust: SecureSum | None = None) -> Charge:
        """What is charged before it leaves."""
        return Charge(
            event=self.event,
            phase="release",
            mechanism=self.kind,
            recipient="server",
            sensitivity=sensitivity,
            subset=self.subset,
            round=self.round,
            trust=trust,
        )

    def check_relation(self, account: Account) -> None:
        """Refuse an account of another relation than releases are priced under."""
        if account.relation != ADD_OR_REMOVE:
            raise BadInput(
                f"expected an account under {ADD_OR_REMOVE} for {self.kind}, got one under "
                f"{account.relation}; open it with that relation"
            )


def release(
    request: ReleaseRequest,
    rows: Callable[[], Rows | tuple[Tensor, Tensor]],
    *,
    ledger: Ledger,
    noise: NoiseSource,
    keep: Callable[[Released], None] | None = None,
) -> Released:
    """Charge the ledger, then read the data and let what the mechanism makes of it leave.

    `rows` reads representations, labels, and groups where they are the privacy unit; it is
    called once the charge is on disk. What takes time or memory, and may fail, is done before, and
    `rows` gives what is there already: nothing is charged for work that cannot be done, and what
    was computed before the charge stays in memory. A representation that is not finite counts as a
    row of zeros. BudgetExhausted or BadInput from the charge, or if the event is not the kind's,
    the account is of another relation, or a label is no class: nothing leaves, and what was charged
    stays so.

    Privacy: epsilon-delta of the event for one unit added or removed, labels included; none for
    `Unprotected()`.

    `keep` writes what leaves to the disk, from where alone it is sent, before the charge is noted
    as used. With it, a release that died under way may be made again for the same charge: what was
    drawn before was never sent, so that one draw leaves for one charge. Whether a process dies must
    not depend on what was drawn, else what leaves is drawn from those that it survives: between
    charge and `keep` nothing refuses, or branches on, a number. A kill from outside sees none.
    """
    event, kind, account = request.event, kind_named(request.kind), ledger.account()
    _check_event(request, account)
    scale = noise_scale(kind, event.noise_multiplier) if isinstance(event, Gaussian) else 0.0
    charge = request.charge(kind.SENSITIVITY)
    with ledger.charge(charge, resumes=keep is not None) as receipt:
        read = Rows(*rows())
        if kind.READS == "training":
            check_unit(account.unit, read.groups)
        checked = checked_rows(read, request.classes, request.site)
        arrays = kind.run(checked, request.classes, scale, noise)
        released = Released(request.kind, arrays, receipt, request.site)
        if keep is not None:
            keep(released)
    return released


def _check_event(request: ReleaseRequest, account: Account) -> None:
    event, wanted = request.event, kind_named(request.kind).CHARGED_AS
    if isinstance(event, Unprotected):
        return
    if not isinstance(event, wanted):
        raise BadInput(
            f"expected {request.kind} to be charged as what it is, {wanted.__name__}, got "
            f"{event}; give that event, or Unprotected() for no noise"
        )
    if isinstance(event, PostProcessing):
        if any(isinstance(e, Unprotected) for e in account.events("training")):
            raise BadInput(
                "expected public rows of weights that were trained under DP, got weights without; "
                "they are no post-processing: charge Unprotected()"
            )
    else:
        request.check_relation(account)
