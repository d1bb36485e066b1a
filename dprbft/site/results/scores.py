"""What a site notes of its own rounds: accuracies, which never leave it.

A simulation reads them from its sites' folders, and calls them the simulator's view.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dprbft.paths import scores_file
from panas.runtime.store import read_lines, write_bytes


@dataclass(frozen=True, kw_only=True)
class SiteRound:
    """A site's round, in accuracies."""

    round: int
    local: float | None  # on test samples, with its own head
    shared: float | None  # on test samples, with the shared head
    validation: float  # of the blend that validation preferred
    blend: float  # the own head's share in it
    kept: float  # on test samples, of the round that validation selected so far


def note_round(home: Path, record: SiteRound) -> None:
    """Add a round to a site's notes, in place of an earlier record of the same round."""
    rounds = [r for r in read_scores(home) if r.round < record.round]
    lines = (json.dumps(asdict(r)) + "\n" for r in (*rounds, record))
    write_bytes(scores_file(home), "".join(lines).encode())


def read_scores(home: Path) -> list[SiteRound]:
    """All rounds that a site took part in, the state before the first one included as round 0."""
    return [SiteRound(**line) for line in read_lines(scores_file(home))]
