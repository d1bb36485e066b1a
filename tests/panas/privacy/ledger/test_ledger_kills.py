"""Threads, processes, interrupts and kills lose no charge and stay within the budget.

What is killed at any moment has never spent more than the ledger says. A child
charges, makes a (fake) noised release of it, hands the message to a "wire" file, notes
the end, and goes on; every third turn is a round of training without a message. It tells each step
on a pipe and waits for leave to go on. Its parent kills it with SIGKILL after a number of steps
that a seed chose, either while it waits there or somewhere within the next step, looks at what lies
on disk, and starts the next child on the same ledger.
"""

import json
import multiprocessing
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from ledgers import BUDGET, MOMENTS, charge

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian, SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger import book as module
from panas.privacy.ledger.chain import Chain
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BudgetExhausted

FORK = multiprocessing.get_context("fork")
KILLED = Budget(4.0, 1e-5)
KILLS = 50
SPIN = 200_000
"""Turns of an empty loop that last about as long as a charge."""


def work(path: Path, wire: Path, told: Connection, *, release_first: bool = False) -> None:
    ledger = Ledger(path)
    ledger.open_account(KILLED)
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
        with ledger.charge(replace(MOMENTS, event=event, round=turn)) as receipt:
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

    It is killed where it waits, or `spin` turns of a loop later, within its next step on most
    machines. `release_first` is the planted bug.
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
    contents: list[bytes] = []
    unfinished = 0
    for _ in range(KILLS):
        kill_after(*moment(rng), path, wire)
        # A reader that has seen nothing before checks the chain from the top.
        Chain(path).refresh(locked=False)
        lines = path.read_bytes().split(b"\n")[:-1]
        assert lines[: len(contents)] == contents
        contents = lines
        if not Ledger(path).is_open:
            continue
        account = Ledger(path).account()
        assert set(messages(wire)) <= {e.id for e in account.entries}
        assert len(messages(wire)) == len(set(messages(wire)))
        assert account.spent() <= KILLED.epsilon
        unfinished = sum(not e.finished for e in account.entries)
    assert unfinished >= 5  # deaths did fall between charge and end
    assert len(messages(wire)) >= 20
    # It goes on to the end of its budget, and there it stops.
    while kill_after(500, None, path, wire):
        pass
    account = Ledger(path).account()
    assert account.spent() <= KILLED.epsilon
    more = (Gaussian(12.0), SampledGaussian(0.05, 4.0, 10))
    assert any(account.price([*account.events(), e]) > KILLED.epsilon for e in more)
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


def test_an_interrupt_between_the_disk_and_memory_forgets_no_charge(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge(ledger, Gaussian(4.0))

    def interrupted(self: object, record: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.Book, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            charge(ledger, Gaussian(5.0))
    # The line is on disk, and so it is spent, in this process as in any other.
    assert [e.event for e in ledger.account().entries] == [Gaussian(4.0), Gaussian(5.0)]


def test_threads_that_charge_and_read_at_once_see_one_ledger(ledger: Ledger) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(_: int) -> None:
        for _ in range(8):
            charge(ledger, Gaussian(100.0))
            assert ledger.account().entries

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(ledger.account().entries) == 32
    module.book_of.cache_clear()
    assert len(ledger.account().entries) == 32


def _charge_until_refused(path: Path, noise: float) -> None:
    for _ in range(20):
        try:
            charge(Ledger(path), Gaussian(noise))
        except BudgetExhausted:
            return


def test_processes_that_charge_at_once_lose_no_line_and_stay_within_the_budget(ledger: Ledger):
    noise = 4.0
    affordable = 0
    while epsilon([Gaussian(noise)] * (affordable + 1), 1e-5, interval=1e-3) <= BUDGET.epsilon:
        affordable += 1
    assert 4 <= affordable <= 12
    workers = [
        FORK.Process(target=_charge_until_refused, args=(ledger.path, noise)) for _ in range(3)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
        assert w.exitcode == 0
    account = ledger.account()
    assert len(account.entries) == affordable
    assert len({e.id for e in account.entries}) == affordable
    # A reader that starts from the top finds the chain whole.
    anew = Chain(ledger.path)
    assert len(anew.refresh(locked=False)[1]) == 1 + 1 + affordable
    assert anew.head() == ledger.head()
    assert account.spent() <= BUDGET.epsilon


def test_an_account_is_opened_on_what_the_lock_found(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge(ledger, Gaussian(30.0))
    before = ledger.account()
    read = Ledger._read

    def forgotten(self: Ledger) -> module.Book:
        """As where many ledgers are open: the process lets go of this one's book."""
        monkeypatch.setattr(Ledger, "_read", read)
        return module.Book(Chain(ledger.path))

    monkeypatch.setattr(Ledger, "_read", forgotten)
    ledger.open_account(BUDGET)
    assert ledger.account() == before
