"""Shares: what a run asks for, whether the budget holds it, and what bounds its charges."""

import math
from pathlib import Path

import dp_accounting as dpa
import pytest
from dp_accounting.pld import PLDAccountant
from ledgers import BUDGET, charge

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Event, Gaussian, SampledGaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.ledger.shares import as_gaussian
from panas.runtime.errors import BadInput, BudgetExhausted

HALF = Budget(1.5, 1e-5)
FIRST = [Gaussian(5.0), SampledGaussian(0.05, 1.5, 20), Gaussian(6.0)]
SECOND = [Gaussian(7.0), SampledGaussian(0.1, 3.0, 30)]


def composed(events: list[Event], delta: float, interval: float) -> float:
    """dp-accounting's own accountant, which shares no code with the ledger's prices."""
    known = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(known, value_discretization_interval=interval)
    for e in events:
        mechanism = dpa.GaussianDpEvent(e.noise_multiplier)
        if isinstance(e, SampledGaussian):
            accountant.compose(dpa.PoissonSampledDpEvent(e.rate, mechanism), e.steps)
        else:
            accountant.compose(mechanism)
    return float(accountant.get_epsilon(delta))


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


def test_a_run_of_the_same_name_and_share_goes_on(ledger: Ledger) -> None:
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


def test_a_run_begins_before_it_charges(ledger: Ledger) -> None:
    before = ledger.path.read_bytes()
    with pytest.raises(BadInput, match="a run that has begun"):
        charge(Ledger(ledger.path, "first"), Gaussian(9.0))
    assert ledger.path.read_bytes() == before


def test_what_no_run_charged_counts_for_every_run(ledger: Ledger) -> None:
    charge(ledger, Gaussian(1.5))
    assert ledger.account().runs == ("",)
    with pytest.raises(BudgetExhausted):
        ledger.begin_run("first", Budget(2.0, 1e-5))


def test_charges_on_any_part_count_against_a_new_run(other: Ledger) -> None:
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
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open_account(Budget(budget, 1e-5), allow_unprotected=True)
    charge(ledger, Unprotected())
    if not admitted:
        with pytest.raises(BudgetExhausted):
            ledger.begin_run("first", Budget(share, 1e-5))
        return
    run = ledger.begin_run("first", Budget(share, 1e-5))
    charge(run, Unprotected())
    assert Ledger(ledger.path).account().shares["first"].epsilon == share
