"""The budget is never exceeded: random budgets, rates, rounds and releases, charged for real."""

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, reject, settings
from hypothesis import strategies as st
from ledgers import MOMENTS, opened
from plans import plan_of

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Event, Gaussian, Unprotected
from panas.privacy.budget import Budget
from panas.privacy.calibration import (
    LEAST_NOISE,
    MAX_NOISE,
    calibrate,
    epsilon_of,
    least_noise,
    release_multiplier,
    rescale_noise,
    tighten_release_noise,
)
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.errors import BadInput, BudgetExhausted

STEEP = plan_of(3820, 1, epochs=1, rounds=1)
"""At so small a sampling rate 0.2 % of noise is more than 1 % of epsilon."""

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""An example takes seconds: report the first that fails, rather than the smallest."""


@st.composite
def cases(draw: st.DrawFn) -> tuple[Budget, Plan, float]:
    """A budget, a draft whose noise is to be solved for, and the share of the releases."""
    samples = draw(st.integers(10, 5000))
    rounds = draw(st.integers(1, 12))
    batch, epochs = draw(st.integers(1, max(2, samples + samples // 4))), draw(st.integers(1, 5))
    draft = plan_of(
        samples, batch, epochs=epochs, rounds=rounds, releases=draw(st.integers(0, rounds))
    )
    budget = Budget(draw(st.floats(0.3, 20.0)), draw(st.sampled_from([1e-6, 1e-5, 1e-4])))
    return budget, draft, draw(st.floats(0.05, 0.9))


def solve(budget: Budget, draft: Plan, share: float, spent: tuple[Event, ...] = ()) -> Plan:
    schedule = TrainingSchedule(
        samples=draft.samples,
        epochs=draft.epochs,
        rounds=draft.rounds,
        releases=draft.releases,
        release_share=share,
        spent=spent,
    )
    return calibrate(budget, schedule, batch_size=draft.batch_size, clip=draft.clip)


def solvable(budget: Budget, draft: Plan, share: float, spent: tuple[Event, ...] = ()) -> Plan:
    """The plan, for the examples that their budget affords."""
    try:
        return solve(budget, draft, share, spent)
    except BudgetExhausted:
        reject()


@pytest.mark.thorough
@settings(max_examples=5, deadline=None, phases=UNSHRUNK)
@given(case=cases())
@example(case=(Budget(0.3, 1e-6), STEEP, 0.05))
def test_a_plan_lands_within_one_percent_under_its_budget(case: tuple[Budget, Plan, float]):
    budget, draft, share = case
    plan = solvable(budget, draft, share)
    total = epsilon_of(plan.events(), budget)
    assert total <= budget.epsilon
    assert plan.noise_multiplier == LEAST_NOISE or total >= 0.99 * budget.epsilon


@pytest.mark.slow
@settings(max_examples=2, deadline=None, phases=UNSHRUNK)
@given(case=cases(), histogram=st.floats(5.0, 50.0), orphans=st.integers(0, 2))
def test_charged_event_by_event_the_ledger_never_exceeds_the_budget(
    case: tuple[Budget, Plan, float], histogram: float, orphans: int
) -> None:
    budget, draft, share = case
    draft = replace(draft, rounds=min(draft.rounds, 4), releases=min(draft.releases, 4))
    with tempfile.TemporaryDirectory() as folder:
        ledger = opened(Path(folder), budget)

        def charge(event: Event) -> None:
            ledger.charge(replace(MOMENTS, event=event, phase="training"))
            assert ledger.account().spent() <= budget.epsilon

        try:
            charge(Gaussian(histogram))
            plan = solvable(budget, draft, share, tuple(ledger.account().protected()))
            for _ in range(orphans):
                # The process dies after the charge, and what is left is planned again.
                charge(plan.training_event)
                plan = rescale_noise(plan, budget, ledger.account().protected())
        except BudgetExhausted:
            assert ledger.account().spent() <= budget.epsilon
            return
        for round in range(plan.rounds):
            charge(plan.training_event)
            if round < plan.releases:
                charge(plan.release_event)
        assert ledger.account().spent() <= budget.epsilon
        if not orphans:
            assert len(ledger.account().entries) == 1 + plan.rounds + plan.releases


@pytest.mark.thorough
def test_what_a_dead_process_spent_is_planned_around() -> None:
    budget = Budget(6.0, 1e-5)
    draft = plan_of(400, 40, epochs=1, rounds=4, releases=4)
    plan = solvable(budget, draft, 0.3)
    spent = (plan.training_event, plan.training_event)
    longer = rescale_noise(plan, budget, spent)
    factor = longer.noise_multiplier / plan.noise_multiplier
    assert factor > 1.05
    assert longer.release_noise / plan.release_noise == pytest.approx(factor)
    # The reserve against choices by outcome holds a few percent back.
    assert 0.94 * budget.epsilon <= epsilon_of([*spent, *longer.events()], budget) <= budget.epsilon
    assert rescale_noise(plan, budget, ()) == plan
    again = solvable(budget, draft, 0.3, spent)
    assert 0.94 * budget.epsilon <= epsilon_of([*spent, *again.events()], budget) <= budget.epsilon


@settings(max_examples=3, deadline=None, phases=UNSHRUNK)
@given(target=st.floats(1.0, 20.0), releases=st.integers(1, 10), share=st.floats(0.3, 0.95))
def test_releases_alone_cost_their_share(target: float, releases: int, share: float) -> None:
    budget = Budget(target, 1e-5)
    m = release_multiplier(budget, releases, share)
    part = epsilon([Gaussian(m)] * releases, 1e-5)
    assert 0.985 * share * target <= part <= share * target


@pytest.mark.slow
def test_sharper_releases_use_what_training_leaves() -> None:
    budget = Budget(4.0, 1e-5)
    draft = plan_of(500, 50, epochs=2, rounds=3, releases=3)
    plan = solve(budget, draft, 0.2)
    noisier = replace(plan, noise_multiplier=1.5 * plan.noise_multiplier)
    sharper = tighten_release_noise(noisier, budget)
    assert sharper.release_noise < plan.release_noise
    assert sharper.noise_multiplier == noisier.noise_multiplier
    assert 0.99 * budget.epsilon <= epsilon_of(sharper.events(), budget) <= budget.epsilon
    # Nothing is left to sharpen with where the plan is tight, or has no release.
    assert epsilon_of(tighten_release_noise(plan, budget).events(), budget) <= budget.epsilon
    silent = replace(plan, releases=0, release_noise=None)
    assert tighten_release_noise(silent, budget) == silent


@pytest.mark.parametrize("spent", [(Gaussian(1.0),), (Unprotected(),)])
def test_a_budget_that_is_spent_affords_nothing(spent: tuple[Event, ...]) -> None:
    budget = Budget(1.0, 1e-5)
    draft = plan_of(100, 10, epochs=1, rounds=1)
    with pytest.raises(BudgetExhausted, match="raise"):
        solve(budget, draft, 0.3, spent)
    with pytest.raises(BudgetExhausted):
        rescale_noise(draft, budget, spent)


@pytest.mark.parametrize(
    ("rounds", "releases", "says"),
    [
        (1, 0, "affords 24 steps at q = 1, got"),
        (1, 1, "affords 24 steps at q = 1 and 1 release, got"),
        (2, 0, "affords 2 rounds of 24 steps at q = 1, got"),
        (0, 2, "affords 2 releases, got"),
    ],
)
def test_a_budget_too_small_is_told_for_what_and_what_to_change(
    rounds: int, releases: int, says: str
) -> None:
    schedule = TrainingSchedule(samples=100, epochs=24, rounds=rounds, releases=releases)
    tiny = Budget(1e-3, 1e-6)
    with pytest.raises(BudgetExhausted) as refused:
        calibrate(tiny, schedule, batch_size=100, clip=1.0, release_noise=1.0)
    assert says in str(refused.value)
    assert str(refused.value).endswith("raise epsilon, or plan fewer steps or releases")
    for releases, told in ((1, "affords 1 release, got"), (5, "5 releases")):
        with pytest.raises(BudgetExhausted, match=told):
            release_multiplier(tiny, releases, 0.1)


def test_without_rounds_a_plan_costs_its_releases() -> None:
    budget = Budget(2.0, 1e-5)
    draft = plan_of(100, 9, epochs=1, rounds=0, releases=2)
    plan = solve(budget, draft, 0.5)
    assert plan.noise_multiplier == LEAST_NOISE
    assert len(plan.events()) == 2
    assert epsilon_of(plan.events(), budget) <= 1.0


@settings(max_examples=50, deadline=None, phases=UNSHRUNK)
@given(threshold=st.floats(LEAST_NOISE, MAX_NOISE))
def test_least_noise_finds_the_threshold_from_above(threshold: float) -> None:
    result = least_noise(lambda s: s >= threshold)
    assert threshold * (1 - 1e-12) <= result <= threshold * 1.0021


def test_least_noise_at_its_ends() -> None:
    assert least_noise(lambda s: True) == LEAST_NOISE
    assert least_noise(lambda s: False) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("samples", 0), ("batch_size", 0), ("epochs", 0), ("rounds", -1)),
        *(("clip", 0.0), ("clip", math.nan)),
    ],
)
def test_bad_plans_are_refused(name: str, value: float) -> None:
    facts = {"samples": 10, "epochs": 1, "rounds": 1, "batch_size": 5, "clip": 1.0, name: value}
    batch = {key: facts.pop(key) for key in ("batch_size", "clip")}
    schedule = TrainingSchedule(**facts)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="expected samples, batch_size"):
        calibrate(Budget(1.0, 1e-5), schedule, **batch)  # type: ignore[arg-type]
