"""A ledger's lines again, in the user's state folder, so that a restored backup is noticed.

A backup that is put back has the ledger as it was: chained and whole, but with less charged. So
the state folder, which no backup of a site's folder holds, keeps the lines of each ledger by the
ledger's id: `ledgers/ID.jsonl`. Its last line is the newest head, its lines are what a restored
ledger lacks. Where the ledger lies plays no part: a folder may be moved or copied. Of two copies
that both go on, the one that lacks what the other was charged is refused, until that is put back.

**Order.** All that follows happens while the ledger's lock is held, and within it the replica's,
which all copies of the ledger share.

1. The ledger must hold the replica's last line. Since lines are chained, it then holds them all.
2. The new line is appended to the ledger, then the ledger's head is written.
3. What the replica lacks is appended to it. Only now is a charge acted upon.

So the replica is never ahead of a ledger that nobody has put back, and whatever was acted upon is
in the replica. A process that dies

- before 2: nothing has happened;
- within 2 or before 3: the ledger is one line longer than the replica. It still holds the
  replica's last line, goes on, and the next step 3 makes the replica whole. The charge counts;
- within 3: the replica ends with a part of a line, which counts as not written and is cut off.

Thus no death locks an owner out. None gives budget back either: what counts as spent is the ledger,
which holds everything that any ledger of this id was charged and that was acted upon.

The other order (a replica that is ahead, as where a disk has lost what it had acknowledged) is that
of a restored backup: refused, until `Ledger.accept_restored` has put the missing lines back.

A replica begins before a ledger's first charge is written, so that one that is missing later means
another machine, or an emptied state folder. Then the ledger goes on, with a line that says so.

What this cannot stop: a backup of both folders that is put back at once, and copies that go on
under different state folders, as on two machines.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from panas.privacy.ledger.chain import FIRST, Chain, Head, stamp_of
from panas.runtime.errors import BadInput
from panas.runtime.state import hold_state, state_folder
from panas.runtime.store import append_bytes, write_bytes


class _Known(NamedTuple):
    stamp: tuple[object, ...]
    size: int  # of its whole lines
    head: Head


class Replica:
    """What the state folder has of the ledger that is called `name` wherever it lies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._known = _Known((), 0, (0, FIRST))  # replaced as one: other threads read it

    @property
    def path(self) -> Path:
        """Where it is; the user's state folder may change."""
        return state_folder() / "ledgers" / f"{self.name}.jsonl"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold its lock; BadInput where the state folder cannot be written."""
        with hold_state(self.path):
            yield

    def head(self) -> Head:
        """Number and hash of its last whole line; (0, FIRST) for none."""
        return self._look().head

    def _look(self) -> "_Known":
        stamp = self._stamp()
        if stamp != self._known.stamp:
            lines = self.lines()
            head = (len(lines), _hash(lines[-1])) if lines else (0, FIRST)
            self._known = _Known(stamp, sum(map(len, lines)), head)
        return self._known

    def _stamp(self) -> tuple[object, ...]:
        try:
            return self.path, *stamp_of(self.path)
        except OSError:
            return (self.path,)

    @property
    def begun(self) -> bool:
        """Whether the state folder knows the ledger."""
        return self.head()[0] > 0

    def lines(self) -> list[bytes]:
        """Its whole lines; what a death has left of another is no line."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        return [line + b"\n" for line in content.split(b"\n")[:-1]]

    def missing(self, chain: Chain) -> list[dict[str, Any]]:
        """Its lines from the first that a ledger has not, read; BadInput if one does not follow
        the one before."""
        lines = self.lines()
        common = next((i for i, x in enumerate(lines) if not chain.holds(i + 1, _hash(x))), None)
        if common is None:
            return []
        before, records = _hash(lines[common - 1]) if common else FIRST, list[dict[str, Any]]()
        for number, line in enumerate(lines[common:], start=common + 1):
            try:
                record = json.loads(line)
                follows = (record["n"], record["previous"]) == (number, before)
            except (ValueError, TypeError, KeyError):
                follows = False
            if not follows:
                raise BadInput(
                    f"expected {self.path} as it was written, got one whose line {number} was "
                    "changed; remove it to go on without it"
                )
            records.append(record)
            before = _hash(line)
        return records

    def follow(self, chain: Chain) -> None:
        """Append what it lacks of a ledger that holds its last line; the caller holds both locks.

        On disk when this returns.
        """
        size = self._look().size
        with chain.path.open("rb") as file:
            file.seek(size)
            lacking = file.read(chain.size - size)
        if lacking:
            append_bytes(self.path, lacking, at=size)
            self._known = _Known(self._stamp(), chain.size, chain.head())

    def become(self, chain: Chain) -> None:
        """Hold a ledger's lines and no others; the caller holds both locks."""
        with chain.path.open("rb") as file:
            write_bytes(self.path, file.read(chain.size))


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
