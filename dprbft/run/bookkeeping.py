"""What `stages.json` keeps: seconds of each stage, and which are done."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dprbft.config.families import STAGES
from dprbft.paths import stages_file
from panas.runtime.store import exclusive, read_json, write_json


@dataclass(frozen=True)
class StageRecord:
    """The stages of a run so far."""

    seconds: dict[str, float] = field(default_factory=dict)  # of stages begun, interruptions too
    done: tuple[str, ...] = ()  # stages that ran to their end


@contextlib.contextmanager
def timed(
    run: Path, stage: str, whole: Callable[[], bool] = lambda: True, *, anew: bool = False
) -> Iterator[None]:
    """Add the seconds of the block to the stage's; mark it done if it ends well and is whole.

    Args:
        run: directory of the run.
        stage: name of the stage.
        whole: whether nothing of the stage is left to do; called when the block has ended.
        anew: whether the stage's seconds start at 0.
    """
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
            write_json(stages_file(run), asdict(StageRecord(seconds, ended)))


def seconds(run: Path) -> dict[str, float]:
    """Seconds of each stage so far; not every method joins before it searches."""
    known = _read(run).seconds
    return {stage: known.get(stage, 0.0) for stage in STAGES if stage != "join" or stage in known}


def is_done(run: Path, stage: str) -> bool:
    """Whether a stage ran to its end."""
    return stage in _read(run).done


def _read(run: Path) -> StageRecord:
    if not stages_file(run).exists():
        return StageRecord()
    r = read_json(stages_file(run))
    return StageRecord(r["seconds"], tuple(r["done"]))
