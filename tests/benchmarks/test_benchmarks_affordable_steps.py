"""As many steps as a budget affords, and not one more."""

import pytest

from benchmarks.affordable_steps import affordable_steps
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of


@pytest.mark.thorough
@pytest.mark.parametrize(("rate", "sigma"), [(0.2, 1.0), (0.02, 1.0), (1.0, 1.92), (0.2, 2.0)])
def test_as_many_steps_as_a_budget_affords_and_not_one_more(rate: float, sigma: float) -> None:
    for most in (0.5, 3.0):
        budget = Budget(most, 1e-5)
        steps = affordable_steps(budget, rate, sigma)
        priced = [epsilon_of([SampledGaussian(rate, sigma, t)], budget) for t in (steps, steps + 1)]
        assert steps == 0 or priced[0] <= most
        assert priced[1] > most
        assert affordable_steps(budget, rate, sigma, most=3) == min(3, steps)


@pytest.mark.slow
def test_table_six_affords_few_steps() -> None:
    # By Renyi's bound 6 and 599 at epsilon 5 and 50, and 4 and 146 for the winner; these are more.
    assert affordable_steps(Budget(0.5, 1e-5), 0.2, 1.0) == 0
    assert affordable_steps(Budget(5.0, 1e-5), 0.2, 1.0) == 10
    assert affordable_steps(Budget(5.0, 1e-5), 1.0, 1.92) == 4
