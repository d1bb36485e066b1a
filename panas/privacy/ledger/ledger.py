"""The ledger: what every client has spent, written down before its data is touched.

One append-only file a run, in which no line can be changed or lost unnoticed
(`panas.privacy.ledger.chain` says what that detects, and what nothing can). `open_account` notes a
client's budget, relation and subsets; `charge` appends a *reservation*, forces it to disk and only
then returns the receipt without which nothing can be released (`panas.privacy.release.gate`). Used
as a context manager, a receipt notes that what it paid for came to its end. Nothing is ever given
back: a reservation counts as spent whether or not its end was noted, so that a process that dies
has spent what it charged.

Subsets of a client's samples are declared beforehand and disjoint; which sample is in which may
not depend on what the samples are. "train/2" is a part of "train": an event on "train" counts for
every part. Parts compose in parallel: each is bounded by itself, and the total is the worst part.

A client's total is the composition of all its events. An event without protection (the paper's
raw representations, a search that looks at private data) makes the total infinite; it is refused
unless the account says that it may happen, and the protected part is bounded all the same.
"""

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

from panas.privacy.accounting.epsilon import ACCOUNTANT
from panas.privacy.accounting.events import Event, Relation, Unprotected, event_to_json
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import UNIT, Account, Entry, Phase, entry_of, number, within
from panas.privacy.ledger.chain import VERSION, Chain
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import exclusive

_ISSUER = object()


class Receipt:
    """Proof that the ledger was charged; only `Ledger.charge` makes one.

    As a context manager it notes in the ledger, where the block ends well, that what it paid for
    was done. After an exception it notes nothing, and the charge stays spent all the same.
    """

    __slots__ = ("_done", "_ledger", "_used", "client", "event", "id", "mechanism", "round")

    def __init__(
        self,
        issuer: object,
        id: str,
        client: int,
        mechanism: str,
        event: Event,
        round: int | None,
        ledger: "Ledger | None" = None,
    ) -> None:
        if issuer is not _ISSUER:
            raise BadInput("expected a receipt from Ledger.charge, got a forged one; charge first")
        self.id, self.client, self.mechanism = id, client, mechanism
        self.event, self.round = event, round
        self._ledger = ledger
        self._used = self._done = False

    def use(self) -> None:
        """Note that something was released for this charge; it pays for one release only.

        Raises:
            BadInput: at the second time.

        """
        if self._used:
            raise BadInput("expected a fresh receipt, got one that paid for a release already")
        self._used = True

    def __enter__(self) -> "Receipt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._ledger is not None and not self._done:
            self._ledger._commit(self.id)
            self._done = True


@dataclass
class _Book:
    """The accounts of one file as far as this process has read it."""

    chain: Chain
    accounts: dict[int, Account] = field(default_factory=dict)
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def refresh(self, *, locked: bool) -> None:
        """Take in what was appended since the last time."""
        with self.lock, self._all_or_anew():
            anew, records = self.chain.refresh(locked=locked)
            if anew:
                self.accounts, self.entries, self.places = {}, {}, {}
            for record in records:
                self.take(record)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line; the first one stands under a header."""
        with self.lock, self._all_or_anew():
            if self.chain.head()[0] == 0:
                self.take(self.chain.append({"kind": "ledger", "version": VERSION, "unit": UNIT}))
            self.take(self.chain.append(record))

    @contextmanager
    def _all_or_anew(self) -> Iterator[None]:
        """Read everything anew next time if a line may have been read that was not entered."""
        try:
            yield
        except BaseException:
            self.chain.forget()
            raise

    def take(self, r: Mapping[str, Any]) -> None:
        """Enter one line."""
        try:
            if (r["kind"] == "ledger") != (r["n"] == 1):
                raise ValueError("the header is the first line, and no other")
            if r["kind"] == "account":
                self._open(r)
            elif r["kind"] == "charge":
                entries = self.entries[r["client"]]
                self.places[r["id"]] = (r["client"], len(entries))
                entries.append(entry_of(r))
            elif r["kind"] == "commit":
                client, place = self.places[r["id"]]
                entries = self.entries[client]
                entries[place] = replace(entries[place], finished=True)
            elif r["kind"] != "ledger" or r["version"] != VERSION:
                raise ValueError("no such kind of line, or of ledger")
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise BadInput(
                f"expected a ledger entry on line {r.get('n')} of {self.chain.path}, got {r!r:.80}"
            ) from e

    def _open(self, r: Mapping[str, Any]) -> None:
        client = int(r["client"])
        if client in self.accounts:
            raise ValueError("a second account would hide the charges of the first")
        self.accounts[client] = Account(
            client,
            Budget(float(r["epsilon"]), r["delta"]),
            r["allow_unprotected"],
            (),
            r["relation"],
            tuple(r["subsets"]),
        )
        self.entries[client] = []

    def account(self, client: int) -> Account:
        """A client's account with all its entries."""
        return replace(self.accounts[client], entries=tuple(self.entries[client]))


@lru_cache(maxsize=16)
def _book(path: Path) -> _Book:
    """One a file and process, so that a long ledger is not parsed again for every charge."""
    return _Book(Chain(path))


class Ledger:
    """The ledger of a run, at `path`; safe to use from several processes and threads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open_account(
        self,
        client: int,
        budget: Budget,
        *,
        allow_unprotected: bool = False,
        relation: Relation = "add-or-remove-one",
        subsets: tuple[str, ...] = ("train",),
    ) -> Account:
        """Note a client's terms once; opening it again with the same terms changes nothing.

        Args:
            client: number of the client.
            budget: what it may spend on each subset.
            allow_unprotected: whether events without protection may happen.
            relation: which datasets are neighbours, for everything on this account.
            subsets: names of disjoint subsets of its samples; see the module's text.

        Raises:
            BadInput: if the client has an account on other terms.

        """
        if not subsets or len(set(subsets)) < len(subsets) or not all(subsets):
            raise BadInput(f"expected different names of subsets, got {subsets}; name each once")
        terms = Account(client, budget, allow_unprotected, (), relation, subsets)
        book = self._read()
        if client not in book.accounts:
            with exclusive(self.path):
                book.refresh(locked=True)
                if client not in book.accounts:
                    book.append(
                        {
                            "kind": "account",
                            "client": client,
                            "epsilon": number(budget.epsilon),
                            "delta": budget.delta,
                            "allow_unprotected": allow_unprotected,
                            "unit": UNIT,
                            "relation": relation,
                            "subsets": list(subsets),
                        }
                    )
        if book.accounts[client] != terms:
            raise BadInput(
                f"expected client {client} to keep its budget of {_terms(book.accounts[client])}, "
                f"got {_terms(terms)}; start a new run"
            )
        return book.account(client)

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
        """Reserve an event on a client's account, on disk before this returns.

        Use it as `with ledger.charge(...) as receipt:` around what touches the data.

        Args:
            client: whose data will be touched.
            event: what is about to happen.
            phase: which part of the run it belongs to.
            mechanism: the field's name of it, say "dp-sgd".
            recipient: who will see the outcome.
            sensitivity: L2 sensitivity under the account's relation; None where nothing bounds it.
            subset: which of the client's samples are touched.
            round: round of the federation, if any.

        Raises:
            BudgetExhausted: if the event does not fit; the ledger is unchanged.
            BadInput: if the client has no account, or has not declared the subset, or the event
                is unprotected without leave, or has no price under the account's relation.

        """
        book = _book(self.path.absolute())
        with exclusive(self.path):
            book.refresh(locked=True)
            account = self._account(book, client)
            account.check_subset(subset)
            if isinstance(event, Unprotected):
                if not account.allow_unprotected:
                    raise BadInput(
                        f"expected every event of client {client} to be protected, got "
                        f"{mechanism} in the {phase}, which has epsilon infinity; use --preset "
                        "paper, or set privacy.allow_unprotected=true"
                    )
            else:
                total = max(
                    account.price([*account.events_on(leaf), event])
                    for leaf in account.leaves
                    if leaf == subset or within(leaf, subset)
                )
                if not total <= account.budget.epsilon:
                    raise BudgetExhausted(
                        f"expected client {client} to stay within epsilon "
                        f"{account.budget.epsilon:g}, got {total:.3f} with the next {mechanism}; "
                        "stopped before it, the last valid model is kept; raise --epsilon or plan "
                        "fewer rounds"
                    )
            id = uuid.uuid4().hex
            book.append(
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
                    "relation": account.relation,
                    "subset": subset,
                    "round": round,
                    "accountant": ACCOUNTANT,
                }
            )
        return Receipt(_ISSUER, id, client, mechanism, event, round, self)

    def _commit(self, id: str) -> None:
        book = _book(self.path.absolute())
        with exclusive(self.path):
            book.refresh(locked=True)
            if id not in book.places:
                raise BadInput(
                    f"expected the charge of this receipt in {self.path}, found none; put the "
                    "right ledger back"
                )
            book.append({"kind": "commit", "id": id, "time": time.time()})

    def account(self, client: int) -> Account:
        """One client's account.

        Raises:
            BadInput: if it was never opened, or the file is not as it was written.

        """
        return self._account(self._read(), client)

    def accounts(self) -> list[Account]:
        """All accounts, by client."""
        book = self._read()
        return [book.account(c) for c in sorted(book.accounts)]

    def head(self) -> tuple[int, str]:
        """Number and hash of the last line, to be noted elsewhere; see `check_holds`."""
        return self._read().chain.head()

    def check_holds(self, count: int, digest: str) -> None:
        """Refuse a ledger that is not a continuation of the one whose `head` was noted.

        Raises:
            BadInput: if it was deleted since, or another copy was put in its place.

        """
        self._read().chain.check_holds(count, digest)

    def _read(self) -> _Book:
        book = _book(self.path.absolute())
        book.refresh(locked=False)
        return book

    def _account(self, book: _Book, client: int) -> Account:
        if client not in book.accounts:
            raise BadInput(
                f"expected an account of client {client} in {self.path}, got "
                f"{len(book.accounts)} others; open it before charging"
            )
        return book.account(client)


def _terms(a: Account) -> str:
    return (
        f"epsilon {a.budget.epsilon:g}, delta {a.budget.delta:g}, {a.relation}, on "
        f"{', '.join(a.subsets)}, allow_unprotected {a.allow_unprotected}"
    )
