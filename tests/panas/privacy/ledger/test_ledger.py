"""The ledger: on disk before anything is touched, never over budget, never less than was spent."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import BUDGET, MOMENTS, charge

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian, SampledGaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Allotment, as_gaussian, totals
from panas.privacy.ledger.chain import Chain
from panas.privacy.ledger.charge import MOST_AGAIN, Receipt
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.replica import Replica
from panas.runtime.errors import BadInput, BudgetExhausted


def test_what_is_charged_is_what_is_read_back(ledger: Ledger) -> None:
    event = SampledGaussian(0.1, 2.0, 30)
    facts = {"phase": "training", "mechanism": "dp-sgd", "sensitivity": 0.7, "round": 4}
    receipt = ledger.charge(replace(MOMENTS, event=event, **facts))
    charge(ledger, Gaussian(4.0))
    account = Ledger(ledger.path).account()
    assert [e.event for e in account.entries] == [SampledGaussian(0.1, 2.0, 30), Gaussian(4.0)]
    first = account.entries[0]
    assert (first.id, first.charge.round, first.charge.phase) == (receipt.id, 4, "training")
    assert (receipt.charge.mechanism, receipt.charge.round) == ("dp-sgd", 4)
    record = json.loads(ledger.path.read_text().splitlines()[2])  # after header and account
    assert record["relation"] == "add-or-remove-one"
    wanted = {"sensitivity": 0.7, "subset": "train", "recipient": "server"}
    assert record == record | wanted
    assert record["accountant"].startswith("dp-accounting")
    assert account.events("training") == [SampledGaussian(0.1, 2.0, 30)]


def test_a_charge_beyond_the_budget_changes_nothing(ledger: Ledger) -> None:
    charge(ledger, Gaussian(3.0))
    before = ledger.path.read_bytes()
    for event in (Gaussian(1.0), Gaussian(0.0), Gaussian(math.nan), SampledGaussian(0.5, 0.6, 500)):
        with pytest.raises(BudgetExhausted, match="run to stay within epsilon 3"):
            charge(ledger, event)
        assert ledger.path.read_bytes() == before
    charge(ledger, Gaussian(20.0))


def test_a_charge_pays_for_failing_work_so_often_and_then_another_is_made(ledger: Ledger) -> None:
    wanted = replace(MOMENTS, event=Gaussian(9.0))
    with pytest.raises(ZeroDivisionError), ledger.charge(wanted):
        raise ZeroDivisionError
    receipts = [ledger.charge(wanted, resumes=True) for _ in range(MOST_AGAIN)]
    assert {r.id for r in receipts} == {e.id for e in Ledger(ledger.path).account().entries}
    with pytest.raises(BadInput, match="begun again since"), receipts[0]:
        pass
    assert ledger.charge(wanted, resumes=True).id != receipts[-1].id
    assert len(ledger.account().entries) == 2


def test_an_unprotected_event_needs_leave(ledger: Ledger, other: Ledger) -> None:
    before = ledger.path.read_bytes()
    with pytest.raises(BadInput, match="epsilon infinity"):
        charge(ledger, Unprotected())
    assert ledger.path.read_bytes() == before
    other.open_account(BUDGET, allow_unprotected=True)
    charge(other, Unprotected())
    charge(other, Gaussian(5.0))
    account = other.account()
    assert account.spent() == math.inf
    assert 0 < account.spent_protected() < BUDGET.epsilon
    with pytest.raises(BudgetExhausted):
        charge(other, Gaussian(1.0))
    row = totals(account)
    assert row["spent"] == "infinity"
    assert row["charges"] == 2
    json.dumps(row, allow_nan=False)


def test_a_receipt_cannot_be_forged_and_nothing_is_charged_without_an_account(other: Ledger):
    with pytest.raises(BadInput, match="forged"):
        Receipt(object(), "id", MOMENTS, lambda _: None)
    assert not other.is_open
    with pytest.raises(BadInput, match="open it before charging"):
        charge(other, Gaussian(9.0))
    assert not other.path.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"event": event} for event in (None, {"kind": "laplace", "noise_multiplier": 5.0})),
        *({"kind": kind} for kind in ("refund", "account", "ledger")),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_rather_than_skipped(
    ledger: Ledger, wrong: dict[str, object]
) -> None:
    charge(ledger, Gaussian(5.0))
    line = json.loads(ledger.path.read_bytes().splitlines()[2]) | wrong
    del line["n"], line["previous"]
    chain = Chain(ledger.path)
    chain.refresh(locked=True)
    chain.append(line)  # a chain that is whole
    for _ in range(2):
        with pytest.raises(BadInput, match="a ledger entry on line 4"):
            ledger.account()
    with pytest.raises(BadInput, match="a ledger entry on line 4"):
        charge(ledger, Gaussian(50.0))


def test_tampering_is_refused_by_every_reader(ledger: Ledger) -> None:
    charge(ledger, Gaussian(3.0))
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content.replace(b"3.0}", b"9.0}"))
    for attempt in (
        lambda: ledger.account(),
        lambda: Ledger(ledger.path).is_open,
        lambda: charge(ledger, Gaussian(50.0)),
        lambda: ledger.open_account(BUDGET),
        lambda: ledger.head(),
    ):
        with pytest.raises(BadInput, match="line 3 was changed"):
            attempt()
    ledger.path.write_bytes(content)
    assert ledger.account().events() == [Gaussian(3.0)]


def test_a_ledger_without_a_chain_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"kind": "account"}\n')
    with pytest.raises(BadInput, match="older version"):
        Ledger(path).account()


def test_a_continuation_of_what_was_noted_is_told_from_anything_else(ledger: Ledger) -> None:
    """Also where the state folder knows nothing of it."""
    old = {p: p.read_bytes() for p in (ledger.path, ledger.path.with_suffix(".head"))}
    charge(ledger, Gaussian(5.0))
    noted = ledger.head()
    assert noted[0] == 3
    charge(ledger, Gaussian(50.0))
    ledger.check_holds(*noted)
    for path, content in old.items():
        path.write_bytes(content)
    assert ledger.account().entries == ()  # a copy that is whole in itself
    Replica(ledger.id).path.unlink()
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
    return [e.finished for e in Ledger(ledger.path).account().entries]


def test_a_reservation_is_spent_whether_or_not_its_end_is_noted(ledger: Ledger) -> None:
    with charge(ledger, Gaussian(5.0)) as receipt:
        assert finished(ledger) == [False]
        receipt.use()
    assert finished(ledger) == [True]
    with pytest.raises(ZeroDivisionError), charge(ledger, Gaussian(6.0)):
        raise ZeroDivisionError
    charge(ledger, Gaussian(7.0))
    assert finished(ledger) == [True, False, False]
    account = ledger.account()
    assert account.events() == [Gaussian(5.0), Gaussian(6.0), Gaussian(7.0)]
    assert account.spent() >= epsilon(account.events(), BUDGET.delta)
    assert totals(account)["reserved"] == 2
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


def gaussian_of(epsilon: float) -> Gaussian:
    """The Gaussian that costs so much at the budget's delta."""
    return as_gaussian(Budget(epsilon, BUDGET.delta))


def two_hubs(path: Path) -> dict[str, Ledger]:
    """Ledgers of runs of two hubs, which may spend epsilon 1 and 2 of 2.5."""
    Ledger(path).open_account(Budget(2.5, BUDGET.delta))
    parts = {"": ("first", 1.0), "b": ("second", 2.0)}
    ledgers = {}
    for run in ("x", "y", "b:x", "b:y"):
        prefix = run.rpartition(":")[0]
        hub, epsilon = parts[prefix]
        part = Allotment(hub, prefix, Budget(epsilon, BUDGET.delta))
        ledger = Ledger(path, run, allotment=part)
        ledgers[run] = ledger.begin_run(run, part.budget)
    return ledgers


def test_runs_of_one_hub_stay_within_its_part_and_all_within_the_budget(tmp_path: Path):
    """All have begun before any is charged: no share is set aside, and each charge is checked."""
    ledgers = two_hubs(tmp_path / "ledger.jsonl")
    charge(ledgers["x"], gaussian_of(0.99))
    with pytest.raises(BudgetExhausted, match=r"the runs of hub first on .* within epsilon 1"):
        charge(ledgers["y"], gaussian_of(0.5))
    charge(ledgers["b:x"], gaussian_of(1.9))
    with pytest.raises(BudgetExhausted, match="the runs of hub second on"):
        charge(ledgers["b:y"], gaussian_of(1.0))
    account = Ledger(tmp_path / "ledger.jsonl").account()
    assert [e.charge.run for e in account.entries] == ["x", "b:x"]
    assert 1.9 < account.spent() <= 2.5


def test_a_hub_whose_part_is_spent_begins_no_run_and_is_named(tmp_path: Path):
    ledgers = two_hubs(tmp_path / "ledger.jsonl")
    charge(ledgers["b:x"], gaussian_of(1.9))
    before = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetExhausted, match=r"left of 2 for hub second \(site.toml\), got 1 "):
        ledgers["b:x"].begin_run("b:z", Budget(1.0, BUDGET.delta))
    assert (tmp_path / "ledger.jsonl").read_bytes() == before
    ledgers["x"].begin_run("z", Budget(0.5, BUDGET.delta))


def test_the_budget_for_life_holds_even_where_parts_add_up_to_more(tmp_path: Path):
    ledgers = two_hubs(tmp_path / "ledger.jsonl")
    path = tmp_path / "ledger.jsonl"
    wide = Ledger(path, "x", allotment=Allotment("first", "", Budget(2.4, BUDGET.delta)))
    wide = wide.begin_run("x", Budget(2.4, BUDGET.delta))
    charge(wide, gaussian_of(2.3))
    with pytest.raises(BudgetExhausted, match="the data of"):
        charge(ledgers["b:x"], gaussian_of(1.9))
    assert Ledger(path).account().spent() <= 2.5
