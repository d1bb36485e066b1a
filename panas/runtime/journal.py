"""A log from which a search resumes: a header, then one JSON line a finished step.

A line is on disk before the next step begins and holds the whole state, random generators
included: a killed search goes on as if never interrupted. An unfinished last line is dropped. No
line holds a time: equal searches write equal bytes.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from panas.runtime.errors import BadInput
from panas.runtime.store import append_bytes, exclusive, read_lines


class Journal:
    """The lines of one search so far, made by `open_journal`; without a path, in memory only."""

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self._path = path
        self._bytes = 0
        self.lines: list[dict[str, Any]] = []
        wanted: dict[str, Any] = json.loads(_text(header))
        found = read_lines(path) if path is not None else []
        if not found:
            self._write(wanted)
            return
        assert path is not None
        _compare(wanted, found[0], path)
        self.lines = found[1:]
        content = path.read_bytes()
        self._bytes = content.rfind(b"\n") + 1

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
def open_journal(path: Path | None, header: Mapping[str, Any]) -> Iterator[Journal]:
    """A journal that this process alone holds while the block lasts.

    Args:
        path: its file, made if needed; None keeps the lines in memory.
        header: which search this is, as plain JSON; a file of another search is refused.

    Raises:
        BadInput: if the file holds another search or is damaged, or if another process has it open.

    """
    if path is None:
        yield Journal(None, header)
        return
    with exclusive(path, wait=False):
        yield Journal(path, header)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines that are on disk, without the header; none if there is no file."""
    return read_lines(path)[1:]


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False)


def _compare(header: dict[str, Any], found: dict[str, Any], path: Path) -> None:
    for key in (*header, *found):
        if header.get(key) != found.get(key):
            raise BadInput(
                f"expected {path} from a search with {key} = {_short(header.get(key))}, got one "
                f"with {_short(found.get(key))}; give the same settings, or another folder"
            )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
