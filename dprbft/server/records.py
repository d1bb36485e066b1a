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
    """A participant's round; accuracies are the simulator's view.

    Attributes:
        id: the client's.
        local: test accuracy with its own head.
        shared: test accuracy with the shared head ("global" in the file).
        validation: accuracy of the blend that validation preferred.
        blend: the own head's share in it.
        kept: test accuracy of the round that validation selected so far.
        release: SHA-256 of what it sent, so that an audit knows the very bytes; None for nothing.

    """

    id: int
    local: float | None
    shared: float | None
    validation: float
    blend: float
    kept: float
    release: str | None = None

    @staticmethod
    def of(id: int, state: State, release: str | None) -> "ClientRound":
        """The record of a client's state after the round."""
        s = state.scores
        return ClientRound(
            id=id,
            local=s.local,
            shared=s.shared,
            validation=s.validation,
            blend=s.blend,
            kept=state.kept.accuracy,
            release=release,
        )

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
