"""What a process has read of a ledger's file: the account, its runs and charges, line by line."""

import re
import threading
import time
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
from panas.privacy.ledger.charge import Charge, Entry, number_of
from panas.privacy.ledger.replica import Replica
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class Note:
    """What happened to a ledger beside its charges."""

    kind: str  # "moved": went on where nothing was known of it; "restored": got lines back
    time: float  # seconds since 1970
    folder: str  # where it lay then
    charges: int = 0  # that were put back


@dataclass
class Book:
    """The account of one file as far as this process has read it."""

    chain: Chain
    id: str = ""  # the ledger's, wherever it lies
    given: str = ""  # the id that it is to have; "": one that is drawn
    replicated: bool = True  # whether the user's state folder keeps its lines
    terms: Account | None = None  # the account, without its charges
    shares: dict[str, Budget] = field(default_factory=dict)
    begun: int = 0  # lines of runs: one that asks for another share has one more
    entries: list[Entry] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)  # of the entries, by id
    notes: list[Note] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _replica: Replica = field(default_factory=lambda: Replica(""))

    def refresh(self, *, locked: bool) -> None:
        """Read what is new; `locked`: the caller holds the lock of the file."""
        with self.lock, self._all_or_anew():
            anew, records = self.chain.refresh(locked=locked)
            if anew:
                self.terms, self.shares, self.entries = None, {}, []
                self.numbers, self.notes, self.begun = {}, [], 0
                self.id, self.replicated = "", True
            for record in records:
                self.take(record)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line here, then to the replica; a header comes before the first.

        The caller holds the lock of the file and is in `guarded`. A replica begins before the first
        charge is written; one that is missing later is begun anew, and a line says so.
        """
        with self.lock, self._all_or_anew():
            if self.chain.head()[0] == 0:
                header = {
                    "kind": "ledger",
                    "version": VERSION,
                    "id": self.given or uuid.uuid4().hex,
                }
                alone = {} if self.replicated else {"replica": False}
                self.take(self.chain.append(header | alone))
            kept = self.replicated and bool(self.entries or record["kind"] == "charge")
            if kept and not self.replica.begun:
                if self.entries:
                    self.take(self.chain.append(self.note("moved")))
                self.replica.follow(self.chain)
            self.take(self.chain.append(record))
            if kept:
                self.replica.follow(self.chain)

    def restore(self, record: Mapping[str, Any]) -> None:
        """Append a line that another copy of the ledger has, unless what it says is here already.

        Where it is the next line of this copy, it becomes the same line, byte by byte.
        """
        kind, next_ = record["kind"], (record["n"] - 1, record["previous"])
        if kind == "run":
            charged = any(e.charge.run == record["run"] for e in self.entries)
            share = Budget(float(record["epsilon"]), record["delta"])
            known = charged or self.shares.get(record["run"]) == share
        elif kind == "commit":
            i = self.numbers.get(record["id"])
            known = i is None or self.entries[i].finished
        elif kind == "charge":
            known = record["id"] in self.numbers
        else:
            known = self.terms is not None
        if not known or next_ == self.chain.head():
            with self.lock, self._all_or_anew():
                self.take(self.chain.append(record))

    def note(self, kind: str, charges: int = 0) -> dict[str, Any]:
        """A line that says what happened to the ledger here and now."""
        folder = str(self.chain.path.parent.resolve())
        put_back = {"charges": charges} if charges else {}
        return {"kind": kind, "time": time.time(), "folder": folder} | put_back

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
                derived = r["id"] == number_of(self.name, r)
                entry = Entry(r["id"], r["time"], Charge.from_json(r), derived=derived)
                self.entries.append(entry)
            elif r["kind"] == "again":
                i = self.numbers[r["id"]]
                self.entries[i] = replace(self.entries[i], again=self.entries[i].again + 1)
            elif r["kind"] == "commit":
                i = self.numbers[r["id"]]
                self.entries[i] = replace(self.entries[i], finished=True)
            elif r["kind"] in ("moved", "restored"):
                # Earlier versions wrote a place, and had the owner say that it had changed.
                folder = r["folder"] if "folder" in r else r["place"]["folder"]
                self.notes.append(Note(r["kind"], r["time"], str(folder), r.get("charges", 0)))
            elif (r["kind"], r["version"]) == ("ledger", VERSION):
                self.id, self.replicated = str(r.get("id", "")), bool(r.get("replica", True))
            else:
                raise ValueError("no such kind of line, or of ledger")
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise BadInput(
                f"expected a ledger entry on line {r.get('n')} of {self.chain.path}, got {r!r:.80}"
            ) from e

    @property
    def name(self) -> str:
        """What the ledger is called in the user's state folder; a copy has the same."""
        plain = re.fullmatch(r"[0-9a-f]{32}", self.id)
        return self.id if plain else self.chain.first or self.given

    @contextmanager
    def guarded(self, *, charging: bool = False) -> Iterator[None]:
        """Hold the replica of a ledger that has charges, or gets its first.

        BadInput if this copy lacks what another was charged, or nothing can be kept.
        """
        known = self.replicated and bool(self.name)
        if not (known and (charging or self.entries or self.replica.begun)):
            yield
            return
        with self.replica.held():
            self.check_current()
            yield

    def check_current(self) -> None:
        """Refuse to go on with a copy that lacks what the ledger was charged (BadInput)."""
        if self.is_behind:
            lost = self.replica.missing(self.chain)
            ids = {r["id"] for r in lost if r["kind"] == "charge"}
            charges = len(ids - self.numbers.keys())
            what = f"{charges} charge{'s' * (charges != 1)}" if charges else f"{len(lost)} lines"
            folder = self.chain.path.parent
            raise BadInput(
                f"expected {self.chain.path} with all that it was charged, got an older copy, as "
                f"of a backup, which lacks {what}: nothing can be spent; charge what is missing by "
                f"`panas site accept {folder} --restored`"
            )

    @property
    def replica(self) -> Replica:
        """What the user's state folder has of this ledger."""
        if self._replica.name != self.name:
            self._replica = Replica(self.name)
        return self._replica

    @property
    def is_behind(self) -> bool:
        """Whether the replica has a line that is not here: an older copy, or one of two."""
        return bool(self.replicated and self.name and not self.chain.holds(*self.replica.head()))

    def begun_again(self, id: str) -> int:
        """How often what a charge pays for was begun again; 0 for an unknown one."""
        i = self.numbers.get(id)
        return 0 if i is None else self.entries[i].again

    def account(self) -> Account:
        """The account with all its runs and charges; BadInput if it was never opened."""
        if self.terms is None:
            raise BadInput(
                f"expected an account in {self.chain.path}, got none; open it before charging"
            )
        return replace(self.terms, entries=tuple(self.entries), shares=dict(self.shares))


def replica_account(replica: Replica) -> Account:
    """The account of a ledger by what the state folder has of it; BadInput if that was changed."""
    book = Book(Chain(replica.path))
    for record in replica.missing(book.chain):
        book.take(record)
    return book.account()


@lru_cache(maxsize=16)
def book_of(path: Path) -> Book:
    """One a file and process, so that no charge parses a long ledger again."""
    return Book(Chain(path))
