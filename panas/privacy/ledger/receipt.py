"""Proof of a charge: nothing is released without one (`panas.privacy.release.gate`)."""

from collections.abc import Callable

from panas.privacy.ledger.charge import Charge
from panas.runtime.errors import BadInput

ISSUER = object()  # what `Ledger.charge` shows to make a receipt


class Receipt:
    """Proof that the ledger was charged; only `Ledger.charge` makes one.

    As a context manager it notes in the ledger that the block ended well; after an exception it
    notes nothing, and the charge stays spent.
    """

    __slots__ = ("_commit", "_done", "_used", "charge", "id")

    def __init__(
        self, issuer: object, id: str, charge: Charge, commit: Callable[[str], None]
    ) -> None:
        if issuer is not ISSUER:
            raise BadInput("expected a receipt from Ledger.charge, got a forged one; charge first")
        self.id, self.charge = id, charge
        self._commit = commit
        self._used = self._done = False

    def use(self) -> None:
        """Note a release for this charge, which pays for one only: BadInput at the second."""
        if self._used:
            raise BadInput("expected a fresh receipt, got one that paid for a release already")
        self._used = True

    def __enter__(self) -> "Receipt":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and not self._done:
            self._commit(self.id)
            self._done = True
