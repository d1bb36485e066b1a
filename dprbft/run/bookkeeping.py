"""What `stages.json` keeps: seconds of each stage, which are done, and the ledgers' last lines."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprbft.paths import stages_file
from dprbft.server.checkpoint import check_since_round
from dprbft.simulation.ledgers import Heads, check_heads, heads, heads_from_json, heads_to_json
from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, read_json, write_json

STAGES = ("search", "tune", "train", "audit")


@dataclass(frozen=True)
class StageRecord:
    """The stages of a run so far."""

    seconds: dict[str, float] = field(default_factory=dict)  # of stages begun, interruptions too
    done: tuple[str, ...] = ()  # stages that ran to their end
    ledgers: Heads = field(default_factory=dict)  # as the last stage left them

    def to_json(self) -> dict[str, Any]:
        """The record as JSON."""
        notes = heads_to_json(self.ledgers)
        return {"seconds": self.seconds, "done": list(self.done), "ledgers": notes}


@contextlib.contextmanager
def timed(
    run: Path, stage: str, whole: Callable[[], bool] = lambda: True, *, anew: bool = False
) -> Iterator[None]:
    """Add the seconds of the block to the stage's; mark it done if it ends well and is whole.

    With `anew` its seconds start at 0. BadInput, at once, if a ledger is not the one that the
    stages before have written to.
    """
    check_ledger(run)  # before this stage's note of it replaces theirs
    began, done = time.perf_counter(), False
    try:
        yield
        done = whole()
    finally:
        with exclusive(stages_file(run)):
            record = _read(run)
            before = 0.0 if anew else record.seconds.get(stage, 0.0)
            seconds = record.seconds | {stage: before + time.perf_counter() - began}
            ended = (*record.done, stage) if done and stage not in record.done else record.done
            noted = record.ledgers
            with contextlib.suppress(BadInput):  # if it was exchanged, what was noted stands
                check_ledger(run)
                noted = heads(run)
            write_json(stages_file(run), StageRecord(seconds, ended, noted).to_json())


def check_ledger(run: Path) -> None:
    """Refuse a ledger that is not the one that the run's stages and rounds have written to."""
    check_heads(run, _read(run).ledgers)
    check_since_round(run)


def seconds(run: Path) -> dict[str, float]:
    """Seconds of each stage so far."""
    record = _read(run)
    return {stage: record.seconds.get(stage, 0.0) for stage in STAGES}


def is_done(run: Path, stage: str) -> bool:
    """Whether a stage ran to its end."""
    return stage in _read(run).done


def _read(run: Path) -> StageRecord:
    if not stages_file(run).exists():
        return StageRecord()
    r = read_json(stages_file(run))
    return StageRecord(r["seconds"], tuple(r["done"]), heads_from_json(r["ledgers"]))
