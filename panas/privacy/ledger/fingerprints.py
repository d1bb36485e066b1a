"""Keyed fingerprints of the samples that ledgers were charged for.

The user's own state folder keeps, for each ledger, 8-byte tags of all samples that it was charged
for (`ID.tags`), of those that were loaded last (`ID.latest`), and what it had spent (`ID.json`). A
tag is a keyed hash of a sample's values, whatever its class: the same sample in another file, order
or company has the same. Without the key, which lies there too and never beside a run, tags tell
nothing; with it, whoever holds a sample can test whether it was used.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt64

from panas.data.files.raw import Raw
from panas.data.samples import Samples, value_hashes
from panas.privacy.ledger.account import Account, number
from panas.privacy.ledger.chain import stamp_of
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.replica import Replica
from panas.runtime.state import state_folder, state_key
from panas.runtime.store import exclusive, read_bytes, write_bytes, write_json

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
    """Note the account of a ledger of this id, of so many bytes."""
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
