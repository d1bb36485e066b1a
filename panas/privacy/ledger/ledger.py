"""The ledger: what every client has spent, written down before its data is touched.

One append-only file a run (`panas.privacy.ledger.chain` says which changes it detects). `charge`
forces a *reservation* to disk before it returns the receipt without which nothing is released
(`panas.privacy.release.gate`). A reservation is never given back: a process that dies has spent
what it charged. An unprotected event makes the total infinite; only an account that allows it may
have one, and its protected part is bounded all the same.
"""

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from panas.privacy.accounting.epsilon import ACCOUNTANT
from panas.privacy.accounting.events import ADD_OR_REMOVE, Relation, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import UNIT, Account, within
from panas.privacy.ledger.chain import VERSION, Chain
from panas.privacy.ledger.charge import Charge, Entry
from panas.privacy.ledger.receipt import ISSUER, Receipt
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.store import exclusive


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
        relation: Relation = ADD_OR_REMOVE,
        subsets: tuple[str, ...] = ("train",),
    ) -> Account:
        """Note a client's terms once; opening it again with the same terms changes nothing.

        Args:
            client: number of the client.
            budget: what it may spend on each subset.
            allow_unprotected: whether events without protection may happen.
            relation: which datasets are neighbours, for everything on this account.
            subsets: names of disjoint subsets of its samples; see `panas.privacy.ledger.account`.

        Raises:
            BadInput: if the client has an account on other terms.
        """
        if not subsets or len(set(subsets)) < len(subsets) or not all(subsets):
            raise BadInput(f"expected different names of subsets, got {subsets}; name each once")
        terms = Account(client, budget, allow_unprotected, (), relation, subsets)
        book = self._read()
        if client not in book.accounts:
            with self._locked() as book:  # another object, if another thread was first
                if client not in book.accounts:
                    book.append({"kind": "account", **terms.to_json()})
        if book.accounts[client] != terms:
            raise BadInput(
                f"expected client {client} to keep its budget of {book.accounts[client].terms}, "
                f"got {terms.terms}; start a new run"
            )
        return book.account(client)

    def charge(self, client: int, charge: Charge) -> Receipt:
        """Reserve an event on a client's account, on disk before this returns.

        Use it as `with ledger.charge(...) as receipt:` around what touches the data.

        Raises:
            BudgetExhausted: if the event does not fit; the ledger is unchanged.
            BadInput: if the client has no account, or has not declared the subset, or the event
                is unprotected without leave, or has no price under the account's relation.
        """
        with self._locked() as book:
            account = self._account(book, client)
            account.check_subset(charge.subset)
            _check_fits(account, charge)
            id = uuid.uuid4().hex
            line = {"kind": "charge", "id": id, "time": time.time(), "client": client}
            line |= charge.to_json(relation=account.relation)
            book.append({**line, "accountant": ACCOUNTANT})
        return Receipt(ISSUER, id, client, charge, self._commit)

    def _commit(self, id: str) -> None:
        with self._locked() as book:
            if id not in book.places:
                raise BadInput(
                    f"expected the charge of this receipt in {self.path}, got none; put it back"
                )
            book.append({"kind": "commit", "id": id, "time": time.time()})

    def account(self, client: int) -> Account:
        """One client's account; BadInput if it was never opened, or the file was changed."""
        return self._account(self._read(), client)

    def accounts(self) -> list[Account]:
        """All accounts, by client."""
        book = self._read()
        return [book.account(c) for c in sorted(book.accounts)]

    def head(self) -> tuple[int, str]:
        """Number and hash of the last line, to be noted elsewhere for `check_holds`."""
        return self._read().chain.head()

    def check_holds(self, count: int, digest: str) -> None:
        """Refuse a ledger that does not continue the one whose `head` was noted (BadInput)."""
        self._read().chain.check_holds(count, digest)

    def _read(self) -> "_Book":
        book = _book_of(self.path.absolute())
        book.refresh(locked=False)
        return book

    @contextmanager
    def _locked(self) -> Iterator["_Book"]:
        book = _book_of(self.path.absolute())
        with exclusive(self.path):
            book.refresh(locked=True)
            yield book

    def _account(self, book: "_Book", client: int) -> Account:
        if client not in book.accounts:
            raise BadInput(
                f"expected an account of client {client} in {self.path}; open it before charging"
            )
        return book.account(client)


def _check_fits(account: Account, charge: Charge) -> None:
    """Refuse an event for which the account has no leave or no budget."""
    if isinstance(charge.event, Unprotected):
        if not account.allow_unprotected:
            raise BadInput(
                f"expected every event of client {account.client} to be protected, got "
                f"{charge.mechanism} in the {charge.phase}, which has epsilon infinity; use "
                "--preset paper, or set privacy.allow_unprotected=true"
            )
        return
    total = max(
        account.price([*account.events_on(leaf), charge.event])
        for leaf in account.leaves
        if within(leaf, charge.subset)
    )
    if not total <= account.budget.epsilon:
        raise BudgetExhausted(
            f"expected client {account.client} to stay within epsilon "
            f"{account.budget.epsilon:g}, got {total:.3f} with the next {charge.mechanism}; "
            "stopped before it, the last valid model is kept; raise --epsilon or plan fewer rounds"
        )


@dataclass
class _Book:
    """The accounts of one file as far as this process has read it."""

    chain: Chain
    accounts: dict[int, Account] = field(default_factory=dict)
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def refresh(self, *, locked: bool) -> None:
        with self.lock, self._all_or_anew():
            anew, records = self.chain.refresh(locked=locked)
            if anew:
                self.accounts, self.entries, self.places = {}, {}, {}
            for record in records:
                self.take(record)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line; a header comes before the first."""
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
        try:
            if (r["kind"] == "ledger") != (r["n"] == 1):
                raise ValueError("the header is the first line, and no other")
            if r["kind"] == "account":
                account = Account.from_json(r)
                if account.client in self.accounts:
                    raise ValueError("a second account would hide the charges of the first")
                self.accounts[account.client] = account
                self.entries[account.client] = []
            elif r["kind"] == "charge":
                entries = self.entries[r["client"]]
                self.places[r["id"]] = (r["client"], len(entries))
                entries.append(Entry(r["id"], r["client"], r["time"], Charge.from_json(r)))
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

    def account(self, client: int) -> Account:
        return replace(self.accounts[client], entries=tuple(self.entries[client]))


@lru_cache(maxsize=16)
def _book_of(path: Path) -> _Book:
    """One a file and process, so that no charge parses a long ledger again."""
    return _Book(Chain(path))
