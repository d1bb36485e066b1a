"""Rehearsals: the same value in any process, and plans that never cost more than the budget."""

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from made_samples import by_brightness
from plans import plan_of

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.splits import SearchData
from panas.privacy.accounting.events import Event, Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, epsilon_of
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import one_thread, stream
from panas.training.sgd import OptimizerConfig
from panas.training.warm_start import WarmStart
from panas.tuning import objective as rehearsal
from panas.tuning.bayesian import tune
from panas.tuning.objective import TrainingObjective, training_objective
from panas.tuning.space import BudgetedSpace, DPSGDSettings, ScheduleConstraint, TuningSpace
from panas.tuning.trial import TuningConfig, TuningResult

BUDGET = Budget(3.0, 1e-5)
BLUEPRINT = NetworkSpec(shape=(1, 6, 6), classes=2, width=8)
GENOME = Genome.parse("c4k3-max-c4k3-c4k3")
SCHEDULE = TrainingSchedule(samples=80, epochs=2, rounds=2, releases=0, release_share=0.3)
SPACE = TuningSpace(
    learning_rate=(0.1, 1.0), clip=(0.5, 2.0), batch_sizes=(20, 80), epochs=(1, 3, 5)
)
"""Full batches are priced in closed form; of the others there are few, as each takes a second."""
CONFIG = TuningConfig(initial=3, trials=6)
SETTING = DPSGDSettings(learning_rate=0.3, noise_multiplier=2.0, clip=1.0, batch_size=20)


DATA = SearchData(*(by_brightness(n, k, (1, 6, 6), 2) for k, n in enumerate((20, 40, 50))))


def of(schedule: TrainingSchedule = SCHEDULE, **changes: int) -> TrainingObjective:
    generator = torch.Generator().manual_seed(0)
    bottom, head = BLUEPRINT.bottom(GENOME, generator), BLUEPRINT.head(generator)
    made = TrainingObjective(
        data=DATA,
        bottom=bottom,
        head=head,
        schedule=schedule,
        optimizer=OptimizerConfig(train_head=False),
        seed=0,
        site=0,
    )
    return replace(made, **changes)


def tuned(
    schedule: TrainingSchedule = SCHEDULE,
    space: TuningSpace = SPACE,
    *,
    budget: Budget = BUDGET,
    config: TuningConfig = CONFIG,
    site: int = 0,
) -> TuningResult:
    start = WarmStart(genome=GENOME, spec=BLUEPRINT, optimizer=None, device=torch.device("cpu"))
    return tune(
        training_objective(DATA, start, schedule, momentum=0.0, seed=0, site=site),
        BudgetedSpace(space, ScheduleConstraint(budget, schedule)),
        config,
        rng=stream(0, "client", site, "tune"),
    )


@pytest.mark.slow
def test_a_rehearsal_repeats_leaves_its_networks_alone_and_travels() -> None:
    it = of()
    before = {k: v.clone() for k, v in it.bottom.state_dict().items()}
    value = it(SETTING)
    assert it(SETTING) == value
    assert all(torch.equal(v, before[k]) for k, v in it.bottom.state_dict().items())
    assert pickle.loads(pickle.dumps(it))(SETTING) == value
    with one_thread():  # restores the number afterwards
        torch.set_num_threads(2)
        assert it(SETTING) == value
        assert torch.get_num_threads() == 2


def test_a_rehearsal_trains_at_the_deployments_rate_steps_and_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(rehearsal, "fit_private", lambda *_, plan, **__: seen.append(plan))
    of()(SETTING)
    of()(replace(SETTING, epochs=5))
    for plan, epochs in zip((seen[0], seen[2]), (2, 5), strict=True):
        deployed = plan_of(80, 20, sigma=2.0, epochs=epochs, rounds=2)
        assert plan == replace(deployed, samples=40, batch_size=10)
        assert (plan.rate, plan.steps) == (deployed.rate, deployed.steps)
    assert len(seen) == 4  # as many as there are rounds, twice


def spend(s: DPSGDSettings, schedule: TrainingSchedule, spent: Sequence[Event]) -> float:
    """What deploying with a setting costs, from nothing but the setting and the schedule."""
    steps = {"epochs": s.epochs or schedule.epochs, "rounds": schedule.rounds}
    plan = plan_of(schedule.samples, s.batch_size, s.clip, s.noise_multiplier, **steps)
    return epsilon_of([*spent, *plan.events()], BUDGET)


@pytest.mark.thorough
def test_no_setting_that_is_tried_is_over_budget_and_longer_ones_need_more_noise() -> None:
    spent = (Gaussian(4.0),)
    schedule = replace(SCHEDULE, spent=spent)
    for space in (SPACE, replace(SPACE, noise_factor=(1.0, 1.0))):
        trials = tuned(schedule, space).trials
        assert {t.setting.epochs for t in trials} <= {1, 3, 5}
        assert len({t.setting.epochs for t in trials}) > 1
        prices = [spend(t.setting, schedule, spent) for t in trials]
        assert max(prices) <= BUDGET.epsilon
        if space.noise_factor == (1.0, 1.0):
            assert min(prices) > 0.95 * BUDGET.epsilon  # all but the reserve is used
    # The planted bug: a plan for the schedule's own passes would not do for five.
    longest = [t.setting for t in trials if t.setting.epochs == 5]
    assert longest
    s = longest[0]
    noise = calibrate(BUDGET, schedule, batch_size=s.batch_size, clip=s.clip).noise_multiplier
    assert spend(replace(s, noise_multiplier=noise), schedule, spent) > BUDGET.epsilon


def test_a_budget_that_fits_nothing_says_what_to_do() -> None:
    with pytest.raises(BudgetExhausted, match="raise epsilon"):
        tuned(space=replace(SPACE, batch_sizes=(80,), epochs=()), budget=Budget(1e-4, 1e-6))


@pytest.mark.slow
def test_tuning_repeats_although_it_rehearses_with_noise() -> None:
    short = TuningConfig(initial=2, trials=2)
    assert tuned(config=short).trials == tuned(config=short).trials
    assert tuned(config=short).trials != tuned(config=short, site=1).trials
