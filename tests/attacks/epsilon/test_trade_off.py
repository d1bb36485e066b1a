"""Bounds by trade-offs: against a linear programme, closed forms, and known mechanisms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import bdtrc, ndtr, ndtri
from scipy.stats import binom

from attacks.epsilon import trade_off
from attacks.epsilon.one_run import OneRunConfig, audit_scores, epsilon_bound
from attacks.epsilon.trade_off import (
    GAUSSIAN,
    AnyFamily,
    Family,
    SampledFamily,
    f_dp_bound,
    gdp_bound,
    is_refuted,
)
from panas.privacy.accounting.closed_form import gaussian_multiplier
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import SampledGaussian
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream

DELTA = 1e-5
SIZES = st.integers(1, 25).flatmap(
    lambda r: st.tuples(st.integers(r, r + 20), st.just(r), st.integers(0, r))
)


def tail(m: int, r: int, v: int, strength: float, family: Family) -> float:
    """The largest probability of v or more right guesses that the recursion lets pass."""
    low, high, least = 0.0, 1.0, family.least(strength)
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if is_refuted(m, r, v, least, middle) else (middle, high)
    return low


def programme(m: int, r: int, v: int, e: float, delta: float) -> float:
    """The same as the largest value of a linear programme over the numbers of right guesses."""
    j, rows, limits = np.arange(r + 1), [], []
    for i in range(1, r + 1):
        right = np.where(j >= i, j, 0) / m
        wrong = np.where((j >= i - 1) & (j < r), r - j, 0) / m
        rows += [right - math.exp(e) * wrong, math.exp(e) * right - wrong]
        limits += [delta, delta - 1 + math.exp(e)]
    ones = np.ones((1, r + 1))
    result = linprog(-(j >= v).astype(float), rows, limits, ones, [1], bounds=(0, 1))
    return -float(result.fun)


@settings(max_examples=30)
@given(SIZES, st.floats(0, 3), st.sampled_from([0.0, 1e-3, 0.01, 0.1]))
def test_the_recursion_solves_its_linear_programme(
    sizes: tuple[int, int, int], e: float, delta: float
):
    assert tail(*sizes, e, AnyFamily(delta)) == pytest.approx(programme(*sizes, e, delta), abs=1e-6)


@given(SIZES, st.floats(0, 5))
def test_randomised_response_stays_below_and_reaches_it_with_all_guesses_right(
    sizes: tuple[int, int, int], e: float
):
    m, r, v = sizes
    q = 1 / (1 + math.exp(-e))
    assert tail(m, r, v, e, AnyFamily(0.0)) >= float(bdtrc(v - 1, r, q)) - 1e-9
    assert tail(m, r, r, e, AnyFamily(0.0)) == pytest.approx(q**r, abs=1e-9)


def test_one_canary_is_guessed_as_often_as_two_gaussians_are_told_apart():
    for mu in (0.5, 1.0, 3.0):
        assert tail(1, 1, 1, mu, GAUSSIAN) == pytest.approx(float(ndtr(mu / 2)), abs=1e-9)


def test_without_a_shape_the_bound_is_near_the_former_one_and_better_at_large_deltas():
    for v in (150, 190, 200):
        bound = f_dp_bound(1000, 200, v, DELTA, family=AnyFamily(DELTA))
        assert bound == pytest.approx(epsilon_bound(1000, 200, v, DELTA), abs=0.05)
    bound = f_dp_bound(1000, 200, 195, 1e-3, family=AnyFamily(1e-3))
    assert bound > 1.5 * epsilon_bound(1000, 200, 195, 1e-3)


def test_a_probability_without_a_canary_is_at_least_what_both_directions_say():
    least = AnyFamily(0.01).least(1.0)
    assert least(0.005) == 0.0
    assert least(0.3) == pytest.approx(0.29 / math.e)
    assert least(0.9) == pytest.approx(1 - 0.01 - math.e * 0.1)
    assert least(1.0) == pytest.approx(0.99)


@pytest.mark.parametrize("p", [1e-6, 0.01, 0.3, 0.9, 0.9999])
def test_dp_sgd_of_one_full_batch_is_a_gaussian(p: float):
    for sigma in (0.7, 2.0):
        exact = GAUSSIAN.least(1 / sigma)(p)
        found = SampledFamily(1.0, 1).least(1 / sigma)(p)
        # Lines at losses of a grid lie below the curve: no claim is refuted for their sake.
        assert exact - 2e-3 <= found <= exact + 1e-9
    assert SampledFamily(0.2, 50).epsilon(0.5, DELTA) == pytest.approx(
        epsilon([SampledGaussian(0.2, 2.0, 50)], DELTA), rel=1e-3
    )


def ideal(seed: int, mu: float, m: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a Gaussian mechanism to each coin, and the coins."""
    rng = stream(seed, "ideal")
    coins = rng.random(m) < 0.5
    return rng.normal(size=m) + mu * coins, coins


def mu_at(e: float) -> float:
    return 1 / gaussian_multiplier(e, DELTA)


def test_ideal_scores_at_epsilon_8_show_what_the_paper_promises_and_less_than_8():
    found = []
    for seed in range(20):
        scores, coins = ideal(seed, mu_at(8.0))
        audit = audit_scores(
            torch.from_numpy(scores), torch.from_numpy(coins), OneRunConfig(delta=DELTA)
        )
        found.append((audit.lower_bound, audit.f_dp, audit.gdp))
    least, mean = np.min(found, axis=0), np.mean(found, axis=0)
    assert np.max(found) <= 8.0
    assert mean[0] < 3.0
    assert mean[1] > 4.0
    assert mean[2] > 5.5
    assert least[1] > 3.5


def alarms(seeds: int, claim: float, mu: float) -> tuple[int, int]:
    """How often a claim is exceeded: by the f-DP bound, and by the Gaussian one."""
    found = [0, 0]
    for seed in range(seeds):
        scores, coins = ideal(seed, mu, 200)
        audit = audit_scores(
            torch.from_numpy(scores), torch.from_numpy(coins), OneRunConfig(delta=DELTA)
        )
        found[0] += audit.f_dp > claim
        found[1] += audit.gdp > claim
    return found[0], found[1]


@pytest.mark.parametrize("claim", [0.5, 2.0, 8.0])
def test_a_true_claim_is_exceeded_as_seldom_as_stated(claim: float):
    assert max(alarms(100, claim, mu_at(claim))) <= binom.isf(1e-4, 100, 0.05)


def test_half_the_noise_is_seen_and_a_recursion_that_forgets_a_factor_is_caught(
    monkeypatch: pytest.MonkeyPatch,
):
    assert min(alarms(20, 2.0, 3 * mu_at(2.0))) >= 18
    # The planted bug: error probabilities that are not the canaries' own.
    real = trade_off.is_refuted
    monkeypatch.setattr(
        trade_off, "is_refuted", lambda m, r, v, g, error: real(m, r, v, g, min(1.0, 12 * error))
    )
    f_dp_bound.cache_clear()
    assert alarms(40, 0.5, mu_at(0.5))[0] > binom.isf(1e-4, 40, 0.05)
    f_dp_bound.cache_clear()


def test_bounds_grow_with_right_guesses_and_say_what_they_assume():
    bounds = [f_dp_bound(200, 40, v, DELTA, family=GAUSSIAN) for v in range(15, 41)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0.0 < bounds[-1]
    assert "Gaussian" in GAUSSIAN.name
    assert "50 steps of DP-SGD at a rate of 0.2" in SampledFamily(0.2, 50).name
    assert f_dp_bound(200, 40, 40, 0.0, family=GAUSSIAN) == math.inf


def test_the_gaussian_bound_is_by_counts_at_fixed_ranks():
    rng = stream(0, "gdp")
    scores, coins = rng.normal(size=400), np.arange(400) < 200
    assert gdp_bound(scores, coins, DELTA) == 0.0
    apart = gdp_bound(scores + 100.0 * coins, coins, DELTA)
    # All of 200 are above the tenth of 200 others.
    error = 0.05 / 6
    mu = float(ndtri(error ** (1 / 200)) - ndtri(binom_upper(10, 200, error)))
    assert apart == pytest.approx(GAUSSIAN.epsilon(mu, DELTA), rel=1e-6)
    assert gdp_bound(scores, np.arange(400) < 1, DELTA) == 0.0


def binom_upper(hits: int, n: int, error: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binom.cdf(hits, n, middle) > error else (low, middle)
    return low


def test_wrong_counts_and_a_family_of_another_delta_are_refused():
    with pytest.raises(BadInput, match="count again"):
        is_refuted(10, 5, 6, GAUSSIAN.least(1.0), 0.05)
    with pytest.raises(BadInput, match="make a family"):
        AnyFamily(1e-3).epsilon(1.0, 1e-5)
