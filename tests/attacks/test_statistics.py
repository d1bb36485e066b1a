import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from attacks.statistics import MIN_SAMPLES, clopper_pearson, gain_interval, mean_interval
from panas.runtime.errors import BadInput


@given(n=st.integers(1, 60), share=st.floats(0, 1), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_bounds_are_where_the_binomial_tails_are(n: int, share: float, confidence: float) -> None:
    hits, tail = round(share * n), (1 - confidence) / 2
    low, high = clopper_pearson(hits, n, confidence)
    assert 0 <= low <= hits / n <= high <= 1
    assert (low == 0) == (hits == 0)
    assert (high == 1) == (hits == n)
    if hits:
        assert binom.sf(hits - 1, n, low) == pytest.approx(tail, rel=1e-6)
    if hits < n:
        assert binom.cdf(hits, n, high) == pytest.approx(tail, rel=1e-6)


def test_it_is_what_scipy_says_at_95_percent() -> None:
    assert clopper_pearson(7, 30) == pytest.approx(
        tuple(binomtest(7, 30).proportion_ci(method="exact"))
    )


@pytest.mark.parametrize("wrong", [(-1, 5, 0.95), (6, 5, 0.95), (0, 0, 0.95), (1, 5, 1.0)])
def test_numbers_out_of_range_are_refused(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(BadInput, match="hits of n"):
        clopper_pearson(*wrong)


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_it_claims() -> None:
    # R^2 of errors uniform on [0, 1] against a reference of 1 is 1/2.
    rng, hits = np.random.default_rng(0), 0
    for _ in range(200):
        errors = torch.from_numpy(rng.random(100))
        ones = torch.ones(100, dtype=torch.float64)
        low, high = gain_interval(errors, ones, ones, rng=rng)
        hits += low <= 0.5 <= high
    assert 180 <= hits <= 199  # 190 expected


def test_pairing_narrows_a_difference_and_a_shift_of_it_is_caught() -> None:
    rng = np.random.default_rng(0)
    baseline = torch.from_numpy(rng.random(200))
    ones = torch.ones(200, dtype=torch.float64)
    low, high = gain_interval(baseline - 0.1, baseline, ones, rng=rng)
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.1))
    alone = gain_interval(baseline - 0.1, ones, ones, rng=rng)
    assert alone[1] - alone[0] > 0.05


@pytest.mark.parametrize("n", [1, 3, MIN_SAMPLES - 1])
def test_a_gain_on_few_samples_has_no_interval(n: int) -> None:
    rng = np.random.default_rng(0)
    errors, baseline = (torch.from_numpy(rng.random(n)) for _ in range(2))
    assert np.isnan(gain_interval(errors, baseline, torch.ones(n).double(), rng=rng)).all()


@pytest.mark.slow
def test_the_interval_of_a_mean_covers_it_as_often_as_it_claims() -> None:
    rng, hits = np.random.default_rng(1), 0
    for _ in range(200):
        low, high = mean_interval(torch.from_numpy(rng.random(100)), rng=rng)
        hits += low <= 0.5 <= high
    assert 180 <= hits <= 199
