"""Keyed fingerprints of the samples that ledgers were charged for.

The user's own state folder keeps, for each ledger, 8-byte tags of all samples that it was charged
for (`ID.tags`), of those that were loaded last (`ID.latest`), and what it had spent (`ID.json`). A
tag is a keyed hash of a sample's values, whatever its class: the same sample in another file, order
or company has the same. Without the key, which lies there too and never beside a run, tags tell
nothing; with it, whoever holds a sample can test whether it was used.

Samples that another ledger was charged for are known again by them. Source of truth are the
ledgers' replicas in the state folder, which hold every charge; of a ledger without one the ledger
itself, and of one that is gone the last note. What is noted of a ledger that has not grown since
counts too: a federation's sites may have seen thousands.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt64

from panas.data.files.raw import Raw
from panas.data.samples import Samples, value_hashes
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, Event, Relation, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account, as_gaussian, number
from panas.privacy.ledger.book import replica_account
from panas.privacy.ledger.chain import stamp_of
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.replica import Replica
from panas.runtime.errors import BadInput
from panas.runtime.state import state_folder, state_key
from panas.runtime.store import exclusive, read_bytes, read_json, write_bytes, write_json

KEPT = 4096  # files that a process has read and keeps in memory

Tags = UInt64[np.ndarray, "n"]
"""A tag for each sample of a set, in its order."""


@dataclass(frozen=True)
class Changed:
    """How a ledger's samples differ from those that it was last charged for."""

    before: int  # samples then
    now: int
    gone: int  # of those before
    added: int  # of those now

    def __str__(self) -> str:
        return (
            f"the data have changed since this ledger was last charged for them: {self.gone:,} of "
            f"{self.before:,} samples are gone, and {self.added:,} of {self.now:,} are new"
        )


def tags_of(data: Samples | Raw | Tags) -> Tags:
    """A tag for each sample, by its values alone; tags stay as they are.

    BadInput if the user's key can be kept nowhere.
    """
    if isinstance(data, np.ndarray):
        return data
    key = state_key()
    return data.hashes(key) if isinstance(data, Raw) else value_hashes(data, key)


def remember(data: Samples | Raw | Tags, ledger: Ledger) -> None:
    """Note which samples a ledger is charged for, before they are touched; its account is open."""
    folder, tags = tags_folder(), tags_of(data)
    path, latest = folder / f"{ledger.id}.tags", folder / f"{ledger.id}.latest"
    with exclusive(folder / "notes"):
        if not is_news(tags, ledger):
            return
        note(ledger)
        before = [known_tags(path)] if path.exists() else []
        write_bytes(path, np.unique(np.concatenate([tags, *before])).tobytes())
        write_bytes(latest, tags.tobytes())


def is_news(tags: Tags, ledger: Ledger) -> bool:
    """Whether samples are others than a ledger was last charged for, or in another order."""
    latest = tags_folder() / f"{ledger.id}.latest"
    return not latest.is_file() or read_bytes(latest) != tags.tobytes()


def changed_since(data: Samples | Raw | Tags, ledger: Ledger) -> Changed | None:
    """How samples differ from those that a ledger was last charged for; None where they do not, or
    nothing is known of those. Order plays no part."""
    path = tags_folder() / f"{ledger.id}.latest"
    if not path.is_file():
        return None
    before, now = np.frombuffer(read_bytes(path), np.uint64), tags_of(data)
    gone, added = ~among(before, np.unique(now)), ~among(now, np.unique(before))
    if not gone.any() and not added.any() and len(before) == len(now):
        return None
    return Changed(len(before), len(now), int(gone.sum()), int(added.sum()))


def note_spent(ledger: Ledger) -> None:
    """Note what a ledger has spent by now, in case that it is deleted; if it is remembered."""
    if (tags_folder() / f"{ledger.id}.tags").exists():
        note(ledger)


def note(ledger: Ledger) -> None:
    """Note what a ledger has spent by now, and where it lies."""
    size = size_of(ledger.id, ledger.path)  # first: it may grow meanwhile
    write_note(ledger.id, ledger.path, size, ledger.account())


def write_note(id: str, path: Path, size: int, account: Account) -> None:
    """Note the account of a ledger of this id, of so many bytes.

    Args:
        id: the ledger's, 32 hexadecimal digits.
        path: the ledger's file.
        size: its length in bytes, with the last line.
        account: terms and charges as of that line.
    """
    record = {
        "path": str(path.resolve()),
        "bytes": size,
        "runs": len({e.charge.run for e in account.entries}),
        "epsilon": number(account.spent()),
        "delta": account.budget.delta,
    }
    write_json(tags_folder() / f"{id}.json", record)


def size_of(id: str, path: Path) -> int:
    """The bytes of a ledger's replica, else of its file, which only grow; -1 for neither."""
    replica = Replica(id).path
    return next((p.stat().st_size for p in (replica, path) if p.is_file()), -1)


def tags_folder() -> Path:
    """Where tags lie."""
    return state_folder() / "fingerprints"


def known_tags(path: Path) -> Tags:
    """The tags that a file holds, each once and in order; kept in memory while it is unchanged."""
    return _known(path, stamp_of(path))


@lru_cache(maxsize=KEPT)
def _known(path: Path, stamp: tuple[int, ...]) -> Tags:
    return np.unique(np.frombuffer(read_bytes(path), np.uint64))


def among(tags: UInt64[np.ndarray, "n"], known: UInt64[np.ndarray, "k"]) -> Bool[np.ndarray, "n"]:
    """Which of the tags are among those that are known, in order."""
    at = np.searchsorted(known, tags)
    return (at < len(known)) & (np.append(known, np.uint64(0))[at] == tags)


@dataclass(frozen=True)
class Earlier:
    """Another ledger that was charged for some of the same samples."""

    path: Path
    runs: int  # that charged it
    overlap: int  # samples that both know
    epsilon: float  # that it has spent, at its own delta
    delta: float


@dataclass(frozen=True)
class SeenBefore:
    """What some of a set's samples have cost already, in ledgers other than its own."""

    samples: int  # in the set
    overlap: int  # of them, known to any of `earlier`
    earlier: tuple[Earlier, ...]
    epsilon: float  # of all earlier ledgers, for the sample that is worst off (`_worst_off`)
    together: float  # of it, with its own ledger's other runs and the share that is asked for

    @property
    def runs(self) -> int:
        """How many runs have charged for them, each counted once at every ledger that it charged.

        Ledgers know a run by a name that other runs may have: of several ledgers nothing tells how
        many runs there were.
        """
        return sum(e.runs for e in self.earlier)


def seen_before(data: Samples | Raw | Tags, own: Ledger, share: Budget) -> SeenBefore | None:
    """What other ledgers have been charged for the same samples; None for nothing.

    Args:
        data: all samples that a run will divide, train on and release from.
        own: the ledger that will be charged; it may not be open yet.
        share: what the run asks for; all is added up at its delta.
    """
    tags, own_id = tags_of(data), own.id if own.is_open else None
    matches = []
    for path in sorted(tags_folder().glob("*.tags")):
        if path.stem == own_id:
            continue
        same = among(tags, known_tags(path))
        if same.any() and (spender := _spender(path, int(same.sum()))):
            matches.append((spender, same))
    if not matches:
        return None
    relation = own.account().relation if own.is_open else ADD_OR_REMOVE
    before = [e for spender in _worst_off(matches) for e in spender.events(relation)]
    # What this run has charged is part of its share.
    own_events = own.account().of_others(own.run).events() if own.is_open else []
    added = [*own_events, *_as_events(share)]
    return SeenBefore(
        samples=len(tags),
        overlap=int(np.any([same for _, same in matches], axis=0).sum()),
        earlier=tuple(spender.earlier for spender, _ in matches),
        epsilon=epsilon(before, share.delta, relation=relation),
        together=epsilon([*before, *added], share.delta, relation=relation),
    )


def refuse_seen(seen: SeenBefore | None) -> None:
    """Refuse samples that another ledger was charged for (BadInput)."""
    if seen is not None:
        raise BadInput(
            f"expected samples that no other ledger was charged for, got {seen.overlap} of "
            f"{seen.samples} that have spent epsilon {seen.epsilon:.3f} at most (together "
            f"{seen.together:.3f}); charge the ledger at {seen.earlier[0].path}, or do without "
            "strict (of the run, or in site.toml)"
        )


@dataclass(frozen=True)
class _Spender:
    """An earlier ledger, and what it is called."""

    earlier: Earlier
    id: str

    def events(self, relation: Relation) -> Sequence[Event]:
        """What it was charged, to be composed; of a total alone, a Gaussian that costs it."""
        account = _account(self.earlier.path, self.id)
        if account is not None and account.relation == relation:
            return account.events()
        return _as_events(Budget(self.earlier.epsilon, self.earlier.delta))


def _spender(tags: Path, overlap: int) -> _Spender | None:
    """What is known of a ledger; None if it has spent nothing."""
    path = tags.with_suffix(".json")
    note = _noted(path, stamp_of(path))
    size = size_of(tags.stem, note.path)
    if size != note.bytes and (account := _account(note.path, tags.stem)) is not None:
        write_note(tags.stem, note.path, size, account)  # once for all who look
        note = _noted(path, stamp_of(path))
    earlier = Earlier(note.path, note.runs, overlap, note.epsilon, note.delta)
    return _Spender(earlier, tags.stem) if note.epsilon > 0 else None


def _account(path: Path, id: str) -> Account | None:
    """The account of a ledger by its replica, else where it can still be read, as the one of this
    name."""
    try:
        if (replica := Replica(id)).begun:
            return replica_account(replica)
        ledger = Ledger(path)
        return ledger.account() if path.is_file() and ledger.is_open and ledger.id == id else None
    except BadInput:  # it was changed by hand
        return None


def _worst_off(spenders: Sequence[tuple[_Spender, Bool[np.ndarray, "n"]]]) -> list[_Spender]:
    """The ledgers that were charged for the sample with the largest total epsilon.

    Each ledger counts as the Gaussian mechanism that costs its epsilon; those compose by the sum of
    squares.
    """
    squares = np.zeros(len(spenders[0][1]))
    for spender, same in spenders:
        budget = Budget(spender.earlier.epsilon, spender.earlier.delta)
        squares = squares + same * _square(budget)
    worst = int(np.argmax(squares))
    return [spender for spender, same in spenders if same[worst]]


@lru_cache(maxsize=KEPT)
def _square(spent: Budget) -> float:
    """The square of a sensitivity over the noise of the Gaussian mechanism that costs so much."""
    return as_gaussian(spent).noise_multiplier ** -2.0


@dataclass(frozen=True)
class _Noted:
    """What was noted of a ledger last, and the bytes that it had then."""

    path: Path
    runs: int
    epsilon: float
    delta: float
    bytes: int


@lru_cache(maxsize=KEPT)
def _noted(path: Path, stamp: tuple[int, ...]) -> _Noted:
    """A note, while the file is unchanged."""
    r = read_json(path)
    # Before bytes were noted, a ledger was read every time.
    size = int(r.get("bytes", -1))
    return _Noted(Path(r["path"]), int(r["runs"]), float(r["epsilon"]), float(r["delta"]), size)


def _as_events(share: Budget) -> list[Event]:
    return [as_gaussian(share)] if math.isfinite(share.epsilon) else [Unprotected()]
