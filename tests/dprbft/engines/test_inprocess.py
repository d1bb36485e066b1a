"""The in-process engine: who answers, in which order, and workers that must not stay."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from federation import is_running, wait_for

from dprbft.config.schema import RunConfig
from dprbft.engines import inprocess
from dprbft.engines.inprocess import InProcess
from dprbft.engines.protocol import Engine, SiteRefusal, check_reply
from dprbft.messages import Code, Reply, Verb
from dprbft.methods.serve import Machine
from dprbft.paths import SitePaths, home, read_sites, refusal_file, search_file, tune_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, tune_stage
from dprbft.run.view import RunView
from panas.runtime.errors import BudgetExhausted
from panas.runtime.store import read_json

PLACES = [SitePaths(i, f"site-{i}", Path(f"nowhere/{i}"), "run") for i in range(4)]


def who(paths: SitePaths, machine: Machine, verb: Verb, content: bytes) -> Reply:
    return Reply(Code.DONE, f"{paths.name} {verb} {os.getpid()} {content!r}".encode())


def refuse_three(paths: SitePaths, machine: Machine, verb: Verb, content: bytes) -> Reply:
    if paths.index == 3:
        raise BudgetExhausted("expected a budget, got none")
    return Reply(Code.DONE)


def test_one_worker_asks_here_and_in_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inprocess, "serve", who)
    with InProcess(PLACES) as engine:
        assert isinstance(engine, Engine)
        replies = list(engine.call(Verb.SEARCH, {3: b"c", 1: b"a"}))
        assert replies == [
            (3, Reply(Code.DONE, f"site-3 search {os.getpid()} b'c'".encode())),
            (1, Reply(Code.DONE, f"site-1 search {os.getpid()} b'a'".encode())),
        ]
        assert list(engine.call(Verb.SEARCH, {})) == []


def test_what_a_site_does_not_foresee_ends_the_call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inprocess, "serve", refuse_three)
    with InProcess(PLACES) as engine:
        replies = engine.call(Verb.SEARCH, dict.fromkeys((1, 3, 2), b""))
        assert next(replies) == (1, Reply(Code.DONE))
        with pytest.raises(BudgetExhausted):
            next(replies)


@pytest.mark.parametrize(
    ("workers", "asked", "processes", "inner"), [(1, None, 1, 1), (9, None, 4, 2), (6, 1, 1, 6)]
)
def test_workers_are_shared_out_over_the_sites_that_are_asked(
    workers: int, asked: int | None, processes: int, inner: int
):
    with InProcess(PLACES, workers, asked=asked) as engine:
        assert (engine.workers, engine.inner) == (processes, inner)


def test_a_refusal_is_a_code_and_names_the_site():
    check_reply(2, Reply(Code.DONE))
    for code, text in ((Code.ABSENT, "absent"), (Code.NO_BUDGET, "no budget")):
        with pytest.raises(SiteRefusal, match=f"site 2 answered {text}") as refused:
            check_reply(2, Reply(code))
        assert (refused.value.site, refused.value.exit_code) == (2, int(code))


@pytest.mark.slow
def test_workers_answer_for_every_site_and_a_refusal_costs_its_own_alone(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    config = tiny(federation__clients=3)
    prepare(tmp_path, config, resume=False)
    view = RunView(tmp_path, config)
    with InProcess(view.sites, 2) as engine:
        hellos = {i: view.hello(i) for i in range(3)}
        replies = dict(engine.call(Verb.HELLO, hellos | {1: b"no hello"}))
        assert replies == {
            0: Reply(Code.DONE),
            1: Reply(Code.REFUSED),
            2: Reply(Code.DONE),
        }
        # Its reason stays with the site.
        assert "hello" in read_json(refusal_file(home(tmp_path, 1)))["reason"]
        assert dict(engine.call(Verb.HELLO, {1: hellos[1]})) == {1: Reply(Code.DONE)}
        assert not refusal_file(home(tmp_path, 1)).exists()


@pytest.mark.slow
def test_workers_find_the_same_as_one_process(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Noise is never reproducible, so what is compared must not hang on the noised histogram.
    config = tiny(privacy__histogram_share=0.999, privacy__epsilon=500, tuning__trials=0)
    results = {}
    for workers in (1, 2):
        run = tmp_path / str(workers)
        prepare(run, config, resume=False)
        with InProcess(read_sites(run), workers) as engine:
            search_stage(OpenRun(run, config, engine))
            tune_stage(OpenRun(run, config, engine))
        results[workers] = [
            (
                read_json(search_file(home(run, i)))["genome"],
                read_json(tune_file(home(run, i)))["setting"],
            )
            for i in range(2)
        ]
    assert results[1] == results[2]


# Each worker runs the lines above the last two, too.
ORPHAN = """
import sys
from dprbft.engines import inprocess
from dprbft.messages import Verb
sys.path.insert(0, {folder!r})
from test_inprocess import PLACES, wait_after_telling
inprocess.serve = wait_after_telling
if __name__ == "__main__":
    with inprocess.InProcess(PLACES, 2) as engine:
        list(engine.call(Verb.SEARCH, {{0: {note!r}}}))
"""


def wait_after_telling(paths: SitePaths, machine: Machine, verb: Verb, note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    while True:
        signal.pause()


@pytest.mark.thorough
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
        assert worker != caller.pid
        assert is_running(worker)
    finally:
        caller.kill()
        caller.wait()
    try:
        wait_for(lambda: not is_running(worker), seconds=20.0)
    finally:
        if is_running(worker):
            os.kill(worker, signal.SIGKILL)
