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

import numpy as np
import pytest
from forked import Death, begin, carry_out
from ledgers import accounts, assert_kept, contents
from tiny_options import without_overruled

from dprbft.paths import home, last_model_file, model_file, rounds_file, server_folder
from panas.runtime.store import parse_tensors, read_json, read_lines
from panas.training.checkpoint import load_network

ROOT = Path(__file__).parents[2]

DEATHS: dict[str, Death] = {
    # The histogram of site 1 is charged, its architecture is not found.
    "search": ("panas.search_modes.mode", "search_by_training", 2, "before"),
    # All of site 0's round 2 is charged and computed, and where it stands is not.
    "release": ("dprbft.methods.rounds.site", "write_bytes", 3, "after"),
    "audit": ("attacks.audit.run", "audit_site", 2, "before"),
    "pictures": ("attacks.audit.run", "_write_pictures", 1, "before"),
}
"""Of each stage one, `tests/dprbft/run/test_deaths.py` has more."""


def check_finished(run: Path) -> None:
    summary = read_json(run / "summary.json")
    assert summary["finished"] is True
    assert (run / "audit.json").is_file()
    for i, account in enumerate(accounts(run)):
        assert account.spent() <= account.budget.epsilon
        load_network(model_file(home(run, i)))


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "release" else pytest.mark.thorough)
        for name in DEATHS
    ],
)
def test_a_killed_run_resumes_and_keeps_what_it_spent(where: str, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    options = tiny(federation__rounds=2, tuning__trials=1, tuning__initial=1)
    said = run.with_suffix(".stderr")
    dead = carry_out(said, "run", "--out", run, *options, death=DEATHS[where])
    assert dead == -signal.SIGKILL, said.read_text()
    before, spent = contents(run), [a.spent() for a in accounts(run)]
    assert any(b'"charge"' in content for content in before.values())
    assert carry_out(said, "run", "--out", run, "--resume", "--workers=1") == 0, said.read_text()
    assert_kept(before)
    for account, least in zip(accounts(run), spent, strict=True):
        assert account.spent() >= least
    assert receipts(run) <= {e.id for a in accounts(run) for e in a.entries}
    check_finished(run)
    # Beyond a histogram, and training and release of two rounds, of two sites. A search that
    # died goes on with the histogram that it has paid for. The last round is repeated with what
    # its plan left of the budget, and skipped where that is next to nothing.
    extra = sum(len(a.entries) for a in accounts(run)) - 2 * (1 + 2 * 2)
    assert extra in ((0, 2) if where == "release" else (0,))


def receipts(run: Path) -> set[str]:
    """The receipts of all releases on disk: those that sites have made, and the server received."""
    results = {*run.glob("sites/*/runs/*/releases/*"), *run.glob("server/*/site-*.safetensors")}
    notes = [parse_tensors(p.read_bytes())[1]["message"] for p in results]
    return {json.loads(text)["receipt"] for text in notes}


@pytest.mark.thorough
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
            # After the first line of training, and then a little, which is counted, not timed.
            while (line := lines.readline()) and b" train: " not in line:
                pass
            spin = int(rng.integers(15_000_000))
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


def test_sigterm_ends_as_an_interrupt_does(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "panas_cli.commands.report.report", lambda *_: os.kill(os.getpid(), signal.SIGTERM)
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
    words = without_overruled(["run", "--out", str(run), *options, "--workers", "2"])
    child = subprocess.Popen(
        [sys.executable, "-m", "panas_cli", *words],
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


@pytest.mark.thorough
def test_train_alone_ends_with_the_same_code(cli: Callable, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    both = ["--client", 0, "--client", 1]
    assert cli("search", "--out", run, *both, *tiny(), "--epsilon", "0.001").code == 0
    assert cli("tune", "--out", run, *both, "--workers", 1).code == 0
    outcome = cli("train", "--out", run, "--workers", 1)
    assert (outcome.code, len(outcome.errors)) == (3, 1)
    assert model_file(home(run, 1)).is_file()
