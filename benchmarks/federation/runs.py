"""What benchmarks of whole runs share: one run to its end."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, stages_of, train_stage, tune_stage
from dprbft.run.summary import summarise


@contextmanager
def finished(config: RunConfig, workers: int) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A run's directory, which is there while the block lasts, and its summary."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        yield run, finished_in(run, config, workers)


def finished_in(run: Path, config: RunConfig, workers: int) -> dict[str, Any]:
    """The summary of a run in this directory, which goes on if it was begun there."""
    prepare(run, config, resume=True)
    with InProcess(read_sites(run), workers) as engine:
        opened = OpenRun(run, config, engine)
        if "search" in stages_of(config):
            search_stage(opened)
        if "tune" in stages_of(config):
            tune_stage(opened)
        train_stage(opened)
    return summarise(run, config)
