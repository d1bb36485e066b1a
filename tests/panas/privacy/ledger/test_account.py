"""Accounts and shares: terms that stay, parts that compose in parallel, and what bounds a run."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from accounting_oracles import composed
from ledgers import BUDGET, MOMENTS, charge, opened

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Event, Gaussian, NoisyRows, SampledGaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import as_gaussian, totals
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


@pytest.mark.slow
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
    ledger.charge(replace(MOMENTS, event=Gaussian(3.0)))  # what only adds costs the same alone
    assert ledger.account().local.events() == [Gaussian(SUM.local), Gaussian(3.0)]


@pytest.mark.parametrize(
    "wrong", [{"trust": "faith"}, {"missing": 4}, {"missing": -1}, {"local": 0.0}, {"sites": "x"}]
)
def test_a_trust_that_is_none_is_refused(wrong: dict[str, object]):
    with pytest.raises((ValueError, KeyError, TypeError)):
        SecureSum.from_json(SUM.to_json() | wrong)
    line = replace(MOMENTS, trust=SUM).to_json(relation="add-or-remove-one")
    assert Charge.from_json(line).trust == SUM
    assert "trust" not in MOMENTS.to_json(relation="add-or-remove-one")


HALF = Budget(1.5, 1e-5)
FIRST = [Gaussian(5.0), SampledGaussian(0.05, 1.5, 20), Gaussian(6.0)]
SECOND = [Gaussian(7.0), SampledGaussian(0.1, 3.0, 30)]


@pytest.mark.slow
def test_the_total_of_two_runs_is_an_independent_composition_of_all_events(ledger: Ledger) -> None:
    for name, events in (("first", FIRST), ("second", SECOND)):
        run = ledger.begin_run(name, HALF)
        for event in events:
            charge(run, event)
    account = ledger.account()
    assert account.events() == [*FIRST, *SECOND]
    grid = min(1e-3, BUDGET.epsilon / 2000)
    assert account.spent() == pytest.approx(composed([*FIRST, *SECOND], 1e-5, grid), abs=2e-6)
    for name, events in (("first", FIRST), ("second", SECOND)):
        own = account.of_run(name)
        assert own.spent() == pytest.approx(composed(events, 1e-5, 1e-3), abs=1e-3)
        assert own.budget == HALF
    assert max(account.of_run(name).spent() for name in account.runs) < account.spent()


@pytest.mark.parametrize("share", [Budget(8.0, 1e-5), Budget(0.01, 1e-7), Budget(49.0, 1e-3)])
def test_a_share_is_the_gaussian_that_costs_exactly_so_much(share: Budget) -> None:
    m = as_gaussian(share).noise_multiplier
    assert epsilon([Gaussian(m)], share.delta) <= share.epsilon
    assert epsilon([Gaussian(m)], share.delta) == pytest.approx(share.epsilon, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-9, 1e6, 1e9])
def test_tiny_and_huge_shares_are_weighed_too(epsilon: float, ledger: Ledger) -> None:
    assert ledger.account().admits(Budget(epsilon, 1e-5)) == (epsilon < 1)


@pytest.mark.slow
def test_the_whole_budget_is_admitted_once_and_no_second_run(ledger: Ledger) -> None:
    run = ledger.begin_run("first", BUDGET)
    assert ledger.account().left() == BUDGET.epsilon
    charge(run, as_gaussian(BUDGET))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExhausted, match=r"at most epsilon 0\.00\d for run second") as refused:
        ledger.begin_run("second", Budget(0.5, 1e-5))
    assert refused.value.exit_code == 3
    assert "\n" not in str(refused.value)
    assert ledger.path.read_bytes() == before


@pytest.mark.slow
def test_what_is_left_is_the_largest_share_that_is_admitted(ledger: Ledger) -> None:
    run = ledger.begin_run("first", HALF)
    charge(run, SampledGaussian(0.05, 1.5, 20))
    with pytest.raises(ZeroDivisionError), charge(run, Gaussian(6.0)):
        raise ZeroDivisionError  # reserved: it counts
    account = ledger.account()
    left = account.left()
    assert BUDGET.epsilon - account.spent() < left < BUDGET.epsilon
    assert account.admits(Budget(left, BUDGET.delta))
    assert not account.admits(Budget(left + BUDGET.epsilon / 2000, BUDGET.delta))
    both = [*account.events(), as_gaussian(Budget(left, BUDGET.delta))]
    assert epsilon(both, BUDGET.delta) <= BUDGET.epsilon
    assert epsilon(both, BUDGET.delta) == pytest.approx(BUDGET.epsilon, abs=5e-3)
    ledger.begin_run("second", Budget(left, BUDGET.delta))


def test_a_run_stays_within_its_share_and_all_runs_within_the_budget(ledger: Ledger) -> None:
    first = ledger.begin_run("first", HALF)
    charge(first, Gaussian(3.0))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExhausted, match=r"run first .* within epsilon 1\.5"):
        charge(first, Gaussian(3.0))  # which the budget for life would hold
    assert ledger.path.read_bytes() == before
    # Shares are not set aside: of two that are admitted at once, the later charge is refused.
    second, third = (ledger.begin_run(name, Budget(2.4, 1e-5)) for name in ("second", "third"))
    charge(second, Gaussian(1.8))
    with pytest.raises(BudgetExhausted, match=r"the data of .* within epsilon 3"):
        charge(third, Gaussian(1.8))  # within its share


def test_a_run_of_the_same_name_and_share_goes_on_once_it_has_begun(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()
    with pytest.raises(BadInput, match="a run that has begun"):
        charge(Ledger(ledger.path, "first"), Gaussian(9.0))
    assert ledger.path.read_bytes() == before
    charge(ledger.begin_run("first", HALF), Gaussian(3.0))
    before = ledger.path.read_bytes()
    again = ledger.begin_run("first", HALF)
    assert (again.path, again.run) == (ledger.path, "first")
    assert Ledger(ledger.path).account().shares == {"first": HALF}
    for other in (BUDGET, Budget(1.5, 1e-6)):
        with pytest.raises(BadInput, match="as it began"):
            ledger.begin_run("first", other)
    with pytest.raises(BadInput, match="a name"):
        ledger.begin_run("", HALF)
    assert ledger.path.read_bytes() == before
    charge(again, Gaussian(20.0))
    assert len(ledger.account().of_run("first").entries) == 2


def test_what_no_run_charged_counts_for_every_run_and_so_does_every_part(
    ledger: Ledger, other: Ledger
) -> None:
    charge(ledger, Gaussian(1.5))
    assert ledger.account().runs == ("",)
    with pytest.raises(BudgetExhausted):
        ledger.begin_run("first", Budget(2.0, 1e-5))
    other.open_account(BUDGET, subsets=("train/1", "train/2"))
    for part in ("train/1", "train/2"):
        charge(other, Gaussian(1.8), part)
    assert other.account().spent() < 2.4
    with pytest.raises(BudgetExhausted):
        other.begin_run("next", Budget(1.0, 1e-5))


@pytest.mark.parametrize(
    ("budget", "share", "admitted"),
    [(math.inf, math.inf, True), (math.inf, 3.0, True), (3.0, math.inf, False)],
)
def test_only_a_budget_without_bounds_holds_a_share_without(
    budget: float, share: float, admitted: bool, tmp_path: Path
) -> None:
    ledger = opened(tmp_path, Budget(budget, 1e-5), allow_unprotected=True)
    charge(ledger, Unprotected())
    if not admitted:
        with pytest.raises(BudgetExhausted):
            ledger.begin_run("first", Budget(share, 1e-5))
        return
    run = ledger.begin_run("first", Budget(share, 1e-5))
    charge(run, Unprotected())
    assert Ledger(ledger.path).account().shares["first"].epsilon == share
