"""Whether a site's network may leave it, and what covers that: its run's charges, or its file.

| promise | what covers the network |
|---|---|
| `protected` | the charges of its run, or the epsilon in its file, which are finite |
| `stays` | nothing: it was trained without noise (`privacy.network` is "stays") |
| `unprotected` | nothing: its run had no budget |
| `selected` | too little: validation samples selected its round and head (methods of rounds) |
| `uncovered` | too little: a charge of its run has no finite epsilon |
| `unknown` | nobody knows: its file says nothing of it, and lies in no site |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dprbft.run.models import SavedModels
from dprbft.site.site import check_book
from panas.privacy.ledger.account import Account, number

Covered = Literal["protected", "stays", "unprotected", "selected", "uncovered", "unknown"]
STATED: dict[str, Covered] = {"stays": "stays", "unprotected": "unprotected"}


@dataclass(frozen=True)
class Promise:
    """What covers a network."""

    covered: Covered
    epsilon: float | None = None  # of all charges of its run; None: unknown
    delta: float | None = None
    account: Account | None = None  # the charges of its run; None where it lies in no site

    @property
    def may_leave(self) -> bool:
        """Whether whoever sees it learns no more than epsilon says."""
        return self.covered == "protected"

    def to_json(self) -> dict[str, Any]:
        """As a file of the network says it; `promise_of` reads it again."""
        note = "protected" if self.may_leave else STATED.get(self.covered, "stays")
        figures = {"epsilon": self.epsilon, "delta": self.delta}
        return {"network": note} | {k: number(x) for k, x in figures.items() if x is not None}


def promise_of(saved: SavedModels, notes: Mapping[str, Any]) -> Promise:
    """What covers a network; BadInput if the ledger of its site is damaged or an older copy.

    Args:
        saved: where it is.
        notes: of its file.
    """
    note, account = notes.get("network"), None
    epsilon, delta = notes.get("epsilon"), notes.get("delta")
    if saved.site is not None:
        account = check_book(saved.site).account().as_owned(saved.site.run)
        epsilon, delta = account.spent(), account.budget.delta
    figures = (None if epsilon is None else float(epsilon), delta, account)
    if note in STATED:
        return Promise(STATED[note], *figures)
    if account is not None and note != "protected":
        return Promise("selected", *figures)
    if figures[0] is None:
        return Promise("unknown", *figures)
    return Promise("protected" if math.isfinite(figures[0]) else "uncovered", *figures)
