"""The least noise with which everything that a site will do costs no more than its budget.

Symbols are those of `panas.privacy.plan`.

>>> import panas
>>> schedule = panas.TrainingSchedule(samples=1000, epochs=1)
>>> plan = panas.calibrate(panas.Budget(4.0, 1e-5), schedule, batch_size=100, clip=1.0)
>>> plan.steps, round(plan.noise_multiplier, 2)
(10, 0.85)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import ADD_OR_REMOVE, Event, Gaussian, Relation
from panas.privacy.accounting.reserve import reserve
from panas.privacy.budget import Budget
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.typed import checked

MAX_NOISE = 100.0  # a budget that needs more is too small
LEAST_NOISE = 0.05  # never used less: a plan there may stay far below its budget
FINEST = 1e-6  # grid of the smallest budgets: a finer one takes minutes
PRECISION = 2e-3  # of the natural logarithm of a noise multiplier


def epsilon_of(
    events: Sequence[Event], budget: Budget, relation: Relation = ADD_OR_REMOVE, grid: float = 1.0
) -> float:
    """Epsilon of `events` at the budget's delta, as every decision about the budget sees it.

    Args:
        events: mechanisms applied to the same samples.
        budget: its delta is used, and its epsilon for the grid: small budgets need a finer one.
        relation: under which each event is priced.
        grid: factor on the grid of the privacy loss, above 0; above 1 it is coarser and quicker.
    """
    return epsilon(events, budget.delta, relation=relation, interval=_interval(budget, grid))


def _interval(budget: Budget, grid: float) -> float:
    """The grid of the privacy loss: coarse, to be quick; it always overstates."""
    return grid * max(FINEST, min(1e-3, budget.epsilon / 2000))


def fits(
    events: Sequence[Event], budget: Budget, seen: Sequence[Event] = (), grid: float = 1.0
) -> bool:
    """Whether events fit what is left of a budget, even if an outcome before has chosen them.

    Costs a few percent more noise than events that were fixed from the start
    (`accounting.reserve`).

    Args:
        events: all others that the budget must pay for, beside `seen`.
        budget: of all together.
        seen: events whose outcome the rest may depend on.
        grid: as for `epsilon_of`.
    """
    if seen and budget.private:
        left = reserve(tuple(seen), budget.epsilon, budget.delta)
        if not left.holds(events, _interval(budget, grid)):
            return False
    # What a reserve holds fits, but for the grid's rounding, which the ledger sees too.
    return epsilon_of([*seen, *events], budget, grid=grid) <= budget.epsilon


def least_noise(
    affordable: Callable[[float], bool], *, low: float = LEAST_NOISE, high: float = MAX_NOISE
) -> float | None:
    """Smallest affordable multiplier in [low, high], to 0.2 %, rounded up; None if none is.

    Args:
        affordable: whether a multiplier fits; once true, true of all larger ones.
        low: least multiplier that is tried, above 0.
        high: largest one, above `low`.
    """
    if not affordable(high):
        return None
    if affordable(low):
        return low
    a, b = math.log(low), math.log(high)
    while b - a > PRECISION:
        middle = (a + b) / 2
        a, b = (a, middle) if affordable(math.exp(middle)) else (middle, b)
    return math.exp(b)


def _solve(
    events_of: Callable[[float], Sequence[Event]],
    budget: Budget,
    *,
    seen: Sequence[Event] = (),
    high: float = MAX_NOISE,
) -> float | None:
    """Least multiplier whose events fit what is left; None if even those of `high` do not."""

    @cache
    def exactly(sigma: float) -> bool:
        return fits(events_of(sigma), budget, seen)

    # A coarser grid, which overstates the price and hence the noise, finds the neighbourhood.
    near = least_noise(lambda s: fits(events_of(s), budget, seen, grid=20.0), high=high)
    low = LEAST_NOISE if near is None else max(near / 1.03, LEAST_NOISE)
    result = None if near is None else least_noise(exactly, low=low, high=near)
    if result is None or result == low > LEAST_NOISE:
        result = least_noise(exactly, high=high)
    if result is None or result == LEAST_NOISE or seen:
        return result
    # At small sampling rates epsilon falls steeply: 0.2 % of noise can be 1 % of the budget.
    below = result / math.exp(2 * PRECISION)
    full = 0.995 * budget.epsilon
    while result - below > 1e-6 * result and not epsilon_of(events_of(result), budget) >= full:
        middle = math.sqrt(below * result)
        below, result = (below, middle) if exactly(middle) else (middle, result)
    return result


def release_multiplier(budget: Budget, releases: int, share: float) -> float:
    """Noise multiplier m at which releases of one record cost a share of epsilon.

    BudgetExhausted if no multiplier up to `MAX_NOISE` is enough.

    Args:
        budget: finite; its delta counts whole.
        releases: how many, at least 1, all of the same record.
        share: of epsilon, in (0, 1).
    """
    part = Budget(share * budget.epsilon, budget.delta)
    m = _solve(lambda m: [Gaussian(m)] * releases, part)
    if m is None:
        raise _too_small(budget, _counted(releases, "release"))
    return m


@checked
def calibrate(
    budget: Budget,
    schedule: TrainingSchedule,
    *,
    batch_size: int,
    clip: float,
    epochs: int | None = None,
    release_noise: float | None = None,
) -> Plan:
    """The plan with the least training noise whose total, with what is spent, fits the budget.

    It lands within 1 % under the budget, never over it. Where something is spent, its outcome may
    have chosen batch and epochs: the plan holds back what such a choice could gain.

    Args:
        budget: finite.
        schedule: how long the site trains, and what is spent.
        batch_size: expected batch B, at least 1.
        clip: C, above 0.
        epochs: passes a round in the place of the schedule's, at least 1.
        release_noise: m, if it is decided already.

    Raises:
        BudgetExhausted: if no noise is large enough.
    """
    n, rounds, releases = schedule.samples, schedule.rounds, schedule.releases
    epochs = schedule.epochs if epochs is None else epochs
    if n < 1 or batch_size < 1 or epochs < 1 or rounds < 0 or not clip > 0:
        raise BadInput(
            "expected samples, batch_size, epochs >= 1, rounds >= 0 and clip > 0, got "
            f"{n}, {batch_size}, {epochs}, {rounds} and {clip}"
        )
    if releases and release_noise is None:
        release_noise = release_multiplier(budget, releases, schedule.release_share)
    draft = Plan(
        samples=n,
        batch_size=batch_size,
        clip=clip,
        noise_multiplier=1.0,
        epochs=epochs,
        rounds=rounds,
        steps_a_round=schedule.steps_a_round,
        releases=releases,
        release_noise=release_noise if releases else None,
    )
    sigma = _least_sigma(draft, budget, tuple(schedule.spent))
    if sigma is None:
        raise _too_small(budget, _work_of(draft))
    return replace(draft, noise_multiplier=sigma)


@lru_cache(maxsize=1024)
def _least_sigma(draft: Plan, budget: Budget, spent: tuple[Event, ...]) -> float | None:
    """Remembered: a run prices the same plan before it joins, as it joins, and as it trains."""
    return _solve(lambda s: replace(draft, noise_multiplier=s).events(), budget, seen=spent)


def tighten_release_noise(plan: Plan, budget: Budget, spent: Sequence[Event] = ()) -> Plan:
    """The plan with as little release noise as its training noise leaves budget for.

    Args:
        plan: with releases and calibrated training noise, which stays.
        budget: of everything together, finite.
        spent: what the site was charged before.
    """
    if plan.release_noise is None or not plan.releases:
        return plan
    m = _solve(
        lambda m: replace(plan, release_noise=m).events(),
        budget,
        seen=spent,
        high=plan.release_noise,
    )
    return plan if m is None else replace(plan, release_noise=m)


def rescale_noise(
    plan: Plan,
    budget: Budget,
    spent: Sequence[Event],
    seen: Sequence[Event] = (),
    *,
    fixed: bool = False,
) -> Plan:
    """The plan with all noise raised by the least factor that fits what is left: 1 where it fits.

    BudgetExhausted if no factor is large enough.

    Args:
        plan: what the site still does.
        budget: of everything together, finite.
        spent: charged after the plan was chosen.
        seen: charged before, so that its outcome may have chosen the plan.
        fixed: the training noise stays, and that of releases alone is raised.
    """

    def scaled(factor: float) -> Plan:
        m = plan.release_noise and factor * plan.release_noise
        sigma = (1.0 if fixed else factor) * plan.noise_multiplier
        return replace(plan, noise_multiplier=sigma, release_noise=m)

    def affordable(factor: float) -> bool:
        return fits((*spent, *scaled(factor).events()), budget, seen)

    if affordable(1.0):
        return plan
    largest = max(0.0 if fixed else plan.noise_multiplier, plan.release_noise or 0.0)
    factor = (
        least_noise(affordable, low=1.0, high=max(1.0, MAX_NOISE / largest)) if largest else None
    )
    if factor is None:
        raise _too_small(budget, f"{_work_of(plan)} after what is spent")
    return scaled(factor)


def _work_of(plan: Plan) -> str:
    """What a plan's noise has to cover, in words; rounds are named where there are several."""
    parts = []
    if plan.rounds:
        rounds = f"{plan.rounds} rounds of " if plan.rounds > 1 else ""
        parts.append(f"{rounds}{_counted(plan.steps, 'step')} at q = {plan.rate:.3g}")
    if plan.releases:
        parts.append(_counted(plan.releases, "release"))
    return " and ".join(parts) or "anything"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _too_small(budget: Budget, what: str) -> BudgetExhausted:
    return BudgetExhausted(
        f"expected a budget that affords {what}, got epsilon {budget.epsilon:g} at delta "
        f"{budget.delta:g}, which needs noise above {MAX_NOISE:g} times the signal; raise "
        "epsilon, or plan fewer steps or releases"
    )
