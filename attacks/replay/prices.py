"""Whether what is charged covers what a mechanism costs, by a lower bound of its own.

An adversary who sees a Gaussian number only by the cell of a grid that it fell into sees less, so
that the privacy loss of cells is at most that of the mechanism (data processing). With losses
rounded down and the tail left out, delta of all steps together is bounded from below, and so is
epsilon. An accountant that says less than this bound is wrong; how much more it says is not tested.

| symbol | name |
|---|---|
| P, Q | probabilities of a cell with and without the unit |
| loss | log(P / Q), rounded down to whole steps of `STEP` |

It shares no code with the accountants of `panas.privacy.accounting`.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.special
from jaxtyping import Float

from attacks.conformance.finding import Finding
from panas.privacy.accounting import epsilon as accountant
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    REPLACE,
    Event,
    Gaussian,
    Relation,
    SampledGaussian,
    Unprotected,
)
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, fits, release_multiplier
from panas.privacy.plan import TrainingSchedule

STEP = 5e-4  # of the grid of losses
RANGE = 1 << 18  # points of that grid
CELLS = 20_000  # of a number's grid
DELTA = 1e-5
CLOSE = 1e-6  # by which two prices may differ for rounding


def least_epsilon(events: Sequence[Event], delta: float, relation: Relation) -> float:
    """A lower bound of epsilon of Gaussian events on the same unit.

    Args:
        events: full-batch or Poisson-sampled Gaussians; at least one.
        delta: in (0, 1).
        relation: which data sets are neighbours.
    """
    losses = np.ones(RANGE // 2 + 1, dtype=complex)
    for event in events:
        times = event.steps if isinstance(event, SampledGaussian) else 1
        losses *= np.fft.rfft(_cells(event, relation)) ** times
    mass = np.fft.irfft(losses, RANGE).clip(min=0)
    at = (np.arange(RANGE) - RANGE // 2) * STEP
    # Each step's losses begin at minus half the range; that of the sum must, too.
    count = sum(e.steps if isinstance(e, SampledGaussian) else 1 for e in events)
    mass = np.roll(mass, -(RANGE // 2) * (count - 1) % RANGE)
    low, high = 0.0, float(at[-1])
    while high - low > 1e-5:
        middle = (low + high) / 2
        over = at > middle
        value = float((mass[over] * -np.expm1(middle - at[over])).sum())
        low, high = (middle, high) if value > delta else (low, middle)
    return low


def _cells(event: Event, relation: Relation) -> Float[np.ndarray, "losses"]:
    """Probabilities of the losses of one step, of cells with the unit."""
    assert isinstance(event, Gaussian | SampledGaussian)
    sigma, q = event.noise_multiplier, getattr(event, "rate", 1.0)
    edges = np.linspace(-9 * sigma - 1, 9 * sigma + 1, CELLS)
    without = np.diff(scipy.special.ndtr(edges / sigma))
    moved = np.diff(scipy.special.ndtr((edges - 1) / sigma))
    if relation == REPLACE and isinstance(event, SampledGaussian):  # the other one moves it, too
        opposite = np.diff(scipy.special.ndtr((edges + 1) / sigma))
        p, other = (1 - q) * without + q * moved, (1 - q) * without + q * opposite
    else:
        p, other = (1 - q) * without + q * moved, without
    seen = (p > 0) & (other > 1e-300)
    loss = np.floor(np.log(p[seen] / other[seen]) / STEP).astype(int) + RANGE // 2
    inside = (loss >= 0) & (loss < RANGE)
    return np.bincount(loss[inside], p[seen][inside], minlength=RANGE)


WORKS: tuple[tuple[Event, ...], ...] = (
    (Gaussian(1.3),),
    (Gaussian(2.0), Gaussian(3.0), Gaussian(3.0)),
    (SampledGaussian(0.2, 1.1, 25),),
    (SampledGaussian(1.0, 4.0, 5),),
    (SampledGaussian(0.05, 0.8, 10), Gaussian(2.5)),
)
"""Events whose price is compared."""


def findings_of_prices() -> Iterator[Finding]:
    """Whether every accountant, and what calibrates by them, keeps above the lower bound."""
    for relation in (ADD_OR_REMOVE, REPLACE):
        for events in WORKS:
            least = least_epsilon(events, DELTA, relation)
            for method in ("pld", "rdp", "prv"):
                price = accountant.epsilon(events, DELTA, method=method, relation=relation)
                yield covers(f"{method}, {relation}, {events[0]}", price, least)
    unprotected = accountant.epsilon([Gaussian(9.0), Unprotected()], DELTA)
    yield covers("an unprotected event", unprotected, math.inf)
    none = accountant.epsilon([Gaussian(0.0)], DELTA)
    yield covers("a Gaussian without noise", none, math.inf)
    twice = accountant.epsilon([Gaussian(4.0)], DELTA, group=2)
    yield covers("a user with two samples", twice, least_epsilon([Gaussian(2.0)], DELTA, REPLACE))
    yield from _of_calibration()


def certain(part: str, wrong: bool, says: str) -> Finding:
    """A test without chance.

    Args:
        part: what was tested.
        wrong: what was found.
        says: what that means.
    """
    return Finding("charge", part, 0.0 if wrong else 1.0, says)


def covers(part: str, price: float, least: float) -> Finding:
    """Whether a price is no less than what something costs at least.

    Args:
        part: what was tested.
        price: epsilon that was said.
        least: a lower bound of epsilon.
    """
    says = f"it is priced at {price:.3f}, and costs {least:.3f} at least"
    return Finding("price", part, 1.0 if price >= least - CLOSE else 0.0, says)


def _of_calibration() -> Iterator[Finding]:
    budget = Budget(3.0, DELTA)
    schedule = TrainingSchedule(samples=500, epochs=2, releases=2)
    plan = calibrate(budget, schedule, batch_size=50, clip=1.0)
    yield covers("a calibrated plan", budget.epsilon, _least(plan.events()))
    rounds = SampledGaussian(plan.rate, plan.noise_multiplier, plan.steps * plan.rounds)
    done: list[Event] = [rounds, *[plan.release_event] * plan.releases]
    yield covers("what a calibrated plan does", budget.epsilon, _least(done))
    m = release_multiplier(budget, 3, 0.5)
    yield covers("a share for releases", 0.5 * budget.epsilon, _least([Gaussian(m)] * 3))
    over = [Gaussian(1.0)] * 3
    yield certain("fits", fits(over, budget) and _least(over) > budget.epsilon, "too much fits")


def _least(events: Sequence[Event]) -> float:
    return least_epsilon(events, DELTA, ADD_OR_REMOVE)
