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
from ledgers import accounts, assert_kept, contents

from panas.runtime.store import parse_tensors, read_json, read_lines
from panas.training.checkpoint import load_network

ROOT = Path(__file__).parents[2]

DRIVER = """
import importlib, os, signal, sys
module, name, call, when = sys.argv[1:5]
sys.argv = ["panas", *sys.argv[5:]]
from panas_cli.main import main
owner = importlib.import_module(module)
real, count = getattr(owner, name), 0

def deadly(*args, **named):
    global count
    count += 1
    if count == int(call) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args, **named)
    if count == int(call):
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, name, deadly)
main()
"""

DEATHS = {
    # The histogram of client 1 is charged, its architecture is not found.
    "search": ("panas.search_modes.public_proxy", "search_by_training", 2, "before"),
    "tune": ("dprbft.site.tuning", "_tune", 1, "after"),
    # DP-SGD is charged, and not a step of it taken.
    "train, after the charge": ("dprbft.site.round", "fit_private", 2, "before"),
    # All of round 2 is charged and computed; its checkpoint is half written.
    "train, after the release": ("dprbft.server.checkpoint", "write_bytes", 7, "after"),
    "train, before the checkpoint": ("dprbft.server.rounds", "write_checkpoint", 3, "before"),
    "audit": ("attacks.audit.run", "audit_client", 2, "before"),
}


def killed(death: tuple[str, str, int, str], *arguments: object) -> None:
    """Run `panas ARGS` in a process that dies as told."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *(str(a) for a in (*death, *arguments))],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def check_finished(run: Path) -> None:
    summary = read_json(run / "summary.json")
    assert summary["finished"] is True
    assert (run / "audit.json").is_file()
    for i, account in enumerate(accounts(run)):
        assert account.spent() <= account.budget.epsilon
        load_network(run / "models" / f"client-{i:03d}.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("where", DEATHS)
def test_a_killed_run_resumes_and_keeps_what_it_spent(
    where: str, cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    options = tiny(federation__rounds=2, tuning__trials=1, tuning__initial=1)
    killed(DEATHS[where], "run", "--out", run, *options)
    before, spent = contents(run), [a.spent() for a in accounts(run)]
    assert any(json.loads(x)["kind"] == "charge" for x in before)
    outcome = cli("run", "--out", run, "--resume", "--workers", 1)
    assert outcome.code == 0, outcome.err
    assert_kept(before)
    for account, least in zip(accounts(run), spent, strict=True):
        assert account.spent() >= least
    check_finished(run)
    # Beyond a histogram, and training and release of two rounds, of two clients. A search that
    # died goes on with the histogram that it has paid for.
    extra = sum(len(a.entries) for a in accounts(run)) - 2 * (1 + 2 * 2)
    repeated = {"train, after the charge": 3, "train, after the release": 4}
    assert extra == (repeated | {"train, before the checkpoint": 4}).get(where, 0)


@pytest.mark.slow
def test_one_run_killed_in_every_stage_still_keeps_its_budget(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    arguments = ["run", "--out", run, *tiny(federation__rounds=2)]
    before: list[bytes] = []
    for where in ("search", "train, after the charge", "train, before the checkpoint", "audit"):
        death = DEATHS[where]
        if where == "train, before the checkpoint":
            death = (*death[:2], 2, death[3])  # round 0 was saved by the process before
        killed(death, *arguments)
        arguments = ["run", "--out", run, "--resume", "--workers", 1]
        now = lines(run)
        assert now[: len(before)] == before
        before = now
        assert all(a.spent() <= a.budget.epsilon for a in accounts(run))
    assert cli(*arguments).code == 0
    assert_kept(before)
    check_finished(run)


def receipts(run: Path) -> set[str]:
    """The receipts of all messages that a run has left on disk, the half-saved round included."""
    found = {*run.rglob("release-*.safetensors"), *run.glob("releases/*.safetensors")}
    notes = [parse_tensors(p.read_bytes())[1]["message"] for p in found]
    return {json.loads(text)["receipt"] for text in notes}


@pytest.mark.slow
def test_a_run_killed_at_any_moment_has_charged_whatever_left(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    arguments = ["run", "--out", run, *tiny(federation__rounds=4)]
    rng = np.random.default_rng(5)
    before: list[bytes] = []
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-m", "panas_cli", *(str(a) for a in arguments)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert child.stderr is not None
        # After the first lines of training, and then a little, which is counted and not timed.
        seen = 0
        while seen < int(rng.integers(1, 5)):
            line = child.stderr.readline()
            assert line, "the run has ended before it was killed"
            seen += b" train: " in line
        spin = int(rng.integers(8_000_000))
        while spin:
            spin -= 1
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stderr.close()
        arguments = ["run", "--out", run, "--resume", "--workers", 1]
        now = lines(run)
        assert now[: len(before)] == before
        before = now
        ids = {e.id for a in accounts(run) for e in a.entries}
        assert receipts(run) <= ids
        assert all(a.spent() <= a.budget.epsilon for a in accounts(run))
        if child.returncode == 0:  # it was quicker
            break
    assert cli(*arguments).code == 0
    assert set() < receipts(run) <= {e.id for a in accounts(run) for e in a.entries}
    assert_kept(before)
    check_finished(run)


@pytest.mark.slow
def test_noise_grows_after_a_death_between_release_and_checkpoint(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    options = tiny(federation__rounds=3)
    killed(DEATHS["train, before the checkpoint"], "run", "--out", run, *options)
    assert cli("run", "--out", run, "--resume", "--workers", 1).code == 0
    for account in accounts(run):
        for phase in ("training", "release"):
            first, died, again, last = (e.noise_multiplier for e in account.events(phase))
            assert first == died
            assert again == last > 1.02 * died
    check_finished(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("panas.search_modes.public_proxy", "search_by_training"),
        pytest.param("dprbft.site.tuning", "_tune", marks=pytest.mark.slow),
        ("dprbft.site.round", "fit_private"),
        pytest.param("attacks.audit.run", "audit_client", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_says_how_to_go_on(
    module: str,
    name: str,
    cli: Callable,
    tiny: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    run = tmp_path / "r"

    def interrupt(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(f"{module}.{name}", interrupt)
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
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, _, rest = (folder / "stat").read_text().rpartition(")")
            state, _, _, own = rest.split()[:4]
            if int(own) == session and state != "Z":
                found.append((folder / "cmdline").read_text())
    return found


@pytest.mark.slow
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


def test_a_budget_too_small_for_anything_keeps_the_public_networks(
    cli: Callable, tiny: Callable, tmp_path: Path
):
    run = tmp_path / "r"
    outcome = cli("run", "--out", run, "--epsilon", "0.001", *tiny(), "--json")
    assert outcome.code == 3
    (line,) = outcome.errors
    assert line.startswith("error: ")
    assert "raise --epsilon" in line
    summary = json.loads(outcome.out)
    assert summary["finished"] is False
    assert summary["rounds"] == 0
    assert read_json(run / "summary.json")["finished"] is False
    for i, account in enumerate(accounts(run)):
        assert account.spent() == 0
        load_network(run / "models" / f"client-{i:03d}.safetensors")
    assert not (run / "audit.json").exists()


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
    whole = len(read_lines(run / "rounds.jsonl"))
    assert 1 <= whole == summary["rounds"] < 100
    for i, account in enumerate(accounts(run)):
        assert account.spent() <= account.budget.epsilon
        saved = load_network(run / "models" / f"client-{i:03d}-last.safetensors")
        assert saved.notes["round"] == whole
    before = contents(run)
    again = cli("run", "--out", run, "--resume", "--workers", 1)
    assert again.code == 3
    assert_kept(before)


def test_train_alone_ends_with_the_same_code(cli: Callable, tiny: Callable, tmp_path: Path):
    run = tmp_path / "r"
    both = ["--client", 0, "--client", 1]
    assert cli("search", "--out", run, *both, *tiny(), "--epsilon", "0.001").code == 0
    assert cli("tune", "--out", run, *both, "--workers", 1).code == 0
    outcome = cli("train", "--out", run, "--workers", 1)
    assert (outcome.code, len(outcome.errors)) == (3, 1)
    assert (run / "models" / "client-001.safetensors").is_file()
