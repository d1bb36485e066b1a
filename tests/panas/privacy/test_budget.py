"""A budget refuses what is no budget."""

import math
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.schedule import TrainingSchedule
from panas.runtime.errors import BadInput


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_epsilon_must_be_above_zero(epsilon: float) -> None:
    with pytest.raises(BadInput, match="epsilon above 0"):
        Budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(BadInput, match="delta in"):
        Budget(1.0, delta)


def test_delta_must_be_below_one_over_n() -> None:
    with pytest.warns(UserWarning, match=r"above 1/\(10 n\) = 1\.0e-04 .* promise fails"):
        Budget(1.0, 1e-3).check(999, who="client 0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Budget(1.0, 1e-3).check(100, who="client 0")
    with pytest.raises(BadInput, match="client 4 with 1000"):
        Budget(1.0, 1e-3).check(1000, "client 4")


def test_an_infinite_budget_is_not_private_and_has_no_delta_to_check() -> None:
    budget = Budget(math.inf, 0.5)
    assert not budget.private
    budget.check(10**6, "client 0")
    assert Budget(1e9, 0.5).private


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


def test_parts_of_an_infinite_budget_are_infinite() -> None:
    assert Budget(math.inf, 1e-5).split({"a": 1.0, "b": 2.0})["a"].epsilon == math.inf


@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": 1.0, "b": -1.0}, {"a": math.nan}])
def test_a_budget_is_split_by_weights_above_zero(weights: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="weights above 0"):
        Budget(1.0, 1e-5).split(weights)


def test_a_budget_at_another_delta_is_a_budget() -> None:
    asked = Budget(1.0, 9e-3)
    assert asked.at(9e-3) == asked
    assert asked.at(1e-6).epsilon == pytest.approx(2.3686, abs=1e-4)
    assert asked.at(1e-6).at(9e-3).epsilon == pytest.approx(1.0)
    assert 0 < Budget(1e-3, 1e-9).at(0.5).epsilon < 1e-9
    assert Budget(math.inf, 1e-5).at(1e-6).epsilon == math.inf
