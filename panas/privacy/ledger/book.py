"""A ledger in memory."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from panas.privacy.ledger.account import UNIT, Account
from panas.privacy.ledger.chain import VERSION, Chain
from panas.privacy.ledger.charge import Charge, Entry
from panas.runtime.errors import BadInput


@dataclass
class Book:
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
        """Enter one line."""
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
        """A client's account with all its entries."""
        return replace(self.accounts[client], entries=tuple(self.entries[client]))


@lru_cache(maxsize=16)
def book_of(path: Path) -> Book:
    """One a file and process, so that no charge parses a long ledger again."""
    return Book(Chain(path))
