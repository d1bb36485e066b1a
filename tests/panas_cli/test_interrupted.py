"""A run that is stopped, killed or out of budget: it goes on, and nothing that was spent is lost.

A killed run is a process of its own that kills itself with SIGKILL at a chosen call, so that the
moment is exact: no handler, no `finally` and no buffer gets its chance.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from forked import Death, begin, carry_out
from ledgers import accounts, assert_kept, contents

from dprbft.paths import home, last_model_file, model_file, rounds_file, server_folder
from panas.runtime.store import parse_tensors, read_json, read_lines
from panas.training.checkpoint import load_network

ROOT = Path(__file__).parents[2]

SITE = """
import os, sys
if "forkserver" in " ".join(sys.orig_argv):
    from forked import plant
    module, name, call, when, once = os.environ["PANAS_TEST_DEATH"].split()
    plant(module, name, int(call), when, once)
"""
"""Of each Python process; the server of worker processes hands on what was planted in it."""

DEATHS: dict[str, Death] = {
    # The histogram of site 1 is charged, its architecture is not found.
    "search": ("panas.search_modes.mode", "search_by_training", 2, "before"),
    # DP-SGD is charged, and not a step of it taken.
    "train, after the charge": ("dprbft.methods.rounds.training", "fit_private", 2, "before"),
    # All of site 0's round 2 is charged and computed, and where it stands is not.
    "train, after the release": ("dprbft.methods.rounds.site", "write_bytes", 3, "after"),
    # Site 1 is through with round 2, and its release has not arrived.
    "train, before it arrived": ("dprbft.server.checkpoint", "write_bytes", 6, "before"),
    # Site 0 has the answer to round 2, site 1 not yet.
    "train, half answered": ("dprbft.methods.rounds.site", "note_round", 6, "before"),
    "train, before the end": ("dprbft.server.checkpoint", "write_json", 3, "before"),
    "audit": ("attacks.audit.run", "audit_site", 2, "before"),
}

DEATHS_OF_A_SITE: dict[str, Death] = {
    "search": ("panas.search_modes.mode", "search_by_training", 1, "before"),
    "tune": ("dprbft.methods.rounds.tuning", "_tune", 1, "after"),
    "train, after the charge": ("dprbft.methods.rounds.training", "fit_private", 1, "before"),
    "train, after the release": ("dprbft.methods.rounds.site", "write_bytes", 1, "after"),
    "audit": ("attacks.audit.run", "audit_site", 1, "before"),
}

DEATHS_OF_THE_SERVER: dict[str, Death] = {
    "search": ("panas_cli.progress", "sentence", 1, "before"),
    "tune": ("panas_cli.progress", "sentence", 3, "before"),
    "train, before it arrived": ("dprbft.server.checkpoint", "write_bytes", 5, "before"),
    "train, after the answer": ("dprbft.server.checkpoint", "write_bytes", 7, "after"),
    "audit": ("attacks.audit.run", "_write_pictures", 1, "before"),
}


def marked(deaths: dict[str, Death], *slow: str) -> list[Any]:
    """The deaths whose names hold one of `slow` are slow tests; the others thorough ones."""
    marks = {where: "slow" if any(x in where for x in slow) else "thorough" for where in deaths}
    return [pytest.param(where, marks=getattr(pytest.mark, marks[where])) for where in deaths]


def killed(death: Death, run: Path, *arguments: object) -> None:
    """Run `panas ARGS` in a process that dies as told."""
    said = run.with_suffix(".stderr")
    assert carry_out(said, *arguments, death=death) == -signal.SIGKILL, said.read_text()


def site_killed(death: Death, folder: Path, *arguments: object) -> None:
    """Run `panas ARGS` with two workers, of which one dies as told."""
    (folder / "sitecustomize.py").write_text(SITE)
    told = " ".join(str(x) for x in (*death, folder / "dead"))
    where = {"PYTHONPATH": f"{folder}:{ROOT}:{ROOT}/tests/helpers", "OMP_NUM_THREADS": "1"}
    said = folder / "stderr"
    with patch.dict(os.environ, where | {"PANAS_TEST_DEATH": told}):
        code = carry_out(said, *arguments)
    assert (folder / "dead").exists()
    assert code == 1, said.read_text()
    assert "a worker process died" in said.read_text().splitlines()[-1]


def check_finished(run: Path) -> None:
    summary = read_json(run / "summary.json")
    assert summary["finished"] is True
    assert (run / "audit.json").is_file()
    for i, account in enumerate(accounts(run)):
        assert account.spent() <= account.budget.epsilon
        load_network(model_file(home(run, i)))


@pytest.mark.parametrize("where", marked(DEATHS, "release"))
def test_a_killed_run_resumes_and_keeps_what_it_spent(
    where: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    options = tiny(federation__rounds=2, tuning__trials=1, tuning__initial=1)
    killed(DEATHS[where], run, "run", "--out", run, *options)
    resume(run)
    # Beyond a histogram, and training and release of two rounds, of two sites. A search that
    # died goes on with the histogram that it has paid for; a round that a site is through with
    # is not trained again, whatever died after. The last round is repeated with what its plan left
    # of the budget, and skipped where that is next to nothing.
    extra = sum(len(a.entries) for a in accounts(run)) - 2 * (1 + 2 * 2)
    repeated = {"train, after the charge": (1,), "train, after the release": (0, 2)}
    assert extra in repeated.get(where, (0,))


def resume(run: Path) -> None:
    """Go on in another process, and check that nothing that was spent is lost."""
    before, spent = contents(run), [a.spent() for a in accounts(run)]
    assert any(b'"charge"' in content for content in before.values())
    said = run.with_suffix(".stderr")
    assert carry_out(said, "run", "--out", run, "--resume", "--workers=1") == 0, said.read_text()
    assert_kept(before)
    for account, least in zip(accounts(run), spent, strict=True):
        assert account.spent() >= least
    assert receipts(run) <= {e.id for a in accounts(run) for e in a.entries}
    check_finished(run)


@pytest.mark.parametrize("where", marked(DEATHS_OF_A_SITE, "release"))
def test_a_run_whose_site_was_killed_resumes(where: str, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    options = tiny(federation__rounds=2, tuning__trials=1, tuning__initial=1)[2:]
    site_killed(DEATHS_OF_A_SITE[where], tmp_path, "run", "--out", run, "--workers", 2, *options)
    resume(run)


@pytest.mark.parametrize("where", marked(DEATHS_OF_THE_SERVER, "answer"))
def test_a_run_whose_server_was_killed_resumes(where: str, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    options = tiny(federation__rounds=2, tuning__trials=1, tuning__initial=1)[2:]
    killed(DEATHS_OF_THE_SERVER[where], run, "run", "--out", run, "--workers", 2, *options)
    resume(run)
    # The sites had kept what they were through with, and trained no round again.
    for account in accounts(run):
        assert len(account.events("release")) == 2


@pytest.mark.thorough
def test_one_run_killed_in_every_stage_still_keeps_its_budget(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    arguments = ["run", "--out", run, *tiny(federation__rounds=2)]
    before: dict[Path, bytes] = {}
    for where in ("search", "train, after the charge", "train, before the end", "audit"):
        death = DEATHS[where]
        if where == "train, before the end":
            death = (*death[:2], 1, death[3])  # the process before has begun
        killed(death, run, *arguments)
        arguments = ["run", "--out", run, "--resume", "--workers", 1]
        assert_kept(before)
        before = contents(run)
        assert all(a.spent() <= a.budget.epsilon for a in accounts(run))
    assert cli(*arguments).code == 0
    assert_kept(before)
    check_finished(run)


def receipts(run: Path) -> set[str]:
    """The receipts of all releases on disk: those that sites have made, and the server received."""
    results = {*run.glob("sites/*/runs/*/releases/*"), *run.glob("server/*/site-*.safetensors")}
    notes = [parse_tensors(p.read_bytes())[1]["message"] for p in results]
    return {json.loads(text)["receipt"] for text in notes}


@pytest.mark.slow
def test_a_run_killed_at_any_moment_has_charged_whatever_left(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    arguments = ["run", "--out", run, *tiny(federation__rounds=4)]
    said = tmp_path / "stderr"
    os.mkfifo(said)
    rng = np.random.default_rng(5)
    before: dict[Path, bytes] = {}
    for _ in range(6):
        child = begin(said, *arguments)
        with said.open("rb") as lines:
            # After the first lines of training, and then a little, which is counted, not timed.
            seen = 0
            while seen < int(rng.integers(1, 5)):
                line = lines.readline()
                assert line, "the run has ended before it was killed"
                seen += b" train: " in line
            spin = int(rng.integers(8_000_000))
            while spin:
                spin -= 1
            child.kill()
            child.join()
        arguments = ["run", "--out", run, "--resume", "--workers", 1]
        assert_kept(before)
        before = contents(run)
        ids = {e.id for a in accounts(run) for e in a.entries}
        assert receipts(run) <= ids
        assert all(a.spent() <= a.budget.epsilon for a in accounts(run))
        if child.exitcode == 0:  # it was quicker
            break
    assert cli(*arguments).code == 0
    assert set() < receipts(run) <= {e.id for a in accounts(run) for e in a.entries}
    assert_kept(before)
    check_finished(run)


@pytest.mark.thorough
def test_noise_grows_after_a_death_between_release_and_state(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    options = tiny(federation__rounds=3)
    killed(DEATHS["train, after the release"], run, "run", "--out", run, *options)
    assert cli("run", "--out", run, "--resume", "--workers", 1).code == 0
    mine, other = accounts(run)
    for phase in ("training", "release"):
        first, died, again, last = (e.noise_multiplier for e in mine.events(phase))
        assert first == died
        assert again == last > 1.02 * died
        assert len({e.noise_multiplier for e in other.events(phase)}) == 1
        assert len(other.events(phase)) == 3
    check_finished(run)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "function",
    [
        "panas.search_modes.mode.search_by_training",
        "dprbft.methods.rounds.tuning._tune",
        "dprbft.methods.rounds.training.fit_private",
        "attacks.audit.run.audit_site",
    ],
)
def test_an_interrupt_says_how_to_go_on(
    function: str, cli: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = tmp_path / "r"

    def interrupt(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(function, interrupt)
        outcome = cli("run", "--out", run, *tiny(tuning__trials=1, tuning__initial=1))
    assert (outcome.code, outcome.out) == (130, "")
    (line,) = outcome.errors
    assert "--resume" in line
    before = contents(run)
    assert cli("run", "--out", run, "--resume", "--workers", 1).code == 0
    assert_kept(before)
    check_finished(run)


def test_sigterm_ends_as_an_interrupt_does(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "panas_cli.text.output.report", lambda *_: os.kill(os.getpid(), signal.SIGTERM)
    )
    try:
        outcome = cli("report", tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == "interrupted: the same command begins anew\n"


def of_session(session: int) -> list[str]:
    """The processes of a session that are still there, by what they run."""
    results = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, _, rest = (folder / "stat").read_text().rpartition(")")
            state, _, _, own = rest.split()[:4]
            if int(own) == session and state != "Z":
                results.append((folder / "cmdline").read_text())
    return results


@pytest.mark.thorough
@pytest.mark.parametrize("whole_group", [False, True], ids=["one process", "all of its group"])
def test_sigterm_ends_the_workers_too(
    whole_group: bool, cli: Callable, tiny: Callable, tmp_path: Path
):
    """As `kill` and as a batch system send it, while two workers search."""
    run = tmp_path / "r"
    options = tiny(search__generations=30, search__epochs=30)
    child = subprocess.Popen(
        [sys.executable, "-m", "panas_cli", "run", "--out", str(run), *options[2:], "--workers=2"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    while "generation" not in child.stderr.readline():
        assert child.poll() is None
    assert len(of_session(child.pid)) >= 3
    (os.killpg if whole_group else os.kill)(child.pid, signal.SIGTERM)
    last = child.stderr.read().splitlines()[-1]
    child.stderr.close()
    assert child.wait() == 130
    assert last == "interrupted: the same command goes on with --resume and the same --out"
    deadline = time.monotonic() + 20
    while (left := of_session(child.pid)) and time.monotonic() < deadline:
        os.sched_yield()
    assert left == []


@pytest.mark.slow
def test_a_budget_too_small_for_anything_keeps_the_public_networks(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    outcome = cli("run", "--out", run, "--epsilon", "0.001", *tiny(), "--json")
    assert outcome.code == 3
    (line,) = outcome.errors
    assert line.startswith("error: ")
    assert "raise epsilon" in line
    summary = json.loads(outcome.out)
    assert summary["finished"] is False
    assert summary["rounds"] == 0
    assert read_json(run / "summary.json")["finished"] is False
    for i, account in enumerate(accounts(run)):
        assert account.spent() == 0
        load_network(model_file(home(run, i)))
    assert not (run / "audit.json").exists()


@pytest.mark.slow
def test_a_budget_too_small_to_join_says_what_to_do_with_the_directory(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    outcome = cli("run", "--out", run, "--epsilon", "0.05", *tiny(), "--method", "joined")
    assert outcome.code == 3
    (line,) = outcome.errors
    assert line.endswith("; a run keeps its settings: give another --out")
    assert all(account.spent() == 0 for account in accounts(run))


@pytest.mark.thorough
def test_a_budget_that_runs_out_in_a_later_round_keeps_the_round_before(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    options = tiny(training__noise_multiplier=0.8, training__batch_size=16, federation__rounds=100)
    outcome = cli("run", "--out", run, *options)
    assert outcome.code == 3
    (line,) = outcome.errors
    assert "the last valid model is kept" in line
    summary = read_json(run / "summary.json")
    assert summary["finished"] is False
    whole = len(read_lines(rounds_file(server_folder(run))))
    assert 1 <= whole == summary["rounds"] < 100
    for i, account in enumerate(accounts(run)):
        assert account.spent() <= account.budget.epsilon
        saved = load_network(last_model_file(home(run, i)))
        assert saved.notes["round"] == whole
    before = contents(run)
    again = cli("run", "--out", run, "--resume", "--workers", 1)
    assert again.code == 3
    assert_kept(before)


@pytest.mark.slow
def test_train_alone_ends_with_the_same_code(cli: Callable, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    both = ["--client", 0, "--client", 1]
    assert cli("search", "--out", run, *both, *tiny(), "--epsilon", "0.001").code == 0
    assert cli("tune", "--out", run, *both, "--workers", 1).code == 0
    outcome = cli("train", "--out", run, "--workers", 1)
    assert (outcome.code, len(outcome.errors)) == (3, 1)
    assert model_file(home(run, 1)).is_file()
