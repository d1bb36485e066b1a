"""A client's whole privacy plan: sampling, clip, noise and accounting events, as one fact.

`calibrate` solves for the noise that makes everything a client will do (the label histogram, all
training rounds, all releases) cost no more than its budget. Sigma is written here and nowhere
else: training, release and ledger read it from the plan.

| symbol | name |
|---|---|
| n | `samples`, training samples of the client (treated as public) |
| B | `batch_size`, the *expected* size of a Poisson batch |
| q = B / n | `rate` |
| sigma | `noise_multiplier` of DP-SGD |
| C | `clip`, norm to which each sample's gradient is clipped |
| m | `release_noise`, noise multiplier of one release |

A plan is priced under add-or-remove-one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Event, Gaussian, Relation, SampledGaussian
from panas.privacy.budget import Budget
from panas.runtime.errors import BadInput, BudgetExhausted

MAX_NOISE = 100.0
"""Largest noise multiplier worth running; a budget that needs more is too small."""

LEAST_NOISE = 0.05
"""Smallest noise multiplier ever used: a plan there may stay far below its budget."""

PRECISION = 2e-3
"""Of the natural logarithm of a noise multiplier."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one client will do with its training samples, and with how much noise.

    Attributes:
        samples: n, at least 1.
        batch_size: expected Poisson batch B; a value above n means the full batch.
        clip: C, above 0.
        noise_multiplier: sigma, above 0.
        epochs: passes over the data a round, at least 1.
        rounds: rounds in which the client trains.
        releases: how many of them end with a release of the same record, 0 or more.
        release_noise: m, above 0; None if nothing is released under noise.

    """

    samples: int
    batch_size: int
    clip: float
    noise_multiplier: float
    epochs: int
    rounds: int
    releases: int = 0
    release_noise: float | None = None

    @property
    def rate(self) -> float:
        """Sampling rate q in (0, 1]."""
        return min(1.0, self.batch_size / self.samples)

    @property
    def steps(self) -> int:
        """Optimiser steps of one round."""
        return max(1, math.ceil(self.epochs / self.rate - 1e-9))

    @property
    def training_event(self) -> SampledGaussian:
        """What one round of DP-SGD costs."""
        return SampledGaussian(self.rate, self.noise_multiplier, self.steps)

    @property
    def release_event(self) -> Gaussian:
        """What one release costs."""
        if self.release_noise is None:
            raise BadInput("expected a plan with releases, got one without; set release_noise")
        return Gaussian(self.release_noise)

    def events(self) -> tuple[Event, ...]:
        """Everything the plan will charge."""
        training = replace(self.training_event, steps=self.steps * self.rounds)
        releases = (self.release_event,) * self.releases if self.release_noise else ()
        return (training, *releases) if self.rounds else releases


def gate_interval(budget: Budget) -> float:
    """Grid of the privacy loss for decisions: coarse enough to be quick, and always pessimistic."""
    return min(1e-3, budget.epsilon / 2000)


def epsilon_of(
    events: Sequence[Event], budget: Budget, *, relation: Relation = "add-or-remove-one"
) -> float:
    """Epsilon of `events` at the budget's delta, as every decision about the budget sees it."""
    return epsilon(events, budget.delta, relation=relation, interval=gate_interval(budget))


def least_noise(
    affordable: Callable[[float], bool], *, low: float = LEAST_NOISE, high: float = MAX_NOISE
) -> float | None:
    """Smallest noise multiplier in [low, high] that is affordable, to 0.2 %, rounded up.

    Returns:
        The multiplier, or None if even `high` is not affordable.

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
    events_of: Callable[[float], Sequence[Event]], budget: Budget, *, high: float = MAX_NOISE
) -> float | None:
    """Least multiplier whose events fit the budget; None if even `high` does not fit.

    A coarse grid, which overstates the price and hence the noise, first finds the neighbourhood.
    """
    coarse = 20 * gate_interval(budget)

    def roughly(sigma: float) -> bool:
        return epsilon(events_of(sigma), budget.delta, interval=coarse) <= budget.epsilon

    @cache
    def total(sigma: float) -> float:
        return epsilon_of(events_of(sigma), budget)

    def exactly(sigma: float) -> bool:
        return total(sigma) <= budget.epsilon

    near = least_noise(roughly, high=high)
    low = LEAST_NOISE if near is None else max(near / 1.03, LEAST_NOISE)
    found = None if near is None else least_noise(exactly, low=low, high=near)
    if found is None or found == low > LEAST_NOISE:
        found = least_noise(exactly, high=high)
    if found is None or found == LEAST_NOISE:
        return found
    # At small sampling rates epsilon falls steeply: 0.2 % of noise can be 1 % of the budget.
    below = found / math.exp(2 * PRECISION)
    while total(found) < 0.995 * budget.epsilon and found - below > 1e-6 * found:
        middle = math.sqrt(below * found)
        below, found = (below, middle) if exactly(middle) else (middle, found)
    return found


def release_multiplier(budget: Budget, releases: int, share: float) -> float:
    """Noise multiplier m at which `releases` releases alone cost `share` of the budget.

    Args:
        budget: finite; see `Budget`.
        releases: releases of the same record.
        share: of epsilon, in (0, 1).

    Raises:
        BudgetExhausted: if no multiplier up to `MAX_NOISE` is enough.

    """
    part = Budget(share * budget.epsilon, budget.delta)
    m = _solve(lambda m: [Gaussian(m)] * releases, part)
    if m is None:
        raise _too_small(budget, f"{releases} releases")
    return m


def calibrate(
    budget: Budget,
    *,
    samples: int,
    batch_size: int,
    clip: float,
    epochs: int,
    rounds: int,
    releases: int = 0,
    release_share: float = 0.3,
    release_noise: float | None = None,
    spent: Sequence[Event] = (),
) -> Plan:
    """The plan with the least training noise whose total, with what is spent, fits the budget.

    Args:
        budget: finite; see `Budget`.
        samples: n, at least 1.
        batch_size: expected batch B, at least 1.
        clip: C, above 0.
        epochs: passes a round, at least 1.
        rounds: rounds still to train, 0 or more.
        releases: releases still to make of the same record.
        release_share: share of epsilon that sizes the noise of the releases, in (0, 1).
        release_noise: m, if it is decided already.
        spent: events that were charged before.

    Returns:
        A plan that lands within 1 % under the budget, never over it.

    Raises:
        BudgetExhausted: if no noise is large enough.

    """
    if samples < 1 or batch_size < 1 or epochs < 1 or rounds < 0 or not clip > 0:
        raise BadInput(
            "expected samples, batch_size, epochs >= 1, rounds >= 0 and clip > 0, got "
            f"{samples}, {batch_size}, {epochs}, {rounds} and {clip}"
        )
    if releases and release_noise is None:
        release_noise = release_multiplier(budget, releases, release_share)
    draft = Plan(
        samples=samples,
        batch_size=batch_size,
        clip=clip,
        noise_multiplier=1.0,
        epochs=epochs,
        rounds=rounds,
        releases=releases,
        release_noise=release_noise if releases else None,
    )

    def events(sigma: float) -> Sequence[Event]:
        return (*spent, *replace(draft, noise_multiplier=sigma).events())

    sigma = _solve(events, budget)
    if sigma is None:
        raise _too_small(budget, f"{rounds} rounds of {draft.steps} steps at q = {draft.rate:.3g}")
    return replace(draft, noise_multiplier=sigma)


def affordable_steps(
    budget: Budget,
    rate: float,
    sigma: float,
    *,
    spent: Sequence[Event] = (),
    most: int = 1_000_000,
) -> int:
    """How many steps of DP-SGD a budget affords at a noise that somebody fixed.

    Args:
        budget: finite; see `Budget`.
        rate: q, in (0, 1].
        sigma: noise multiplier, above 0.
        spent: events that were charged before.
        most: answer at most this.

    Returns:
        The largest number of steps whose cost, with what is spent, fits the budget; 0 if not even
        one does.

    """

    def affords(steps: int) -> bool:
        return epsilon_of((*spent, SampledGaussian(rate, sigma, steps)), budget) <= budget.epsilon

    low, high = 0, 1
    while high < most and affords(high):
        low, high = high, 2 * high
    if high >= most:
        if affords(most):
            return most
        high = most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if affords(middle) else (low, middle)
    return low


def tighten_release_noise(plan: Plan, budget: Budget, spent: Sequence[Event] = ()) -> Plan:
    """The plan with as little release noise as the budget has left for, at its training noise.

    A tuned training noise may cost less than its share; what it leaves goes to the releases.
    """
    if plan.release_noise is None or not plan.releases:
        return plan
    m = _solve(
        lambda m: (*spent, *replace(plan, release_noise=m).events()),
        budget,
        high=plan.release_noise,
    )
    return plan if m is None else replace(plan, release_noise=m)


def rescale_noise(plan: Plan, budget: Budget, spent: Sequence[Event]) -> Plan:
    """The plan with all its noise raised by one factor, the least that fits what is left.

    Raises:
        BudgetExhausted: if no factor is large enough.

    """

    def scaled(factor: float) -> Plan:
        m = plan.release_noise
        return replace(
            plan,
            noise_multiplier=factor * plan.noise_multiplier,
            release_noise=None if m is None else factor * m,
        )

    most = MAX_NOISE / max(plan.noise_multiplier, plan.release_noise or 0.0)
    factor = least_noise(
        lambda f: epsilon_of((*spent, *scaled(f).events()), budget) <= budget.epsilon,
        low=1.0,
        high=max(1.0, most),
    )
    if factor is None:
        raise _too_small(budget, f"{plan.rounds} more rounds after what is spent")
    return scaled(factor)


def _too_small(budget: Budget, what: str) -> BudgetExhausted:
    return BudgetExhausted(
        f"expected a budget that affords {what}, got epsilon {budget.epsilon:g} at delta "
        f"{budget.delta:g}, which needs noise above {MAX_NOISE:g} times the signal; raise "
        "--epsilon, or plan fewer rounds, epochs or releases"
    )
