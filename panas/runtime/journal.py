"""A log from which a search resumes: a header, then one JSON line a finished step.

A line is on disk before the next step begins and holds the whole state, random generators included.
An unfinished last line is dropped. No line holds a time: equal searches write equal bytes.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from panas.runtime.errors import BadInput, PanasError
from panas.runtime.store import append_bytes, exclusive, read_lines


class Journal:
    """The lines of one search so far, made by `open_journal`; without a path, in memory only."""

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self._path = path
        self._bytes = 0
        self.lines: list[dict[str, Any]] = []
        expected: dict[str, Any] = json.loads(_text(header))
        lines = read_lines(path) if path is not None else []
        if not lines:
            self._write(expected)
            return
        assert path is not None
        _compare(expected, lines[0], path)
        self.lines = lines[1:]
        self._bytes = path.read_bytes().rfind(b"\n") + 1

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line; it is on disk when this returns."""
        record = json.loads(_text(line))
        self._write(record)
        self.lines.append(record)

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._path is not None:
            content = (_text(record) + "\n").encode()
            append_bytes(self._path, content, at=self._bytes)
            self._bytes += len(content)


@contextmanager
def open_journal(
    path: Path | None, header: Mapping[str, Any], *, keep: bool = True
) -> Iterator[Journal]:
    """A journal that this process alone holds while the block lasts; without a path, in memory.

    The file of another search, a damaged one, or one that another process has open, is `BadInput`.

    Args:
        path: a .jsonl file, made if it is not there; None keeps the journal in memory.
        header: which search this is, as JSON; that of a file must be equal.
        keep: else a block that refuses before its first line leaves no new file, so that it may be
            called again with other settings.
    """
    with exclusive(path, wait=False) if path is not None else nullcontext():
        begun = path is None or path.exists()
        journal = Journal(path, header)
        try:
            yield journal
        except PanasError:
            if path is not None and not (begun or keep or journal.lines):
                path.unlink()
            raise


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines that are on disk, without the header; none if there is no file."""
    return read_lines(path)[1:]


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False)


def _compare(header: dict[str, Any], stored: dict[str, Any], path: Path) -> None:
    for key in (*header, *stored):
        if header.get(key) != stored.get(key):
            raise BadInput(
                f"expected {path} from a search with {key} = {json.dumps(header.get(key))[:80]}, "
                f"got one with {json.dumps(stored.get(key))[:80]}; give the same settings, or "
                "another folder"
            )
