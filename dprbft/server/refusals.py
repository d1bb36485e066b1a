"""Which replies the server has refused: a line each in `server/refused.jsonl`, without content."""

import json
from datetime import UTC, datetime
from pathlib import Path

from dprbft.paths import refused_file
from panas.runtime.errors import BadInput
from panas.runtime.store import append_bytes, exclusive

MOST_BYTES = 1 << 20
"""A longer file takes no more lines: whoever floods the server does not fill its disk."""


def expected(error: BadInput) -> str:
    """What a refused reply should have been; what came is the site's own, and is left out."""
    return str(error).split(", got ")[0]


def note_refused(server: Path, site: str, verb: str, reason: str) -> None:
    """Add a line: the site's name, what it was asked, and what its reply should have been."""
    path = refused_file(server)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"time": when, "site": site, "verb": verb, "reason": reason}
    with exclusive(path):
        at = path.stat().st_size if path.exists() else 0
        if at < MOST_BYTES:
            append_bytes(path, (json.dumps(record) + "\n").encode(), at)
