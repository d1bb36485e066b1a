"""A process that is killed at any moment has never spent more than the ledger says.

The child charges, makes a (fake) noised release of it, hands the message to a "wire" file, notes
the end, and goes on; every third turn is a round of training without a message. It tells each step
on a pipe and waits for leave to go on. Its parent kills it with SIGKILL after a number of steps
that a seed chose, either while it waits there or somewhere within the next step, looks at what lies
on disk, and starts the next child on the same ledger.
"""

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from ledgers import MOMENTS

from panas.privacy.accounting.events import Gaussian, PostProcessing, SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.chain import Chain
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BudgetExhausted

FORK = multiprocessing.get_context("fork")
BUDGET = Budget(4.0, 1e-5)
KILLS = 50
SPIN = 200_000
"""Turns of an empty loop that last about as long as a charge."""
STEPS = ("started", "charged", "computed", "sent", "committed")


def work(path: Path, wire: Path, told: Connection, *, release_first: bool = False) -> None:
    ledger = Ledger(path)
    ledger.open_account(BUDGET)
    turn = 0

    def tell(step: str) -> None:
        told.send_bytes(step[:1].encode())
        told.recv_bytes()

    while True:
        turn += 1
        training = turn % 3 == 0
        event = SampledGaussian(0.05, 4.0, 10) if training else Gaussian(12.0)
        tell("started")
        if release_first:  # the planted bug: touch, then charge
            send(wire, f"uncharged {turn}")
            tell("sent")
        with ledger.charge(
            Charge(
                event=event,
                phase="training" if training else "release",
                mechanism="dp-sgd" if training else "moments",
                recipient="server",
                sensitivity=1.0,
                round=turn,
            ),
        ) as receipt:
            tell("charged")
            message = np.random.default_rng(turn).normal(size=20).tolist()
            tell("computed")
            if not training and not release_first:
                send(wire, receipt.id)
            tell("sent")
            assert message
        tell("committed")


def send(wire: Path, receipt: str) -> None:
    with wire.open("ab") as file:
        file.write(json.dumps({"receipt": receipt}).encode() + b"\n")


def messages(wire: Path) -> list[str]:
    """Whole messages and halves: what has left has left."""
    if not wire.exists():
        return []
    return [json.loads(x)["receipt"] for x in wire.read_bytes().split(b"\n") if x]


def kill_after(
    steps: int, spin: int | None, path: Path, wire: Path, *, release_first: bool = False
) -> bool:
    """Let a child do so many steps, then kill it; False if its budget ran out before.

    Args:
        steps: after which of its steps.
        spin: how much later, counted in turns of a loop, which falls within its next step on most
            machines; None kills it right there, where it waits.
        path: the ledger.
        wire: where messages go.
        release_first: the planted bug.

    """
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_quietly, args=(path, wire, theirs, release_first))
    child.start()
    theirs.close()
    try:
        for step in range(1, steps + 1):
            ours.recv_bytes()
            if step < steps or spin is not None:
                ours.send_bytes(b"y")
    except EOFError:
        child.join()
        assert child.exitcode == 0
        return False
    while spin:
        spin -= 1
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return True


def moment(rng: np.random.Generator) -> tuple[int, int | None]:
    """Steps and spin: every other time right at a step."""
    return int(rng.integers(1, 12)), int(rng.integers(SPIN)) if rng.integers(2) else None


def _quietly(path: Path, wire: Path, told: Connection, release_first: bool) -> None:
    try:
        work(path, wire, told, release_first=release_first)
    except BudgetExhausted:
        told.close()


@pytest.mark.thorough
def test_a_ledger_never_counts_less_than_what_has_left(tmp_path: Path) -> None:
    path, wire = tmp_path / "ledger.jsonl", tmp_path / "wire"
    rng = np.random.default_rng(20)
    known: list[bytes] = []
    unfinished = 0
    for _ in range(KILLS):
        kill_after(*moment(rng), path, wire)
        # A reader that has seen nothing before checks the chain from the top.
        Chain(path).refresh(locked=False)
        lines = path.read_bytes().split(b"\n")[:-1]
        assert lines[: len(known)] == known
        known = lines
        if not Ledger(path).is_open:
            continue
        account = Ledger(path).account()
        assert set(messages(wire)) <= {e.id for e in account.entries}
        assert len(messages(wire)) == len(set(messages(wire)))
        assert account.spent() <= BUDGET.epsilon
        unfinished = sum(not e.finished for e in account.entries)
    assert unfinished >= 5  # deaths did fall between charge and end
    assert len(messages(wire)) >= 20
    # It goes on to the end of its budget, and there it stops.
    while kill_after(500, None, path, wire):
        pass
    account = Ledger(path).account()
    assert account.spent() <= BUDGET.epsilon
    more = (Gaussian(12.0), SampledGaussian(0.05, 4.0, 10))
    assert any(account.price([*account.events(), e]) > BUDGET.epsilon for e in more)
    assert set(messages(wire)) <= {e.id for e in account.entries}


@pytest.mark.slow
def test_the_kills_would_catch_a_release_before_its_charge(tmp_path: Path) -> None:
    path, wire = tmp_path / "ledger.jsonl", tmp_path / "wire"
    rng = np.random.default_rng(21)
    caught = 0
    for _ in range(20):
        kill_after(*moment(rng), path, wire, release_first=True)
        charged = len(Ledger(path).account().entries) if Ledger(path).is_open else 0
        caught += len(messages(wire)) > charged
    assert caught  # some deaths fell right after the release, on any machine


def append_for_ever(path: Path, told: Connection) -> None:
    ledger = Ledger(path)
    ledger.open_account(BUDGET)
    while True:
        told.send_bytes(b"x")
        ledger.charge(replace(MOMENTS, event=PostProcessing()))


@pytest.mark.thorough
def test_a_chain_survives_kills_within_its_two_writes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    rng = np.random.default_rng(22)
    known, ahead = 0, 0
    for _ in range(KILLS):
        ours, theirs = FORK.Pipe(duplex=False)
        child = FORK.Process(target=append_for_ever, args=(path, theirs))
        child.start()
        theirs.close()
        for _ in range(int(rng.integers(2, 6))):
            ours.recv_bytes()
        # Somewhere within the appends that follow: the pipe runs ahead of the disk.
        spin = int(rng.integers(0, 40_000))
        while spin:
            spin -= 1
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        chain = Chain(path)
        chain.refresh(locked=True)
        count, _ = chain.head()
        ahead += count > json.loads(path.with_suffix(".head").read_bytes())["count"]
        charges = len(Ledger(path).account().entries) if count > 1 else 0
        assert charges == max(0, count - 2) >= known
        known = charges
    assert known >= KILLS
