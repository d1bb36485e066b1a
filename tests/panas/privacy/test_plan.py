"""A site's budget, the plan of its rounds, and its privacy units."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plans import plan_of

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian, SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.gradients.private import ClipAndNoise
from panas.privacy.noise import ReproducibleNoise, poisson_batch
from panas.privacy.plan import TrainingSchedule
from panas.privacy.unit import members, number_units, rows_of, unit_name
from panas.runtime.errors import BadInput

PLAN = plan_of(9, 3, 0.7, 2.0, epochs=2)


@pytest.mark.parametrize(
    ("samples", "batch", "epochs", "rate", "steps"),
    [(100, 10, 1, 0.1, 10), (100, 30, 1, 0.3, 4), (10, 64, 3, 1.0, 3), (49, 7, 2, 1 / 7, 14)],
)
def test_rate_and_steps(samples: int, batch: int, epochs: int, rate: float, steps: int) -> None:
    plan = plan_of(samples, batch, sigma=2.0, epochs=epochs, rounds=5)
    assert plan.rate == pytest.approx(rate)
    assert plan.steps == steps
    assert plan.training_event == SampledGaussian(plan.rate, 2.0, steps)
    assert plan.events() == (SampledGaussian(plan.rate, 2.0, 5 * steps),)


def test_batches_are_drawn_one_a_step_when_they_are_asked_for() -> None:
    one, other = (ReproducibleNoise(np.random.default_rng(4)) for _ in range(2))
    steps = 0
    for batch in PLAN.batches(one, 9):
        assert torch.equal(batch, poisson_batch(9, 1 / 3, other))
        assert torch.equal(one.normal(5), other.normal(5))  # between two batches
        steps += 1
    assert steps == PLAN.steps == 6


def test_a_step_divides_by_the_expected_batch_and_without_releases_has_no_event() -> None:
    assert PLAN.clip_and_noise == ClipAndNoise(clip=0.7, noise_multiplier=2.0, batch_size=3.0)
    with pytest.raises(BadInput, match="plan with releases"):
        _ = PLAN.release_event


@pytest.mark.parametrize(
    ("epsilon", "delta", "says"),
    [
        *((epsilon, 1e-5, "epsilon above 0") for epsilon in (0.0, -1.0, math.nan)),
        *((1.0, delta, "delta in") for delta in (0.0, 1.0, -1e-5, math.nan)),
    ],
)
def test_what_is_no_budget_is_refused(epsilon: float, delta: float, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Budget(epsilon, delta)


def test_delta_must_be_below_one_over_n() -> None:
    with pytest.warns(UserWarning, match=r"above 1/\(10 n\) = 1\.0e-04 .* promise fails"):
        Budget(1.0, 1e-3).check(999, who="client 0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Budget(1.0, 1e-3).check(100, who="client 0")
    with pytest.raises(BadInput, match="client 4 with 1000"):
        Budget(1.0, 1e-3).check(1000, "client 4")


def test_an_infinite_budget_is_not_private_and_has_infinite_parts() -> None:
    budget = Budget(math.inf, 0.5)
    assert not budget.private
    budget.check(10**6, "client 0")
    assert Budget(1e9, 0.5).private
    assert Budget(math.inf, 1e-5).split({"a": 1.0, "b": 2.0})["a"].epsilon == math.inf


@given(
    budget=st.builds(Budget, st.floats(1e-3, 50.0), st.floats(1e-9, 1e-3)),
    weights=st.dictionaries(st.text(min_size=1), st.floats(1e-3, 1e3), min_size=1, max_size=6),
)
def test_parts_are_in_proportion_and_never_add_up_to_more(
    budget: Budget, weights: dict[str, float]
) -> None:
    parts = budget.split(weights)
    assert list(parts) == list(weights)
    assert sum(p.epsilon for p in parts.values()) <= budget.epsilon
    assert sum(p.delta for p in parts.values()) <= budget.delta
    total = sum(weights.values())
    for name, part in parts.items():
        assert part.epsilon == pytest.approx(budget.epsilon * weights[name] / total)
        assert part.delta == pytest.approx(budget.delta * weights[name] / total)


def test_what_the_parts_pay_for_composes_to_less_than_the_whole() -> None:
    budget = Budget(4.0, 1e-5)
    events = []
    for part in budget.split({"training": 3.0, "release": 1.0}).values():
        plan = calibrate(part, TrainingSchedule(samples=300, epochs=1), batch_size=300, clip=1.0)
        assert epsilon(plan.events(), part.delta) <= part.epsilon
        events.append(Gaussian(plan.noise_multiplier))
    assert 0.5 * budget.epsilon < epsilon(events, budget.delta) <= budget.epsilon


@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": 1.0, "b": -1.0}, {"a": math.nan}])
def test_a_budget_is_split_by_weights_above_zero(weights: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="weights above 0"):
        Budget(1.0, 1e-5).split(weights)


def test_a_budget_at_another_delta_is_a_budget() -> None:
    budget = Budget(1.0, 9e-3)
    assert budget.at(9e-3) == budget
    assert budget.at(1e-6).epsilon == pytest.approx(2.3686, abs=1e-4)
    assert budget.at(1e-6).at(9e-3).epsilon == pytest.approx(1.0)
    assert 0 < Budget(1e-3, 1e-9).at(0.5).epsilon < 1e-9
    assert Budget(math.inf, 1e-5).at(1e-6).epsilon == math.inf


GROUPS = torch.tensor([30, -2, 30, 8, -2, 30])


def test_units_are_numbered_as_they_first_appear_and_have_members_and_a_name() -> None:
    units = number_units(GROUPS)
    assert units.tolist() == [0, 1, 0, 2, 1, 0]
    assert number_units(torch.tensor([9, 4, 7])).tolist() == [0, 1, 2]  # groups of one: the samples
    assert number_units(GROUPS[:0]).tolist() == []
    assert rows_of(units, torch.tensor([2, 0])).tolist() == [0, 2, 3, 5]
    assert [m.tolist() for m in members(GROUPS)] == [[0, 2, 5], [1, 4]]
    assert members(None) == []
    assert unit_name() == "one training sample"
    assert unit_name("patient_id") == "one group: patient_id"
