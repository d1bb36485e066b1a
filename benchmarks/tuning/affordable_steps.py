"""How many steps of DP-SGD a budget affords at a noise that somebody fixed."""

from bisect import bisect_left

from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of

MOST = 1_000_000


def affordable_steps(budget: Budget, rate: float, sigma: float, *, most: int = MOST) -> int:
    """The largest number of steps whose cost fits the budget, up to `most`; 0 if not even one does.

    Args:
        budget: finite; see `Budget`.
        rate: q, in (0, 1].
        sigma: noise multiplier, above 0.
        most: answer at most this.

    """

    def too_many(steps: int) -> bool:
        return epsilon_of((SampledGaussian(rate, sigma, steps),), budget) > budget.epsilon

    end = 1
    while end < most and not too_many(end):
        end *= 2
    return bisect_left(range(1, min(end, most) + 1), True, key=too_many)
