"""What a process has read of a ledger's file: the account, its runs and charges, line by line."""

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.chain import VERSION, Chain
from panas.privacy.ledger.charge import Charge, Entry
from panas.privacy.ledger.place import Place
from panas.runtime.errors import BadInput


@dataclass
class Book:
    """The account of one file as far as this process has read it."""

    chain: Chain
    id: str = ""  # the ledger's, wherever it lies
    terms: Account | None = None  # the account, without its charges
    shares: dict[str, Budget] = field(default_factory=dict)
    begun: int = 0  # lines of runs: one that asks for another share has one more
    entries: list[Entry] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # of the entries, by id
    again: dict[str, int] = field(default_factory=dict)  # how often each was begun again, by id
    places: list[Place] = field(default_factory=list)  # where the file was begun, and moved to
    lock: threading.RLock = field(default_factory=threading.RLock)

    def refresh(self, *, locked: bool) -> None:
        """Read what is new; `locked`: the caller holds the lock of the file."""
        with self.lock, self._all_or_anew():
            anew, records = self.chain.refresh(locked=locked)
            if anew:
                self.terms, self.shares, self.entries = None, {}, []
                self.numbers, self.again, self.places, self.begun = {}, {}, [], 0
            for record in records:
                self.take(record)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line; a header comes before the first."""
        with self.lock, self._all_or_anew():
            if self.chain.head()[0] == 0:
                header = {"kind": "ledger", "version": VERSION, "id": uuid.uuid4().hex}
                self.take(self.chain.append(header | {"place": self.here.to_json()}))
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
        """Enter a line; BadInput if it makes no sense."""
        try:
            if (r["kind"] == "ledger") != (r["n"] == 1):
                raise ValueError("the header is the first line, and no other")
            if r["kind"] == "account":
                if self.terms is not None:
                    raise ValueError("a second account would hide the charges of the first")
                self.terms = Account.from_json(r)
            elif r["kind"] == "run":
                self.begun += 1
                if self.terms is None or any(e.charge.run == r["run"] for e in self.entries):
                    raise ValueError("a run begins after the account, and before it charges")
                self.shares[r["run"]] = Budget(float(r["epsilon"]), r["delta"])
            elif r["kind"] == "charge":
                if self.terms is None:
                    raise ValueError("a charge comes after the account")
                self.numbers[r["id"]] = len(self.entries)
                self.entries.append(Entry(r["id"], r["time"], Charge.from_json(r)))
            elif r["kind"] == "again":
                self.again[r["id"]] = self.again.get(r["id"], 0) + 1
                self.entries[self.numbers[r["id"]]]  # KeyError unless there is one
            elif r["kind"] == "commit":
                i = self.numbers[r["id"]]
                self.entries[i] = replace(self.entries[i], finished=True)
            elif r["kind"] == "moved" or (r["kind"], r["version"]) == ("ledger", VERSION):
                self.id = str(r.get("id", self.id))
                self.places.append(Place.from_json(r["place"]))
            else:
                raise ValueError("no such kind of line, or of ledger")
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise BadInput(
                f"expected a ledger entry on line {r.get('n')} of {self.chain.path}, got {r!r:.80}"
            ) from e

    @property
    def here(self) -> Place:
        """Where the file is now."""
        return Place.of(self.chain.path.parent)

    def check_place(self) -> None:
        """Refuse to go on with a ledger that lies in another folder than it was written in."""
        if self.places and not self.places[-1].same(self.here):
            raise BadInput(
                f"expected {self.chain.path} in the folder that it was written in, "
                f"{self.places[-1].folder}, got a copy of it; go on there, or, if the folder was "
                "moved and no other copy is in use, say so once: panas ledger FOLDER --moved"
            )

    def account(self) -> Account:
        """The account with all its runs and charges; BadInput if it was never opened."""
        if self.terms is None:
            raise BadInput(
                f"expected an account in {self.chain.path}, got none; open it before charging"
            )
        return replace(self.terms, entries=tuple(self.entries), shares=dict(self.shares))


@lru_cache(maxsize=16)
def book_of(path: Path) -> Book:
    """One a file and process, so that no charge parses a long ledger again."""
    return Book(Chain(path))
