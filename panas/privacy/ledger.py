"""The ledger: what every client has spent, written down before its data is touched.

One append-only JSONL file a run. `open_account` notes a client's budget; `charge` appends an
event, forces it to disk and only then returns the receipt without which nothing can be released
(`panas.privacy.release`). A process that dies after `charge` has spent what it charged.

A client's total is the composition of all its events. An event without protection (the paper's
raw representations, a search that looks at private data) makes the total infinite; it is refused
unless the account says that it may happen, and the protected part is bounded all the same.
"""

import math
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from panas.errors import BadInput, BudgetExhausted
from panas.privacy.accounting import (
    ACCOUNTANT,
    Event,
    Unprotected,
    event_from_json,
    event_to_json,
)
from panas.privacy.budget import Budget
from panas.privacy.plan import cost
from panas.store import append_line, exclusive, read_lines

Phase = Literal["search", "training", "release"]

_ISSUER = object()


class Receipt:
    """Proof that the ledger was charged; only `Ledger.charge` makes one."""

    __slots__ = ("_used", "client", "event", "id", "mechanism", "round")

    def __init__(
        self, issuer: object, id: str, client: int, mechanism: str, event: Event, round: int | None
    ) -> None:
        if issuer is not _ISSUER:
            raise BadInput("expected a receipt from Ledger.charge, got a forged one; charge first")
        self.id, self.client, self.mechanism = id, client, mechanism
        self.event, self.round = event, round
        self._used = False

    def use(self) -> None:
        """Note that something was released for this charge; it pays for one release only.

        Raises:
            BadInput: at the second time.

        """
        if self._used:
            raise BadInput("expected a fresh receipt, got one that paid for a release already")
        self._used = True


@dataclass(frozen=True)
class Entry:
    """One charge as it stands in the ledger."""

    id: str
    client: int
    phase: Phase
    mechanism: str
    event: Event
    recipient: str
    round: int | None
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Account:
    """A client's budget, its charges in order, and whether unprotected events are allowed."""

    client: int
    budget: Budget
    allow_unprotected: bool
    entries: tuple[Entry, ...]

    def events(self, phase: Phase | None = None) -> list[Event]:
        """The events of one phase, or of all."""
        return [e.event for e in self.entries if phase in (None, e.phase)]

    def protected(self) -> list[Event]:
        """All events that have a finite price."""
        return [e for e in self.events() if not isinstance(e, Unprotected)]

    def spent(self, phase: Phase | None = None) -> float:
        """Epsilon of one phase alone, or of everything; infinite if anything is unprotected."""
        return cost(self.events(phase), self.budget)

    def spent_protected(self) -> float:
        """Epsilon of everything that has a finite price: what the budget bounds."""
        return cost(self.protected(), self.budget)


class Ledger:
    """The ledger of a run, at `path`; safe to use from several processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open_account(
        self, client: int, budget: Budget, *, allow_unprotected: bool = False
    ) -> Account:
        """Note a client's budget once; opening it again with the same terms changes nothing.

        Raises:
            BadInput: if the client has an account on other terms.

        """
        with exclusive(self.path):
            accounts = self._read()
            known = accounts.get(client)
            if known is None:
                known = Account(client, budget, allow_unprotected, ())
                append_line(
                    self.path,
                    {
                        "kind": "account",
                        "client": client,
                        "epsilon": _number(budget.epsilon),
                        "delta": budget.delta,
                        "allow_unprotected": allow_unprotected,
                        "unit": "one training sample",
                        "relation": "add-or-remove-one",
                    },
                )
        if (known.budget, known.allow_unprotected) != (budget, allow_unprotected):
            raise BadInput(
                f"expected client {client} to keep its budget of epsilon {known.budget.epsilon:g}, "
                f"delta {known.budget.delta:g}, allow_unprotected {known.allow_unprotected}, got "
                f"epsilon {budget.epsilon:g}, delta {budget.delta:g}, {allow_unprotected}; start a "
                "new run"
            )
        return known

    def charge(
        self,
        client: int,
        event: Event,
        *,
        phase: Phase,
        mechanism: str,
        recipient: str,
        sensitivity: float | None,
        subset: str = "train",
        round: int | None = None,
    ) -> Receipt:
        """Append an event to a client's account, on disk before this returns.

        Args:
            client: whose data will be touched.
            event: what is about to happen.
            phase: which part of the run it belongs to.
            mechanism: the field's name of it, say "dp-sgd".
            recipient: who will see the outcome.
            sensitivity: L2 sensitivity; None where nothing bounds it.
            subset: which of the client's samples are touched.
            round: round of the federation, if any.

        Raises:
            BudgetExhausted: if the event does not fit; the ledger is unchanged.
            BadInput: if the client has no account, or the event is unprotected without leave.

        """
        with exclusive(self.path):
            account = self.account(client)
            if isinstance(event, Unprotected):
                if not account.allow_unprotected:
                    raise BadInput(
                        f"expected every event of client {client} to be protected, got "
                        f"{mechanism} in the {phase}, which has epsilon infinity; use --preset "
                        "paper, or set privacy.allow_unprotected=true"
                    )
            else:
                total = cost([*account.protected(), event], account.budget)
                if not total <= account.budget.epsilon:
                    raise BudgetExhausted(
                        f"expected client {client} to stay within epsilon "
                        f"{account.budget.epsilon:g}, got {total:.3f} with the next {mechanism}; "
                        "stopped before it, the last valid model is kept; raise --epsilon or plan "
                        "fewer rounds"
                    )
            id = uuid.uuid4().hex
            append_line(
                self.path,
                {
                    "kind": "charge",
                    "id": id,
                    "time": time.time(),
                    "client": client,
                    "phase": phase,
                    "mechanism": mechanism,
                    "recipient": recipient,
                    "event": event_to_json(event),
                    "sensitivity": sensitivity,
                    "relation": "add-or-remove-one",
                    "subset": subset,
                    "round": round,
                    "accountant": ACCOUNTANT,
                },
            )
        return Receipt(_ISSUER, id, client, mechanism, event, round)

    def account(self, client: int) -> Account:
        """One client's account.

        Raises:
            BadInput: if it was never opened.

        """
        accounts = self._read()
        if client not in accounts:
            raise BadInput(
                f"expected an account of client {client} in {self.path}, got "
                f"{len(accounts)} others; open it before charging"
            )
        return accounts[client]

    def accounts(self) -> list[Account]:
        """All accounts, by client."""
        accounts = self._read()
        return [accounts[c] for c in sorted(accounts)]

    def _read(self) -> dict[int, Account]:
        opened: dict[int, tuple[Budget, bool]] = {}
        entries: dict[int, list[Entry]] = {}
        for number, r in enumerate(read_lines(self.path), start=1):
            try:
                client = int(r["client"])
                if r["kind"] == "account":
                    if client in opened:
                        raise ValueError("a second account would hide the charges of the first")
                    budget = Budget(float(r["epsilon"]), r["delta"])
                    opened[client] = (budget, r["allow_unprotected"])
                    entries[client] = []
                else:
                    entries[client].append(_entry(r))
            except (KeyError, TypeError, ValueError) as e:
                raise BadInput(
                    f"expected a ledger entry on line {number} of {self.path}, got {r!r:.80}"
                ) from e
        return {c: Account(c, b, free, tuple(entries[c])) for c, (b, free) in opened.items()}


def _entry(r: dict[str, Any]) -> Entry:
    event = event_from_json(r["event"])
    return Entry(
        r["id"], r["client"], r["phase"], r["mechanism"], event, r["recipient"], r["round"], r
    )


def _number(x: float) -> float | str:
    """JSON has no infinity; `float` reads the word back."""
    return x if math.isfinite(x) else "infinity"


def totals(accounts: Iterable[Account]) -> list[dict[str, Any]]:
    """One row a client: budget, spent, and the parts for release and search, JSON-able."""
    return [
        {
            "client": a.client,
            "budget": _number(a.budget.epsilon),
            "delta": a.budget.delta,
            "spent": _number(a.spent()),
            "spent_protected": _number(a.spent_protected()),
            "training": _number(a.spent("training")),
            "release": _number(a.spent("release")),
            "search": _number(a.spent("search")),
            "charges": len(a.entries),
        }
        for a in accounts
    ]
