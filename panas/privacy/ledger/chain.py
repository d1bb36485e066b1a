"""A file of JSON lines in which no line can be changed, taken out or cut off unnoticed.

Each line carries its number `n`, from 1, and `previous`, the SHA-256 of the line before it (of 64
zeros for the first). A head file beside it, replaced after every append, holds the number and the
hash of the last line that was acknowledged. So a change anywhere contradicts the next line's
`previous`, and a change at the end contradicts the head. A process that dies between the two
writes leaves one line more than the head knows: it counts. A last line without its end, beyond
the head, was never acknowledged and is dropped.

What this cannot stop: rewriting line, chain and head alike, or putting back old copies of both
files. A `head()` noted elsewhere, as in a run's checkpoints and summary, shows it (`check_holds`),
and so do the lines that the user's state folder keeps (`panas.privacy.ledger.replica`).
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from panas.runtime.errors import BadInput
from panas.runtime.store import append_bytes, read_json, write_json

Head = tuple[int, str]  # number and hash of a line
FIRST = "0" * 64  # stands for the hash of the line before the first
VERSION = 2


def stamp_of(path: Path) -> tuple[int, ...]:
    """What tells a file from itself as it was before."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class Chain:
    """What has been read and checked of the chained file at `path`; hold one a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head_path = path.with_suffix(".head")
        self.forget()

    def forget(self) -> None:
        """Start from the top at the next refresh."""
        self._hashes: list[str] = []
        self._prefix = hashlib.sha256()
        self.size = 0  # bytes of the lines that were read
        self._seen: tuple[int, ...] | None = None

    def head(self) -> Head:
        """Number and hash of the last line; (0, FIRST) for none."""
        return len(self._hashes), self._hashes[-1] if self._hashes else FIRST

    @property
    def first(self) -> str:
        """Hash of the first line; "" for none."""
        return self._hashes[0] if self._hashes else ""

    def holds(self, count: int, digest: str) -> bool:
        """Whether line `count` has this hash, and with it all lines before are the same."""
        return not count or (count <= len(self._hashes) and self._hashes[count - 1] == digest)

    def check_holds(self, count: int, digest: str) -> None:
        """Refuse a file without line `count` of this hash: deleted, or an old copy."""
        if not self.holds(count, digest):
            raise self._tampered(
                f"one whose line {count} is not the one that the run has noted ({digest[:12]}...): "
                "it was deleted, or another copy was put in its place"
            )

    def refresh(self, *, locked: bool) -> tuple[bool, list[dict[str, Any]]]:
        """The lines that are new since the last time, and whether they start from the top again.

        `locked`: the caller holds the lock of `path`. BadInput if file or head were changed.
        """
        for last in (locked, True):  # without the lock the file may grow while it is read
            try:
                return self._refresh(locked)
            except BadInput:
                self.forget()
                if last:
                    raise
        raise AssertionError("unreachable")

    def _refresh(self, locked: bool) -> tuple[bool, list[dict[str, Any]]]:
        # The head first: what it knows was in the file before.
        head = self._read_head()
        if not self.path.exists():
            if head:
                raise self._tampered(f"no such file, although {self.head_path.name} knows of one")
            self.forget()
            return True, []
        seen, content = stamp_of(self.path), b""
        if seen != self._seen:
            content = self.path.read_bytes()
            if hashlib.sha256(content[: self.size]).digest() != self._prefix.digest():
                self.forget()
            content = content[self.size :]
        anew = not self._hashes
        *lines, rest = content.split(b"\n")
        records = []
        for i, line in enumerate(lines):
            following = lines[i + 1] if i + 1 < len(lines) else None
            records.append(self._take(line + b"\n", following, head))
        self._check_end(head, torn=bool(rest), locked=locked)
        self._seen = None if rest else seen
        return anew, records

    def _read_head(self) -> Head | None:
        if not self.head_path.exists():
            return None
        try:
            record = read_json(self.head_path)
            return int(record["count"]), str(record["hash"])
        except (BadInput, KeyError, TypeError, ValueError) as e:
            raise self._tampered(f"a {self.head_path.name} that was edited or damaged") from e

    def _take(self, line: bytes, following: bytes | None, head: Head | None) -> dict[str, Any]:
        """Check that a line follows those before it, and remember it.

        The line after it, or the head, tells which of two contradicting lines was changed.
        """
        number, before = self.head()
        number += 1
        try:
            record = json.loads(line)
            n, previous = record["n"], record["previous"]
        except (ValueError, TypeError, KeyError) as e:
            if number == 1:
                raise self._tampered("a first line that was changed, or of an older version") from e
            raise self._tampered(f"one whose line {number} was changed") from e
        if n != number:
            raise self._tampered(
                f"one whose line {number} was removed or moved: number {n} stands there"
            )
        digest = hashlib.sha256(line).hexdigest()
        if previous != before:
            itself = following is None or digest.encode() not in following
            if following is None and head:
                itself = head != (number, digest)
            raise self._tampered(f"one whose line {number if itself else number - 1} was changed")
        self._hashes.append(digest)
        self._prefix.update(line)
        self.size += len(line)
        return record

    def _check_end(self, head: Head | None, *, torn: bool, locked: bool) -> None:
        count, name = len(self._hashes), self.head_path.name
        if head is None:
            # The first append may have died before it wrote the head.
            if count > 1:
                raise self._tampered(f"one of {count} lines without its {name}, which was deleted")
            return
        known, digest = head
        if known > count:
            if torn:
                raise self._tampered(f"one that was truncated in line {count + 1} of {known}")
            raise self._tampered(f"one that ends at line {count}, {name} says {known}")
        if known < 1 or self._hashes[known - 1] != digest:
            raise self._tampered(f"one whose line {known} was changed, or whose {name} was")
        if locked and count > known + 1:
            raise self._tampered(f"one of {count} lines with an old {name}, which says {known}")

    def append(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Append a line under the lock of a `refresh`; on disk with its head when this returns."""
        count, before = self.head()
        link = {"n": count + 1, "previous": before}
        line = json.dumps(link | dict(record) | link, allow_nan=False)
        content = f"{line}\n".encode()
        try:
            if count and self._read_head() != (count, before):
                self._write_head()  # a process died before it had; a second one may die, too
            append_bytes(self.path, content, at=self.size)
            taken = self._take(content, None, None)
            self._write_head()
        except BaseException:
            self.forget()  # what has reached the disk is for the next refresh to say
            raise
        self._seen = stamp_of(self.path)
        return taken

    def _write_head(self) -> None:
        count, digest = self.head()
        write_json(self.head_path, {"version": VERSION, "count": count, "hash": digest})

    def _tampered(self, what: str) -> BadInput:
        return BadInput(
            f"expected {self.path} as it was written, got {what}; put the right files back, or "
            "start a new run"
        )
