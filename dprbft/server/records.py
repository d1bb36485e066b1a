"""What the server knows of a round: one `RoundRecord` a line of `server/rounds.jsonl`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dprbft.paths import rounds_file
from panas.runtime.store import read_lines, write_bytes


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """A finished round: seconds, bytes that crossed the wire, and what came from whom."""

    round: int
    seconds: float
    up_bytes: int
    down_bytes: int
    sites: tuple[int, ...]  # those that took part
    absent: tuple[int, ...] = ()  # those that were asked and did not answer
    releases: Mapping[int, str]  # SHA-256 of what each site sent, for an audit
    # The same of masked vectors, of which the server has learnt the sum alone.
    masked: Mapping[int, str] = field(default_factory=dict)
    broadcast: str  # SHA-256 of the answer

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        record = asdict(self)
        return record if self.masked else {k: v for k, v in record.items() if k != "masked"}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "RoundRecord":
        """Read back `to_json`."""
        digests = {
            name: {int(i): digest for i, digest in record.get(name, {}).items()}
            for name in ("releases", "masked")
        }
        parts = {name: tuple(record[name]) for name in ("sites", "absent")}
        return RoundRecord(**(record | parts | digests))


def write_rounds(server: Path, records: Sequence[RoundRecord]) -> None:
    """Write rounds.jsonl anew."""
    lines = (json.dumps(r.to_json()) + "\n" for r in records)
    write_bytes(rounds_file(server), "".join(lines).encode())


def read_rounds(server: Path) -> list[RoundRecord]:
    """All finished rounds."""
    return [RoundRecord.from_json(line) for line in read_lines(rounds_file(server))]
