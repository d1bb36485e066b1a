"""The central limit of DP-SGD: what `epsilon(method="gdp")` sums, and the theorem of DP-FNAS."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panas.privacy.accounting.closed_form import (
    equivalent_epsilon,
    gaussian_epsilon,
    gaussian_multiplier,
    limit_mu,
)
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import SampledGaussian


def test_the_limit_is_that_of_theorem_3_1_and_of_the_gdp_method() -> None:
    steps = [SampledGaussian(0.04, 1.5, 2000), SampledGaussian(0.04, 1.5, 250)]
    mu = limit_mu(steps)
    assert mu == pytest.approx(0.04 * math.sqrt(2250 * (math.exp(1 / 1.5**2) - 1)))
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(epsilon(steps, 1e-5, method="gdp"))


def test_little_noise_overflows_nothing() -> None:
    assert limit_mu([SampledGaussian(0.1, 1e-3, 10)]) > 1e100
    assert limit_mu([]) == 0


DELTAS = st.floats(1e-10, 1e-2)


@given(st.floats(0.01, 50), DELTAS, DELTAS)
def test_epsilon_at_another_delta_is_that_of_the_same_gaussian(
    asked: float, delta: float, target: float
) -> None:
    found = equivalent_epsilon(asked, delta, target)
    mu = 1 / gaussian_multiplier(asked, delta)
    assert found == pytest.approx(gaussian_epsilon(mu, target), rel=1e-6)
    assert (found <= asked) == (target >= delta) or target == pytest.approx(delta)
    if found > 0.01:
        assert equivalent_epsilon(found, target, delta) == pytest.approx(asked, rel=1e-6)


def test_a_delta_of_nine_in_a_thousand_hides_more_than_twice_the_epsilon() -> None:
    assert equivalent_epsilon(1.0, 9e-3, 1e-6) == pytest.approx(2.3686, abs=1e-4)


def test_what_no_gaussian_is_stays_a_bound() -> None:
    assert equivalent_epsilon(math.inf, 1e-5, 1e-6) == math.inf
    assert equivalent_epsilon(3.0, 1e-5, 1e-5) == 3.0
    for asked in (1e-12, 1e-7, 1e7):
        assert equivalent_epsilon(asked, 1e-12, 1e-5) == asked  # true of any mechanism
    assert equivalent_epsilon(1e7, 1e-5, 1e-6) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "steps"), [(0.01, 0.7, 10), (0.1, 1.0, 200), (0.5, 5.0, 200)]
)
def test_dp_sgd_costs_no_more_than_that_at_a_larger_delta(
    q: float, sigma: float, steps: int
) -> None:
    event = SampledGaussian(q, sigma, steps)
    asked = epsilon([event], 1e-9)
    assert epsilon([event], 1e-5) < equivalent_epsilon(asked, 1e-9, 1e-5) < asked
