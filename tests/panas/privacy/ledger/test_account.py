"""Accounts: terms that stay, and subsets whose charges compose in parallel."""

import json
from dataclasses import replace

import pytest
from ledgers import BUDGET, MOMENTS, charge

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import (
    Event,
    Gaussian,
    NoisyRows,
    SampledGaussian,
)
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import totals
from panas.privacy.ledger.charge import Charge, SecureSum
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted


def on(ledger: Ledger, subset: str, event: Event) -> None:
    ledger.charge(replace(MOMENTS, event=event, subset=subset))


def test_parts_compose_in_parallel_and_the_whole_counts_for_each(other: Ledger) -> None:
    names = ("train/1", "train/2", "train/10", "search")
    other.open_account(BUDGET, subsets=names)
    on(other, "train/1", Gaussian(3.0))
    on(other, "train/10", Gaussian(2.0))
    on(other, "train", SampledGaussian(0.1, 3.0, 20))
    on(other, "search", Gaussian(1.8))
    account = other.account()
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
    row = totals(account)
    assert row["subsets"] == parts
    assert account.spent("search") == 0


def test_a_charge_is_priced_on_the_worst_part_that_it_concerns(other: Ledger) -> None:
    other.open_account(BUDGET, subsets=("train/1", "train/2"))
    on(other, "train/1", Gaussian(1.6))
    before = other.path.read_bytes()
    with pytest.raises(BudgetExhausted):
        on(other, "train/1", Gaussian(1.6))
    with pytest.raises(BudgetExhausted):
        on(other, "train", Gaussian(1.6))  # fits the other part, and not this one
    assert other.path.read_bytes() == before
    on(other, "train/2", Gaussian(1.6))


def test_parts_do_not_compose_in_parallel_over_runs(other: Ledger) -> None:
    """Another run may have put a sample into the other part."""
    other.open_account(BUDGET, subsets=("train/1", "train/2"))
    first, second = (other.begin_run(name, BUDGET) for name in ("first", "second"))
    on(first, "train/1", Gaussian(2.5))
    on(second, "train/2", Gaussian(2.5))
    account = other.account()
    assert account.spent() == account.price([Gaussian(2.5)] * 2)
    assert account.of_run("second").spent() == account.price([Gaussian(2.5)])
    with pytest.raises(BudgetExhausted):
        on(second, "train/1", Gaussian(1.6))


@pytest.mark.parametrize("subset", ["search", "train/3", "trainer", "train/", ""])
def test_an_undeclared_subset_is_refused(other: Ledger, subset: str) -> None:
    other.open_account(BUDGET, subsets=("train/1", "train/2"))
    before = other.path.read_bytes()
    with pytest.raises(BadInput, match=r"train/1, train/2"):
        on(other, subset, Gaussian(9.0))
    with pytest.raises(BadInput, match="declared"):
        other.account().events_on(subset)
    assert other.path.read_bytes() == before


@pytest.mark.parametrize("subsets", [(), ("a", "a"), ("a", "")])
def test_subsets_have_names_of_their_own(other: Ledger, subsets: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="different names"):
        other.open_account(BUDGET, subsets=subsets)


@pytest.mark.parametrize(
    ("budget", "free"), [(Budget(4.0, 1e-5), False), (Budget(3.0, 1e-6), False), (BUDGET, True)]
)
def test_an_account_keeps_its_terms(ledger: Ledger, budget: Budget, free: bool) -> None:
    charge(ledger, Gaussian(5.0))
    before = ledger.path.read_bytes()
    assert len(ledger.open_account(BUDGET).entries) == 1
    with pytest.raises(BadInput, match="keep its budget"):
        ledger.open_account(budget, allow_unprotected=free)
    assert ledger.path.read_bytes() == before


def test_an_account_has_one_relation(ledger: Ledger, other: Ledger) -> None:
    rows = NoisyRows(6.0, 0.8, 10)
    other.open_account(BUDGET, relation="replace-one")
    before = other.path.read_bytes()
    with pytest.raises(BadInput, match="under replace-one"):
        charge(ledger, rows)
    with pytest.raises(BadInput, match=r"keep its budget.*replace-one.*add-or-remove-one"):
        other.open_account(BUDGET)
    with pytest.raises(BadInput, match="keep its budget"):
        other.open_account(BUDGET, relation="replace-one", subsets=("train", "search"))
    assert other.path.read_bytes() == before
    charge(other, rows)
    charge(other, SampledGaussian(0.1, 4.0, 20))
    account = other.account()
    assert account.spent() == account.price(account.events())
    assert account.spent() >= epsilon(account.events(), BUDGET.delta, relation="replace-one")
    lines = map(json.loads, other.path.read_text().splitlines())
    charged = [line for line in lines if line["kind"] == "charge"]
    assert {line["relation"] for line in charged} == {"replace-one"}
    assert totals(account)["relation"] == "replace-one"


SUM = SecureSum(sites=10, missing=2, local=2.0 / 8**0.5)


def test_a_charge_of_a_sum_is_priced_as_the_sum_and_names_what_it_costs_alone(other: Ledger):
    ledger = other
    ledger.open_account(Budget(20.0, 1e-5))
    sent = replace(MOMENTS, event=Gaussian(2.0), trust=SUM)
    ledger.charge(sent)
    account = ledger.account()
    assert account.entries[0].charge == replace(sent, run=account.entries[0].charge.run)
    assert account.trusts == (SUM,)
    assert account.spent() == epsilon([Gaussian(2.0)], 1e-5)
    assert account.local.spent() == epsilon([Gaussian(2.0 / 8**0.5)], 1e-5) > account.spent()
    row = totals(account)
    assert row["spent_local"] == account.local.spent()
    assert row["trust"][0]["assumption"] == (
        "at most 2 of 10 sites collude with the server or are missing"
    )
    assert replace(SUM, missing=0).assumption == (
        "none of 10 sites colludes with the server or is missing"
    )
    assert "spent_local" not in totals(replace(account, entries=()))
    assert json.loads(json.dumps(row)) == row


def test_what_only_adds_to_a_sum_costs_the_same_alone(other: Ledger):
    ledger = other
    ledger.open_account(Budget(20.0, 1e-5))
    ledger.charge(replace(MOMENTS, event=Gaussian(3.0)))
    ledger.charge(replace(MOMENTS, event=Gaussian(2.0), trust=SUM))
    alone = ledger.account().local
    assert alone.events() == [Gaussian(3.0), Gaussian(SUM.local)]


@pytest.mark.parametrize(
    "wrong", [{"trust": "faith"}, {"missing": 4}, {"missing": -1}, {"local": 0.0}, {"sites": "x"}]
)
def test_a_trust_that_is_none_is_refused(wrong: dict[str, object]):
    with pytest.raises((ValueError, KeyError, TypeError)):
        SecureSum.from_json(SUM.to_json() | wrong)
    line = replace(MOMENTS, trust=SUM).to_json(relation="add-or-remove-one")
    assert Charge.from_json(line).trust == SUM
    assert "trust" not in MOMENTS.to_json(relation="add-or-remove-one")
