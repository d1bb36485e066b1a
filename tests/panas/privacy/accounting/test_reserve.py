"""Plans that were chosen by the noised histogram: the worst choice stays within the budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from panas.privacy.accounting.closed_form import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
)
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    Event,
    Gaussian,
    SampledGaussian,
    Unprotected,
    merge,
)
from panas.privacy.accounting.pld import loss_distribution
from panas.privacy.accounting.reserve import RIGOURS, SLACK, reserve
from panas.privacy.budget import Budget
from panas.privacy.calibration import (
    calibrate,
    epsilon_of,
    fits,
    least_noise,
    release_multiplier,
    rescale_noise,
    tighten_release_noise,
)
from panas.privacy.plan import Plan, TrainingSchedule

BUDGET = Budget(8.0, 1e-5)
Profile = Callable[[np.ndarray], np.ndarray]


def profile(events: Sequence[Event]) -> Profile:
    """Delta at every epsilon, of fixed mechanisms, from their privacy losses."""
    merged = merge(events, ADD_OR_REMOVE, 1)
    if not merged.sampled:
        return lambda e: gaussian_delta(math.sqrt(merged.precision), e)
    loss = loss_distribution(merged, 5e-4)
    return lambda e: np.array(loss.get_delta_for_epsilon(np.sort(e)))[np.argsort(np.argsort(e))]


def chosen_epsilon(histogram: Gaussian, plans: Sequence[Sequence[Event]]) -> float:
    """Epsilon of the histogram and of the plan that is worst after each outcome of it."""
    mu, z = 1 / histogram.noise_multiplier, np.linspace(-8, 8, 801)
    losses, weights = mu**2 / 2 + mu * z, norm.pdf(z) * (z[1] - z[0])
    profiles = [profile(plan) for plan in plans]

    def delta(e: float) -> float:
        worst = np.max([p(e - losses) for p in profiles], axis=0)
        return float(weights @ worst)

    return float(brentq(lambda e: math.log(delta(e) / BUDGET.delta), 4, 12, xtol=1e-5))


def planned_apart(schedule: TrainingSchedule, batch: int, epochs: int) -> Plan:
    """The planted bug: the least noise that fits beside the histogram, as if fixed beforehand."""
    plan = calibrate(BUDGET, schedule, batch_size=batch, clip=1.0, epochs=epochs)

    def affordable(sigma: float) -> bool:
        events = [*schedule.spent, *replace(plan, noise_multiplier=sigma).events()]
        return epsilon_of(events, BUDGET) <= BUDGET.epsilon

    # Not far below what holds a reserve back: `least_noise` looks at both ends itself.
    high = plan.noise_multiplier
    sigma = least_noise(affordable, low=high / 1.08, high=high)
    assert sigma is not None
    return replace(plan, noise_multiplier=sigma)


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_whatever_the_histogram_chooses_costs_no_more_than_the_budget(share: float) -> None:
    histogram = Gaussian(release_multiplier(BUDGET, 1, share))
    schedule = TrainingSchedule(samples=1000, epochs=5, spent=(histogram,))
    settings = [(4, 1), (64, 40), (1000, 10)]
    held = [calibrate(BUDGET, schedule, batch_size=b, clip=1.0, epochs=e) for b, e in settings]
    assert 0.99 * BUDGET.epsilon < chosen_epsilon(histogram, [p.events() for p in held]) <= 8.0
    apart = [planned_apart(schedule, b, e) for b, e in settings]
    assert chosen_epsilon(histogram, [p.events() for p in apart]) > 8.01
    for plan, other in zip(held, apart, strict=True):
        assert 1 <= plan.noise_multiplier / other.noise_multiplier < 1.07  # at q = .004


@pytest.mark.slow
def test_the_reserve_and_what_was_seen_cost_the_budget() -> None:
    seen = (Gaussian(3.0), Gaussian(4.0))
    left = reserve(seen, 8.0, 1e-5)
    mu = math.hypot(1 / 3, 1 / 4, left.mu)
    assert gaussian_epsilon(mu, (1 - SLACK) * 1e-5) <= 8.0 < gaussian_epsilon(mu * 1.003, 1e-5)
    steps = (SampledGaussian(0.1, 2.0, 50),)
    both = epsilon_of([*steps, Gaussian(1 / reserve(steps, 8.0, 1e-5).mu)], BUDGET)
    assert 7.9 < both <= 8.0
    assert reserve((Unprotected(),), 8.0, 1e-5).mu == 0
    assert reserve((Gaussian(0.4),), 8.0, 1e-5).mu < 1e-2


def test_what_exceeds_the_reserve_is_refused_and_what_fits_no_budget_too() -> None:
    seen = (Gaussian(4.0),)
    mu = reserve(seen, 8.0, 1e-5).mu
    assert fits([Gaussian(1.0001 / mu)], BUDGET, seen)
    assert not fits([Gaussian(0.9999 / mu)], BUDGET, seen)
    assert fits([SampledGaussian(0.1, 1.5, 100)], BUDGET, seen)
    assert not fits([SampledGaussian(0.1, 1.5, 100_000)], BUDGET, seen)
    assert not fits([Unprotected()], BUDGET, seen)
    assert fits([Gaussian(0.99 / mu)], BUDGET, [Gaussian(40.0)])


@pytest.mark.thorough
def test_releases_are_sharpened_and_dead_rounds_paid_for_within_the_reserve() -> None:
    seen = (Gaussian(4.0),)
    schedule = TrainingSchedule(samples=300, epochs=2, rounds=2, releases=2, spent=seen)
    plan = calibrate(BUDGET, schedule, batch_size=60, clip=1.0)
    noisier = replace(plan, noise_multiplier=1.3 * plan.noise_multiplier)
    sharper = tighten_release_noise(noisier, BUDGET, seen)
    assert sharper.release_noise < plan.release_noise
    assert fits(sharper.events(), BUDGET, seen)
    dead = (plan.training_event,)
    again = rescale_noise(plan, BUDGET, dead, seen)
    assert again.noise_multiplier > plan.noise_multiplier
    assert fits([*dead, *again.events()], BUDGET, seen)


@pytest.mark.parametrize("part", [0.9, 0.99, 0.999])
def test_where_nearly_all_is_spent_a_closer_look_leaves_nearly_all_of_the_rest(part: float) -> None:
    whole = 1 / gaussian_multiplier(8.0, 1e-5)
    seen = (Gaussian(1 / (part * whole)),)
    left, exact = reserve(seen, 8.0, 1e-5), whole * math.sqrt(1 - part**2)
    assert 0.975 * exact < left.mu <= exact * 1.0001
    assert (left.rigour is RIGOURS[0]) == (part < 0.99)
    schedule = TrainingSchedule(samples=1000, epochs=5, spent=seen)
    plan = calibrate(BUDGET, schedule, batch_size=1000, clip=1.0)
    assert 0.995 * 8.0 < epsilon_of([*seen, *plan.events()], BUDGET) <= 8.0
