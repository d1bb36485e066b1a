"""A budget refuses what is no budget."""

import math

import pytest

from panas.errors import BadInput
from panas.privacy.budget import Budget


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_epsilon_must_be_above_zero(epsilon: float) -> None:
    with pytest.raises(BadInput, match="epsilon above 0"):
        Budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(BadInput, match="delta in"):
        Budget(1.0, delta)


def test_delta_must_be_below_one_over_n() -> None:
    Budget(1.0, 1e-3).check(999, client=0)
    with pytest.raises(BadInput, match="client 4 with 1000"):
        Budget(1.0, 1e-3).check(1000, client=4)


def test_an_infinite_budget_is_not_private_and_has_no_delta_to_check() -> None:
    budget = Budget(math.inf, 0.5)
    assert not budget.private
    budget.check(10**6, client=0)
    assert Budget(1e9, 0.5).private
