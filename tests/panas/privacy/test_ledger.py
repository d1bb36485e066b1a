"""The ledger: on disk before anything is touched, never over budget, never less than was spent."""

import json
import math
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from panas.errors import BadInput, BudgetExhausted
from panas.privacy import ledger as module
from panas.privacy.accounting import Event, Gaussian, SampledGaussian, Unprotected, epsilon
from panas.privacy.budget import Budget
from panas.privacy.ledger import Ledger, Receipt, totals

BUDGET = Budget(3.0, 1e-5)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "run" / "ledger.jsonl")
    ledger.open_account(0, BUDGET)
    return ledger


def charge(ledger: Ledger, event: Event, client: int = 0) -> Receipt:
    return ledger.charge(
        client, event, phase="release", mechanism="moments", recipient="server", sensitivity=1.4
    )


def test_what_is_charged_is_what_is_read_back(ledger: Ledger) -> None:
    receipt = ledger.charge(
        0,
        SampledGaussian(0.1, 2.0, 30),
        phase="training",
        mechanism="dp-sgd",
        recipient="server",
        sensitivity=0.7,
        subset="train",
        round=4,
    )
    charge(ledger, Gaussian(4.0))
    account = Ledger(ledger.path).account(0)
    assert [e.event for e in account.entries] == [SampledGaussian(0.1, 2.0, 30), Gaussian(4.0)]
    first = account.entries[0]
    assert (first.id, first.round, first.phase) == (receipt.id, 4, "training")
    assert (receipt.client, receipt.mechanism, receipt.round) == (0, "dp-sgd", 4)
    record = first.record
    assert record["relation"] == "add-or-remove-one"
    assert (record["sensitivity"], record["subset"], record["recipient"]) == (
        0.7,
        "train",
        "server",
    )
    assert record["accountant"].startswith("dp-accounting")
    assert account.events("training") == [SampledGaussian(0.1, 2.0, 30)]


def test_the_total_composes_everything_and_is_at_least_each_part(ledger: Ledger) -> None:
    events = [SampledGaussian(0.1, 2.0, 30), Gaussian(6.0), Gaussian(6.0)]
    total = 0.0
    for event in events:
        charge(ledger, event)
        account = ledger.account(0)
        assert account.spent() > total
        total = account.spent()
    assert total >= epsilon(events, BUDGET.delta)
    assert total == pytest.approx(epsilon(events, BUDGET.delta), rel=1e-2)
    # Two releases fit one by one; a fresh accountant for each would report less.
    assert total > epsilon(events[1:2], BUDGET.delta) + 1e-3


def test_a_charge_beyond_the_budget_changes_nothing(ledger: Ledger) -> None:
    charge(ledger, Gaussian(3.0))
    before = ledger.path.read_bytes()
    for event in (Gaussian(1.0), Gaussian(0.0), Gaussian(math.nan), SampledGaussian(0.5, 0.6, 500)):
        with pytest.raises(BudgetExhausted, match="client 0 to stay within epsilon 3"):
            charge(ledger, event)
        assert ledger.path.read_bytes() == before
    charge(ledger, Gaussian(20.0))


def test_an_unprotected_event_needs_leave(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()
    with pytest.raises(BadInput, match="epsilon infinity"):
        charge(ledger, Unprotected())
    assert ledger.path.read_bytes() == before
    ledger.open_account(1, BUDGET, allow_unprotected=True)
    charge(ledger, Unprotected(), client=1)
    charge(ledger, Gaussian(5.0), client=1)
    account = ledger.account(1)
    assert account.spent() == math.inf
    assert 0 < account.spent_protected() < BUDGET.epsilon
    with pytest.raises(BudgetExhausted):
        charge(ledger, Gaussian(1.0), client=1)
    row = totals([account])[0]
    assert row["spent"] == "infinity"
    assert row["charges"] == 2
    json.dumps(row, allow_nan=False)


def test_an_infinite_budget_pays_for_every_protected_event(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.open_account(0, Budget(math.inf, 1e-5))
    charge(ledger, Gaussian(1e-3))
    assert ledger.account(0).budget.epsilon == math.inf


def test_a_receipt_cannot_be_forged() -> None:
    with pytest.raises(BadInput, match="forged"):
        Receipt(object(), "id", 0, "moments", Gaussian(1.0), None)


def test_clients_do_not_pay_for_each_other(ledger: Ledger) -> None:
    ledger.open_account(1, BUDGET)
    charge(ledger, Gaussian(2.0), client=0)
    assert ledger.account(1).spent() == 0
    charge(ledger, Gaussian(2.0), client=1)
    assert [a.client for a in ledger.accounts()] == [0, 1]


@pytest.mark.parametrize(
    ("budget", "free"), [(Budget(4.0, 1e-5), False), (Budget(3.0, 1e-6), False), (BUDGET, True)]
)
def test_an_account_keeps_its_terms(ledger: Ledger, budget: Budget, free: bool) -> None:
    charge(ledger, Gaussian(5.0))
    before = ledger.path.read_bytes()
    assert len(ledger.open_account(0, BUDGET).entries) == 1
    with pytest.raises(BadInput, match="keep its budget"):
        ledger.open_account(0, budget, allow_unprotected=free)
    assert ledger.path.read_bytes() == before


def test_no_account_no_charge(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="open it before charging"):
        charge(ledger, Gaussian(9.0), client=7)


def test_a_torn_last_line_never_counts(ledger: Ledger) -> None:
    charge(ledger, Gaussian(5.0))
    spent, whole = ledger.account(0).spent(), ledger.path.read_bytes()
    last = whole.splitlines()[-1]
    for cut in (1, len(last) // 2, len(last)):
        ledger.path.write_bytes(whole + last[:cut])
        assert ledger.account(0).spent() == spent
    charge(ledger, Gaussian(50.0))
    assert len(ledger.account(0).entries) == 2
    assert ledger.path.read_bytes().startswith(whole)


def damage_middle(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1][:-9], *lines[2:]]


def reopen(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[0]]


def orphan(lines: list[bytes]) -> list[bytes]:
    return lines[1:]


def unknown_event(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"gaussian"', b'"laplace"'), *lines[2:]]


def no_event(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"event"', b'"evnt"'), *lines[2:]]


def bad_budget(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b"3.0", b"-3.0"), *lines[1:]]


@pytest.mark.parametrize(
    "damage", [damage_middle, reopen, orphan, unknown_event, no_event, bad_budget]
)
def test_a_damaged_ledger_is_refused_rather_than_read_short(
    ledger: Ledger, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    charge(ledger, Gaussian(5.0))
    charge(ledger, Gaussian(5.0))
    lines = ledger.path.read_bytes().splitlines()
    changed = b"\n".join(damage(lines)) + b"\n"
    assert changed != ledger.path.read_bytes()
    ledger.path.write_bytes(changed)
    with pytest.raises(BadInput):
        ledger.account(0)
    with pytest.raises(BadInput):
        charge(ledger, Gaussian(50.0))


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
    account = ledger.account(0)
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
    assert ledger.account(0).events() == [Gaussian(5.0)]
    charge(ledger, Gaussian(20.0))  # the dead process holds no lock


def test_the_receipt_comes_after_the_line_is_on_disk(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(ledger.path.read_bytes()), sync(fd)))
    lines_at_receipt: list[int] = []
    make = module.Receipt.__init__

    def watched(self: Receipt, *args: object) -> None:
        lines_at_receipt.append(synced[-1].count(b"\n"))
        make(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(module.Receipt, "__init__", watched)
    charge(ledger, Gaussian(5.0))
    assert lines_at_receipt == [2]
