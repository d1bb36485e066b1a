"""Logs: one line an event, as JSON or as text; put aside by size, and private to their owner.

A log has one writer. Nothing of a sample belongs into one. Nothing here imports torch.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

Level = Literal["info", "warning", "error"]
Format = Literal["text", "json"]
Value = str | int | float | list[str]

LONGEST = 1 << 22
"""Bytes of a log, at most; then it is put aside as `NAME.1`, which becomes `NAME.2`."""
KEPT = 2
"""Logs that are put aside, at most."""
FORMAT = "PANAS_LOG_FORMAT"
"""Environment variable: how a process that panas starts writes to stderr."""


@dataclass(frozen=True)
class Line:
    """One event: what it is, how grave, when (UTC), and facts about it."""

    event: str
    about: Mapping[str, Value] = field(default_factory=dict)
    level: Level = "info"
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def json(self) -> str:
        """The line as a JSON object; no fact takes the place of time, level or event."""
        head = {"time": self._time, "level": self.level, "event": self.event}
        return json.dumps(head | dict(self.about) | head)

    def text(self) -> str:
        """The line to read: time, level, event, and facts as name=value."""
        facts = [f"{name}={_shown(value)}" for name, value in self.about.items() if value != ""]
        return " ".join([self._time, self.level.upper(), self.event, *facts])

    def written(self, format: Format) -> str:
        """The line in a format."""
        return self.json() if format == "json" else self.text()

    @property
    def _time(self) -> str:
        return self.time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _shown(value: Value) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    plain = text.isprintable() and not set(text) & set(' "=')
    return text if plain or not isinstance(value, str) else json.dumps(text)


class _Rotating(RotatingFileHandler):
    """A log on disk that only its owner may read; what cannot be written is raised."""

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # of a process that died in a line
            os.write(handle, b"\n")
        return os.fdopen(handle, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Let the error through."""
        raise


def append(path: Path, line: Line, longest: int = LONGEST) -> None:
    """Add a line to a log, as JSON; OSError if that cannot be.

    Args:
        path: of the log, whose folder is there.
        line: the event.
        longest: bytes of the log, at most.
    """
    handler = _Rotating(path, maxBytes=longest, backupCount=KEPT, encoding="utf-8")
    try:
        handler.emit(logging.makeLogRecord({"msg": line.json()}))
    finally:
        handler.close()


def is_json() -> bool:
    """Whether whoever started this process wants JSON on stderr."""
    return os.environ.get(FORMAT) == "json"


def to_stderr(text: str) -> None:
    """Write a line for whoever runs this process."""
    sys.stderr.write(" ".join(text.splitlines()) + "\n")
    sys.stderr.flush()


class JsonLines(logging.Formatter):
    """Records of the standard library as lines of JSON: those of Flower and its server."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's level, logger and text; of an error also where it came from."""
        level: Level = "error" if record.levelno >= logging.ERROR else "info"
        if record.levelno == logging.WARNING:
            level = "warning"
        about: dict[str, Value] = {"logger": record.name, "text": record.getMessage()}
        if record.exc_info and record.exc_info[0]:
            about["error"] = record.exc_info[0].__name__
        return Line("log", about, level, datetime.fromtimestamp(record.created, UTC)).json()


def all_as_json(*loggers: str) -> None:
    """Let loggers of other libraries write to stderr as lines of JSON, and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for logger in map(logging.getLogger, loggers):
        logger.handlers[:], logger.propagate = [handler], False
