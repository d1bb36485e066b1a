"""The ledger: on disk before anything is touched, never over budget, never less than was spent."""

import json
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import (
    Event,
    Gaussian,
    NoisyRows,
    PostProcessing,
    SampledGaussian,
    Unprotected,
)
from panas.privacy.budget import Budget
from panas.privacy.ledger import book
from panas.privacy.ledger.account import Charge, totals
from panas.privacy.ledger.chain import Chain
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.receipt import Receipt
from panas.runtime.errors import BadInput, BudgetExhausted

BUDGET = Budget(3.0, 1e-5)
MOMENTS = Charge(
    event=Gaussian(1.0),
    phase="release",
    mechanism="moments",
    recipient="server",
    sensitivity=1.4,
)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "run" / "ledger.jsonl")
    ledger.open_account(0, BUDGET)
    return ledger


def charge(ledger: Ledger, event: Event, client: int = 0) -> Receipt:
    return ledger.charge(client, replace(MOMENTS, event=event))


def test_what_is_charged_is_what_is_read_back(ledger: Ledger) -> None:
    receipt = ledger.charge(
        0,
        Charge(
            event=SampledGaussian(0.1, 2.0, 30),
            phase="training",
            mechanism="dp-sgd",
            recipient="server",
            sensitivity=0.7,
            subset="train",
            round=4,
        ),
    )
    charge(ledger, Gaussian(4.0))
    account = Ledger(ledger.path).account(0)
    assert [e.event for e in account.entries] == [SampledGaussian(0.1, 2.0, 30), Gaussian(4.0)]
    first = account.entries[0]
    assert (first.id, first.charge.round, first.charge.phase) == (receipt.id, 4, "training")
    assert (receipt.client, receipt.charge.mechanism, receipt.charge.round) == (0, "dp-sgd", 4)
    record = json.loads(ledger.path.read_text().splitlines()[2])  # after header and account
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
        Receipt(object(), "id", 0, MOMENTS, lambda _: None)


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


def unknown_event(line: dict) -> None:
    line["event"]["kind"] = "laplace"


def no_event(line: dict) -> None:
    del line["event"]


def unknown_kind(line: dict) -> None:
    line["kind"] = "refund"


def unknown_client(line: dict) -> None:
    line["client"] = 7


def second_header(line: dict) -> None:
    line["kind"] = "ledger"


@pytest.mark.parametrize(
    "change", [unknown_event, no_event, unknown_kind, unknown_client, second_header]
)
def test_a_line_that_makes_no_sense_is_refused_rather_than_skipped(
    ledger: Ledger, change: Callable[[dict], None]
) -> None:
    charge(ledger, Gaussian(5.0))
    line = json.loads(ledger.path.read_bytes().splitlines()[2])
    del line["n"], line["previous"]
    change(line)
    chain = Chain(ledger.path)
    chain.refresh(locked=True)
    chain.append(line)  # a chain that is whole
    for _ in range(2):
        with pytest.raises(BadInput, match="a ledger entry on line 4"):
            ledger.account(0)
    with pytest.raises(BadInput, match="a ledger entry on line 4"):
        charge(ledger, Gaussian(50.0))


def test_tampering_is_refused_by_every_reader(ledger: Ledger) -> None:
    charge(ledger, Gaussian(3.0))
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content.replace(b"3.0}", b"9.0}"))
    for attempt in (
        lambda: ledger.account(0),
        lambda: Ledger(ledger.path).accounts(),
        lambda: charge(ledger, Gaussian(50.0)),
        lambda: ledger.open_account(0, BUDGET),
        lambda: ledger.open_account(1, BUDGET),
        lambda: ledger.head(),
    ):
        with pytest.raises(BadInput, match="line 3 was changed"):
            attempt()
    ledger.path.write_bytes(content)
    assert ledger.account(0).events() == [Gaussian(3.0)]


def test_a_ledger_without_a_chain_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"kind": "account", "client": 0}\n')
    with pytest.raises(BadInput, match="older version"):
        Ledger(path).accounts()


def test_a_continuation_of_what_was_noted_is_told_from_anything_else(ledger: Ledger) -> None:
    old = {p: p.read_bytes() for p in (ledger.path, ledger.path.with_suffix(".head"))}
    charge(ledger, Gaussian(5.0))
    noted = ledger.head()
    assert noted[0] == 3
    charge(ledger, Gaussian(50.0))
    ledger.check_holds(*noted)
    for path, content in old.items():
        path.write_bytes(content)
    assert ledger.account(0).entries == ()  # a copy that is whole in itself
    with pytest.raises(BadInput, match="line 3 is not the one that the run has noted"):
        ledger.check_holds(*noted)
    charge(ledger, Gaussian(5.0))  # as many lines as were noted, and others
    with pytest.raises(BadInput, match="another copy"):
        ledger.check_holds(*noted)
    for path in old:
        path.unlink()
    with pytest.raises(BadInput, match="it was deleted"):
        ledger.check_holds(*noted)


def finished(ledger: Ledger) -> list[bool]:
    return [e.finished for e in Ledger(ledger.path).account(0).entries]


def test_a_reservation_is_spent_whether_or_not_its_end_is_noted(ledger: Ledger) -> None:
    with charge(ledger, Gaussian(5.0)) as receipt:
        assert finished(ledger) == [False]
        receipt.use()
    assert finished(ledger) == [True]
    with pytest.raises(ZeroDivisionError), charge(ledger, Gaussian(6.0)):
        raise ZeroDivisionError
    charge(ledger, Gaussian(7.0))
    assert finished(ledger) == [True, False, False]
    account = ledger.account(0)
    assert account.events() == [Gaussian(5.0), Gaussian(6.0), Gaussian(7.0)]
    assert account.spent() >= epsilon(account.events(), BUDGET.delta)
    assert totals([account])[0]["reserved"] == 2
    line = json.loads(ledger.path.read_bytes().splitlines()[3])
    assert (line["kind"], line["id"]) == ("commit", receipt.id)


def test_an_end_is_noted_once_and_only_where_its_charge_stands(ledger: Ledger) -> None:
    receipt = charge(ledger, Gaussian(5.0))
    with receipt:
        pass
    before = ledger.path.read_bytes()
    with receipt:
        pass
    assert ledger.path.read_bytes() == before
    receipt = charge(ledger, Gaussian(5.0))
    ledger.path.unlink()
    ledger.path.with_suffix(".head").unlink()
    with pytest.raises(BadInput, match="the charge of this receipt"), receipt:
        pass


def on(ledger: Ledger, subset: str, event: Event) -> None:
    ledger.charge(1, replace(MOMENTS, event=event, subset=subset))


def test_parts_compose_in_parallel_and_the_whole_counts_for_each(ledger: Ledger) -> None:
    names = ("train/1", "train/2", "train/10", "search")
    ledger.open_account(1, BUDGET, subsets=names)
    on(ledger, "train/1", Gaussian(3.0))
    on(ledger, "train/10", Gaussian(2.0))
    on(ledger, "train", SampledGaussian(0.1, 3.0, 20))
    on(ledger, "search", Gaussian(1.8))
    account = ledger.account(1)
    assert account.leaves == names
    whole = SampledGaussian(0.1, 3.0, 20)
    assert account.events_on("train/1") == [Gaussian(3.0), whole]
    assert account.events_on("train/2") == [whole]
    assert account.events_on("train/10") == [Gaussian(2.0), whole]
    assert account.events_on("search") == [Gaussian(1.8)]
    assert len(account.protected()) == 4
    worst = account.spent_on("search")
    parts = {leaf: account.spent_on(leaf) for leaf in names}
    assert account.spent() == account.spent_protected() == max(parts.values()) == worst
    assert account.spent() < account.price(account.protected())
    row = totals([account])[0]
    assert row["subsets"] == parts
    assert account.spent("search") == 0


def test_a_charge_is_priced_on_the_worst_part_that_it_concerns(ledger: Ledger) -> None:
    ledger.open_account(1, BUDGET, subsets=("train/1", "train/2"))
    on(ledger, "train/1", Gaussian(1.6))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExhausted):
        on(ledger, "train/1", Gaussian(1.6))
    with pytest.raises(BudgetExhausted):
        on(ledger, "train", Gaussian(1.6))  # fits the other part, and not this one
    assert ledger.path.read_bytes() == before
    on(ledger, "train/2", Gaussian(1.6))


@pytest.mark.parametrize("subset", ["search", "train/3", "trainer", "train/", ""])
def test_an_undeclared_subset_is_refused(ledger: Ledger, subset: str) -> None:
    ledger.open_account(1, BUDGET, subsets=("train/1", "train/2"))
    before = ledger.path.read_bytes()
    with pytest.raises(BadInput, match=r"train/1, train/2"):
        on(ledger, subset, Gaussian(9.0))
    with pytest.raises(BadInput, match="declared"):
        ledger.account(1).events_on(subset)
    assert ledger.path.read_bytes() == before


@pytest.mark.parametrize("subsets", [(), ("a", "a"), ("a", "")])
def test_subsets_have_names_of_their_own(ledger: Ledger, subsets: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="different names"):
        ledger.open_account(1, BUDGET, subsets=subsets)


def test_an_account_has_one_relation(ledger: Ledger) -> None:
    rows = NoisyRows(6.0, 0.8, 10)
    ledger.open_account(1, BUDGET, relation="replace-one")
    before = ledger.path.read_bytes()
    with pytest.raises(BadInput, match="under replace-one"):
        charge(ledger, rows)
    with pytest.raises(BadInput, match=r"keep its budget.*replace-one.*add-or-remove-one"):
        ledger.open_account(1, BUDGET)
    with pytest.raises(BadInput, match="keep its budget"):
        ledger.open_account(1, BUDGET, relation="replace-one", subsets=("train", "search"))
    assert ledger.path.read_bytes() == before
    charge(ledger, rows, client=1)
    charge(ledger, SampledGaussian(0.1, 4.0, 20), client=1)
    account = ledger.account(1)
    assert account.spent() == account.price(account.events())
    assert account.spent() >= epsilon(account.events(), BUDGET.delta, relation="replace-one")
    lines = map(json.loads, ledger.path.read_text().splitlines())
    charged = [line for line in lines if line["kind"] == "charge"]
    assert {line["relation"] for line in charged} == {"replace-one"}
    assert totals([account])[0]["relation"] == "replace-one"


def test_post_processing_is_noted_and_costs_nothing(ledger: Ledger) -> None:
    charge(ledger, PostProcessing())
    assert ledger.account(0).events() == [PostProcessing()]
    assert ledger.account(0).spent() == 0


def test_an_interrupt_between_the_disk_and_memory_forgets_no_charge(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    charge(ledger, Gaussian(4.0))

    def interrupted(self: object, record: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(book.Book, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            charge(ledger, Gaussian(5.0))
    # The line is on disk, and so it is spent, in this process as in any other.
    assert [e.event for e in ledger.account(0).entries] == [Gaussian(4.0), Gaussian(5.0)]


def test_threads_that_charge_and_read_at_once_see_one_ledger(ledger: Ledger) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(_: int) -> None:
        for _ in range(8):
            charge(ledger, Gaussian(100.0))
            assert ledger.account(0).entries

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(ledger.account(0).entries) == 32
    book.book_of.cache_clear()
    assert len(ledger.account(0).entries) == 32


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
    make = Receipt.__init__

    def watched(self: Receipt, *args: object) -> None:
        lines_at_receipt.append(synced[-1].count(b"\n"))
        make(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Receipt, "__init__", watched)
    charge(ledger, Gaussian(5.0))
    assert lines_at_receipt == [3]
    head = json.loads(ledger.path.with_suffix(".head").read_bytes())
    assert head["count"] == 3


@pytest.mark.slow
def test_two_processes_share_one_budget_over_many_charges(ledger: Ledger) -> None:
    ledger.open_account(1, BUDGET)
    workers = [FORK.Process(target=_charge_many, args=(ledger.path,)) for _ in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(120)
        assert w.exitcode == 0
    account = ledger.account(0)
    assert account.spent() <= BUDGET.epsilon
    one_more = [*account.protected(), Gaussian(12.0)]
    assert account.price(one_more) > BUDGET.epsilon
    assert 40 < len(account.entries) < 80
    assert all(e.finished for e in account.entries)
    assert len(ledger.account(1).entries) == 80 - len(account.entries)
    # A reader that starts from the top finds the chain whole.
    anew = Chain(ledger.path)
    _, records = anew.refresh(locked=False)
    assert len(records) == 1 + 2 + 2 * 80
    assert anew.head() == ledger.head()


def _charge_many(path: Path) -> None:
    for _ in range(40):
        try:
            receipt = charge(Ledger(path), Gaussian(12.0))
        except BudgetExhausted:
            receipt = charge(Ledger(path), Gaussian(1000.0), client=1)
        with receipt:
            pass
