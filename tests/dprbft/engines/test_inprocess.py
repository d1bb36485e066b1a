"""The in-process engine: order of results, errors, and workers that die or outlive their caller."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import search_file, tune_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, tune_stage
from panas.runtime.errors import BudgetExhausted, PanasError
from panas.runtime.store import read_json


def square(x: int) -> int:
    return x * x


def refuse_three(x: int) -> int:
    if x == 3:
        raise BudgetExhausted("expected a budget, got none")
    return x


def die(x: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def who(x: int) -> int:
    return os.getpid()


def test_one_worker_runs_here_and_in_order():
    with InProcess(1) as engine:
        assert list(engine.map(square, [3, 1, 2])) == [(0, 9), (1, 1), (2, 4)]
        assert list(engine.map(square, [])) == []
        assert {pid for _, pid in engine.map(who, [1])} == {os.getpid()}


def test_one_worker_stops_at_the_first_error():
    with InProcess(1) as engine:
        results = engine.map(refuse_three, [1, 3, 4])
        assert next(results) == (0, 1)
        with pytest.raises(BudgetExhausted):
            next(results)


@pytest.mark.slow
def test_workers_answer_for_every_task_and_pass_errors_on():
    with InProcess(2) as engine:
        assert dict(engine.map(square, range(8))) == {i: i * i for i in range(8)}
        assert os.getpid() not in {pid for _, pid in engine.map(who, range(4))}
        with pytest.raises(BudgetExhausted, match="expected a budget"):
            list(engine.map(refuse_three, range(6)))
        # One task's error does not break the pool.
        assert dict(engine.map(square, [5])) == {0: 25}


@pytest.mark.slow
def test_a_worker_that_dies_is_told_in_one_line():
    with pytest.raises(PanasError, match="worker process died") as e, InProcess(2) as engine:
        list(engine.map(die, range(3)))
    assert "\n" not in str(e.value)
    assert "--resume" in str(e.value)


@pytest.mark.slow
def test_workers_find_the_same_as_one_process(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Noise is never reproducible, so what is compared must not hang on the noised histogram.
    config = tiny(privacy__histogram_share=0.999, privacy__epsilon=500, tuning__trials=0)
    found = {}
    for workers in (1, 2):
        run = tmp_path / str(workers)
        prepare(run, config, resume=False)
        with InProcess(workers) as engine:
            search_stage(OpenRun(run, config, engine))
            tune_stage(OpenRun(run, config, engine))
        found[workers] = [
            (read_json(search_file(run, i))["genome"], read_json(tune_file(run, i))["setting"])
            for i in range(2)
        ]
    assert found[1] == found[2]


ORPHAN = """
import os, sys
from dprbft.engines.inprocess import InProcess
sys.path.insert(0, {folder!r})
from test_inprocess import wait_after_telling
if __name__ == "__main__":
    with InProcess(2) as engine:
        list(engine.map(wait_after_telling, [{note!r}]))
"""


def wait_after_telling(note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    while True:
        signal.pause()


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_no_worker_outlives_a_killed_run(tmp_path: Path):
    note, script = tmp_path / "pid", tmp_path / "script.py"
    script.write_text(ORPHAN.format(folder=str(Path(__file__).parent), note=str(note)))
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    caller = subprocess.Popen([sys.executable, str(script)], env=environment)
    try:
        wait_for(lambda: note.exists() and note.read_text())
        worker = int(note.read_text())
        assert alive(worker)
    finally:
        caller.kill()
        caller.wait()
    try:
        wait_for(lambda: not alive(worker), seconds=20.0)
    finally:
        if alive(worker):
            os.kill(worker, signal.SIGKILL)


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Poll until a condition holds; the deadline only bounds a failure."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        os.sched_yield()
