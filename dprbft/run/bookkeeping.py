"""What `stages.json` keeps: seconds of each stage, which are done, and the ledger they wrote to."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprbft.paths import ledger_file, stages_file
from dprbft.server.checkpoint import check_since_round
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput
from panas.runtime.store import exclusive, read_json, write_json

STAGES = ("search", "tune", "train", "audit")


@dataclass(frozen=True)
class StageRecord:
    """The stages of a run so far.

    Attributes:
        seconds: of each stage that has begun, over all interruptions.
        done: stages that ran to their end.
        ledger: number of lines that the ledger had, and the hash of the last.

    """

    seconds: dict[str, float] = field(default_factory=dict)
    done: tuple[str, ...] = ()
    ledger: tuple[int, str] = (0, "")

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        return {"seconds": self.seconds, "done": list(self.done), "ledger": list(self.ledger)}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "StageRecord":
        """Read back what `to_json` made."""
        count, digest = record["ledger"]
        return StageRecord(record["seconds"], tuple(record["done"]), (count, digest))


@contextlib.contextmanager
def timed(
    run: Path, stage: str, whole: Callable[[], bool] = lambda: True, *, anew: bool = False
) -> Iterator[None]:
    """Add the seconds of the block to the stage's; mark it done if it ends well and is whole.

    With `anew` the stage starts from the top, and so do its seconds.

    Raises:
        BadInput: at once, if the ledger is not the one that the stages before have written to.

    """
    check_ledger(run)  # before this stage's note of it replaces theirs
    began = time.perf_counter()
    done = False
    try:
        yield
        done = whole()
    finally:
        with exclusive(stages_file(run)):
            record = _read(run)
            before = 0.0 if anew else record.seconds.get(stage, 0.0)
            seconds = record.seconds | {stage: before + time.perf_counter() - began}
            ended = (*record.done, stage) if done and stage not in record.done else record.done
            ledger = record.ledger
            with contextlib.suppress(BadInput):  # if it was exchanged, what was noted stands
                check_ledger(run)
                ledger = Ledger(ledger_file(run)).head()
            write_json(stages_file(run), StageRecord(seconds, ended, ledger).to_json())


def check_ledger(run: Path) -> None:
    """Refuse a ledger that is not the one that the run's stages and rounds have written to.

    Raises:
        BadInput: naming the line that is not there.

    """
    Ledger(ledger_file(run)).check_holds(*_read(run).ledger)
    check_since_round(run)


def seconds(run: Path) -> dict[str, float]:
    """Seconds of each stage so far."""
    record = _read(run)
    return {stage: record.seconds.get(stage, 0.0) for stage in STAGES}


def is_done(run: Path, stage: str) -> bool:
    """Whether a stage ran to its end."""
    return stage in _read(run).done


def _read(run: Path) -> StageRecord:
    path = stages_file(run)
    return StageRecord.from_json(read_json(path)) if path.exists() else StageRecord()
