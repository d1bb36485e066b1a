"""What rounds.jsonl says of a round: one `RoundRecord` a line."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dprbft.paths import rounds_file
from dprbft.site.state import State
from panas.runtime.store import read_lines, write_bytes


@dataclass(frozen=True, kw_only=True)
class ClientRound:
    """A participant's round; accuracies are the simulator's view."""

    id: int  # of the client
    local: float | None  # test accuracy with its own head
    shared: float | None  # test accuracy with the shared head ("global" in the file)
    validation: float  # accuracy of the blend that validation preferred
    blend: float  # the own head's share in it
    kept: float  # test accuracy of the round that validation selected so far
    release: str | None = None  # SHA-256 of what it sent, for an audit; None for nothing

    @staticmethod
    def of(id: int, state: State, release: str | None) -> "ClientRound":
        """The record of a client's state after the round."""
        scores = asdict(state.scores)
        del scores["best"]
        return ClientRound(id=id, kept=state.kept.accuracy, release=release, **scores)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return {"global" if k == "shared" else k: v for k, v in asdict(self).items()}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "ClientRound":
        """Read back `to_json`."""
        return ClientRound(**{"shared" if k == "global" else k: v for k, v in record.items()})


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """A finished round: seconds, bytes that crossed the wire, and each participant."""

    round: int
    seconds: float
    up_bytes: int
    down_bytes: int
    clients: tuple[ClientRound, ...]

    @property
    def mean(self) -> float:
        """Mean test accuracy of what the participants keep."""
        return statistics.fmean(c.kept for c in self.clients)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return asdict(self) | {"clients": [c.to_json() for c in self.clients]}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "RoundRecord":
        """Read back `to_json`."""
        clients = tuple(ClientRound.from_json(c) for c in record["clients"])
        return RoundRecord(**(record | {"clients": clients}))


def write_rounds(run: Path, records: Sequence[RoundRecord]) -> None:
    """Write rounds.jsonl anew."""
    lines = (json.dumps(r.to_json()) + "\n" for r in records)
    write_bytes(rounds_file(run), "".join(lines).encode())


def read_rounds(run: Path) -> list[RoundRecord]:
    """All finished rounds of a run."""
    return [RoundRecord.from_json(line) for line in read_lines(rounds_file(run))]
