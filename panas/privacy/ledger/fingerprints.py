"""Samples that another ledger was charged for, known again by keyed fingerprints of their values.

The user's own state folder keeps, for each ledger, 8-byte tags of the samples that it was charged
for, and what it had spent. A tag is a keyed hash of a sample's values, whatever its class: the same
sample in another file, order or company has the same. Without the key, which lies there too and
never beside a run, tags tell nothing; with it, whoever holds a sample can test whether it was used.

Source of truth are the ledgers themselves; of one that is gone, what was noted last counts. What is
noted of a ledger that has not grown since counts too: a federation's sites may have seen thousands.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt64

from panas.data.files.raw import Raw, row_hashes
from panas.data.samples import Samples
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, Event, Relation, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account, number
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.shares import as_gaussian
from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, read_bytes, read_json, write_bytes, write_json

KEPT = 4096  # files that a process has read and keeps in memory
NOWHERE = Path(os.devnull) / "panas"
"""The state folder of a user without a home, as in some containers: nothing can be there."""


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


def state_folder() -> Path:
    """The user's own state: PANAS_STATE, else `panas` in XDG_STATE_HOME or ~/.local/state."""
    if own := os.environ.get("PANAS_STATE"):
        return Path(own)
    if home := os.environ.get("XDG_STATE_HOME"):
        return Path(home) / "panas"
    try:
        return Path.home() / ".local" / "state" / "panas"
    except RuntimeError:  # no HOME, and no entry of this user
        return NOWHERE


def check_state() -> None:
    """BadInput if what is remembered of samples can be kept nowhere."""
    _key()


def remember(data: Samples | Raw, ledger: Ledger) -> None:
    """Note whose samples a ledger is charged for, before they are touched; its account is open."""
    folder, tags = _folder(), _tags(data)
    with exclusive(folder / "notes"):
        path = folder / f"{ledger.id}.tags"
        _note(ledger)
        if path.exists():
            tags = np.union1d(tags, np.frombuffer(read_bytes(path), np.uint64))
        write_bytes(path, tags.tobytes())


def forget(ledger: Ledger) -> None:
    """Take back what `remember` has noted of a ledger that has spent nothing."""
    folder = _folder()
    with exclusive(folder / "notes"):
        if not ledger.account().entries:
            for suffix in ("tags", "json"):
                (folder / f"{ledger.id}.{suffix}").unlink(missing_ok=True)


def note_spent(ledger: Ledger) -> None:
    """Note what a ledger has spent by now, in case that it is deleted; if it is remembered."""
    if (_folder() / f"{ledger.id}.tags").exists():
        _note(ledger)


def _note(ledger: Ledger) -> None:
    size, account = _size(ledger.path), ledger.account()  # in this order: it may grow meanwhile
    record = {
        "path": str(ledger.path.resolve()),
        "bytes": size,
        "runs": len({e.charge.run for e in account.entries}),
        "epsilon": number(account.spent()),
        "delta": account.budget.delta,
    }
    write_json(_folder() / f"{ledger.id}.json", record)


def seen_before(data: Samples | Raw, own: Ledger, share: Budget) -> SeenBefore | None:
    """What other ledgers have been charged for the same samples; None for nothing.

    Args:
        data: all samples that a run will divide, train on and release from.
        own: the ledger that will be charged; it may not be open yet.
        share: what the run asks for; all is added up at its delta.
    """
    tags, own_id = _tags(data), own.id if own.is_open else None
    found = []
    for path in sorted(_folder().glob("*.tags")):
        if path.stem == own_id:
            continue
        same = _among(tags, _known(path, _stamp(path)))
        if same.any() and (spender := _spender(path, int(same.sum()))):
            found.append((spender, same))
    if not found:
        return None
    relation = own.account().relation if own.is_open else ADD_OR_REMOVE
    before = [e for spender in _worst_off(found) for e in spender.events(relation)]
    # What this run has charged is part of its share.
    here = own.account().of_others(own.run).events() if own.is_open else []
    added = [*here, *_as_events(share)]
    return SeenBefore(
        samples=len(tags),
        overlap=int(np.any([same for _, same in found], axis=0).sum()),
        earlier=tuple(spender.earlier for spender, _ in found),
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
    note = _noted(path, _stamp(path))
    if _size(note.path) != note.bytes and _account(note.path, tags.stem) is not None:
        _note(Ledger(note.path))  # once for all who look
        note = _noted(path, _stamp(path))
    earlier = Earlier(note.path, note.runs, overlap, note.epsilon, note.delta)
    return _Spender(earlier, tags.stem) if note.epsilon > 0 else None


def _account(path: Path, id: str) -> Account | None:
    """The account of a ledger where it can still be read, as the one of this name."""
    ledger = Ledger(path)
    try:
        return ledger.account() if path.is_file() and ledger.is_open and ledger.id == id else None
    except BadInput:  # it was changed by hand
        return None


def _worst_off(found: Sequence[tuple[_Spender, Bool[np.ndarray, "n"]]]) -> list[_Spender]:
    """The ledgers that were charged for the sample that is worst off: each ledger counts as the
    Gaussian mechanism that costs its epsilon, and those compose by the sum of squares."""
    squares = np.zeros(len(found[0][1]))
    for spender, same in found:
        budget = Budget(spender.earlier.epsilon, spender.earlier.delta)
        squares = squares + same * _square(budget)
    worst = int(np.argmax(squares))
    return [spender for spender, same in found if same[worst]]


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


@lru_cache(maxsize=KEPT)
def _known(path: Path, stamp: tuple[int, ...]) -> UInt64[np.ndarray, "k"]:
    """The tags that a file holds, in order, while it is unchanged."""
    return np.unique(np.frombuffer(read_bytes(path), np.uint64))


def _among(tags: UInt64[np.ndarray, "n"], known: UInt64[np.ndarray, "k"]) -> Bool[np.ndarray, "n"]:
    """Which of the tags are among those that are known, in order."""
    at = np.searchsorted(known, tags)
    return (at < len(known)) & (np.append(known, np.uint64(0))[at] == tags)


def _stamp(path: Path) -> tuple[int, ...]:
    """What tells a file from itself as it was before."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _size(path: Path) -> int:
    """The bytes of a ledger, which only grows; -1 for none."""
    return path.stat().st_size if path.is_file() else -1


def _as_events(share: Budget) -> list[Event]:
    return [as_gaussian(share)] if math.isfinite(share.epsilon) else [Unprotected()]


def _tags(data: Samples | Raw) -> UInt64[np.ndarray, "n"]:
    """A tag for each sample, by its values alone."""
    key = _key()
    if isinstance(data, Raw):
        return data.hashes(key)
    x = data.x.contiguous().numpy()
    return row_hashes((x[i].tobytes() for i in range(len(x))), key)


def _folder() -> Path:
    return state_folder() / "fingerprints"


def _key() -> bytes:
    """The user's key, drawn once."""
    path = state_folder() / "key"
    try:
        with exclusive(path):
            if not path.exists():
                write_bytes(path, os.urandom(32))
    except OSError as e:
        raise BadInput(
            f"expected a folder for the user's own state at {path.parent}, got none that can be "
            "written; set PANAS_STATE to one"
        ) from e
    return read_bytes(path)
