"""The ledger of one site's data: what was spent of its budget, written before the data are touched.

One append-only file, whatever runs there are (`panas.privacy.ledger.chain` says which changes it
detects). `charge`
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
    """The ledger at `path`; safe to use from several processes and threads.

    Args:
        path: its file; the head lies beside it.
        run: name of the run that charges through this object; "" where there are no runs.
    """

    def __init__(self, path: Path, run: str = "") -> None:
        self.path, self.run = path, run

    def open_account(
        self,
        budget: Budget,
        *,
        allow_unprotected: bool = False,
        relation: Relation = ADD_OR_REMOVE,
        subsets: tuple[str, ...] = ("train",),
        unit: str = UNIT,
    ) -> Account:
        """Note the terms once; opening the account again on the same terms changes nothing.

        Args:
            budget: what may be spent on each subset, by all runs together.
            allow_unprotected: whether events without protection may happen.
            relation: which datasets are neighbours, for everything on this account.
            subsets: names of disjoint subsets of the samples; see `panas.privacy.ledger.account`.
            unit: whose privacy the budget bounds, in words.

        Raises:
            BadInput: if there is an account on other terms.
        """
        if not subsets or len(set(subsets)) < len(subsets) or not all(subsets):
            raise BadInput(f"expected different names of subsets, got {subsets}; name each once")
        terms = Account(budget, allow_unprotected, (), relation, subsets, unit)
        book = self._read()
        if book.terms is None:
            with self._locked() as book:  # another object, if another thread was first
                if book.terms is None:
                    book.append({"kind": "account", **terms.to_json()})
        if book.terms != terms:
            assert book.terms is not None
            raise BadInput(
                f"expected {self.path} to keep its budget of {book.terms.terms}, got "
                f"{terms.terms}; give the same again"
            )
        return self.account()

    def charge(self, charge: Charge) -> Receipt:
        """Reserve an event on the account, on disk before this returns.

        Use it as `with ledger.charge(...) as receipt:` around what touches the data.

        Raises:
            BudgetExhausted: if the event does not fit; the ledger is unchanged.
            BadInput: if there is no account, or it has not declared the subset, or the event
                is unprotected without leave, or has no price under the account's relation.
        """
        charge = replace(charge, run=charge.run or self.run)
        with self._locked() as book:
            account = book.account()
            account.check_subset(charge.subset)
            _check_fits(account, charge, self.path)
            id = uuid.uuid4().hex
            line = {"kind": "charge", "id": id, "time": time.time()}
            line |= charge.to_json(relation=account.relation)
            book.append({**line, "accountant": ACCOUNTANT})
        return Receipt(ISSUER, id, charge, self._commit)

    def _commit(self, id: str) -> None:
        with self._locked() as book:
            if id not in book.places:
                raise BadInput(
                    f"expected the charge of this receipt in {self.path}, got none; put it back"
                )
            book.append({"kind": "commit", "id": id, "time": time.time()})

    def account(self) -> Account:
        """The account; BadInput if it was never opened, or the file was changed."""
        return self._read().account()

    @property
    def is_open(self) -> bool:
        """Whether the account was opened."""
        return self._read().terms is not None

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


def _check_fits(account: Account, charge: Charge, path: Path) -> None:
    """Refuse an event for which the account has no leave or no budget."""
    if isinstance(charge.event, Unprotected):
        if not account.allow_unprotected:
            raise BadInput(
                f"expected every event on {path} to be protected, got {charge.mechanism} in the "
                f"{charge.phase}, which has epsilon infinity; use --preset paper, or set "
                "privacy.allow_unprotected=true"
            )
        return
    # Beside other runs, the parts that this charge does not concern may have become dearer too.
    alone = set(account.runs) <= {charge.run}
    concerned = {leaf: within(leaf, charge.subset) for leaf in account.leaves}
    total = max(
        account.price([*account.events_on(leaf, charge.run), *[charge.event] * concerned[leaf]])
        for leaf in account.leaves
        if concerned[leaf] or not alone
    )
    if not total <= account.budget.epsilon:
        raise BudgetExhausted(
            f"expected the data of {path.parent} to stay within epsilon "
            f"{account.budget.epsilon:g}, got {total:.3f} with the next {charge.mechanism}; "
            "stopped before it, the last valid model is kept; raise --epsilon or plan fewer rounds"
        )


@dataclass
class _Book:
    """The account of one file as far as this process has read it."""

    chain: Chain
    terms: Account | None = None  # the account, without its charges
    entries: list[Entry] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def refresh(self, *, locked: bool) -> None:
        with self.lock, self._all_or_anew():
            anew, records = self.chain.refresh(locked=locked)
            if anew:
                self.terms, self.entries, self.places = None, [], {}
            for record in records:
                self.take(record)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line; a header comes before the first."""
        with self.lock, self._all_or_anew():
            if self.chain.head()[0] == 0:
                self.take(self.chain.append({"kind": "ledger", "version": VERSION}))
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
                if self.terms is not None:
                    raise ValueError("a second account would hide the charges of the first")
                self.terms = Account.from_json(r)
            elif r["kind"] == "charge":
                if self.terms is None:
                    raise ValueError("a charge comes after the account")
                self.places[r["id"]] = len(self.entries)
                self.entries.append(Entry(r["id"], r["time"], Charge.from_json(r)))
            elif r["kind"] == "commit":
                place = self.places[r["id"]]
                self.entries[place] = replace(self.entries[place], finished=True)
            elif r["kind"] != "ledger" or r["version"] != VERSION:
                raise ValueError("no such kind of line, or of ledger")
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise BadInput(
                f"expected a ledger entry on line {r.get('n')} of {self.chain.path}, got {r!r:.80}"
            ) from e

    def account(self) -> Account:
        if self.terms is None:
            raise BadInput(
                f"expected an account in {self.chain.path}, got none; open it before charging"
            )
        return replace(self.terms, entries=tuple(self.entries))


@lru_cache(maxsize=16)
def _book_of(path: Path) -> _Book:
    """One a file and process, so that no charge parses a long ledger again."""
    return _Book(Chain(path))
