"""Threads, processes and interrupts lose no charge and stay within the budget."""

import multiprocessing
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ledgers import BUDGET, charge

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import (
    Gaussian,
    PostProcessing,
)
from panas.privacy.ledger import book as module
from panas.privacy.ledger.chain import Chain
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BudgetExhausted

FORK = multiprocessing.get_context("fork")


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


def test_processes_that_charge_at_once_lose_no_line_and_stay_within_the_budget(
    ledger: Ledger,
) -> None:
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
    assert account.spent() <= BUDGET.epsilon


def _charge_and_die(path: Path) -> None:
    charge(Ledger(path), Gaussian(5.0))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_charge_survives_the_death_of_its_process(ledger: Ledger) -> None:
    worker = FORK.Process(target=_charge_and_die, args=(ledger.path,))
    worker.start()
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    assert ledger.account().events() == [Gaussian(5.0)]
    charge(ledger, Gaussian(20.0))  # the dead process holds no lock


@pytest.mark.slow
def test_two_processes_share_one_budget_over_many_charges(ledger: Ledger) -> None:
    workers = [FORK.Process(target=_charge_many, args=(ledger.path,)) for _ in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(120)
        assert w.exitcode == 0
    account = ledger.account()
    assert account.spent() <= BUDGET.epsilon
    one_more = [*account.protected(), Gaussian(12.0)]
    assert account.price(one_more) > BUDGET.epsilon
    costly = [e for e in account.entries if e.event == Gaussian(12.0)]
    assert 40 < len(costly) < 80
    assert all(e.finished for e in account.entries)
    assert len(account.entries) == 80
    # A reader that starts from the top finds the chain whole.
    anew = Chain(ledger.path)
    _, records = anew.refresh(locked=False)
    assert len(records) == 1 + 1 + 2 * 80
    assert anew.head() == ledger.head()


def _charge_many(path: Path) -> None:
    for _ in range(40):
        try:
            receipt = charge(Ledger(path), Gaussian(12.0))
        except BudgetExhausted:
            receipt = charge(Ledger(path), PostProcessing())
        with receipt:
            pass


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
