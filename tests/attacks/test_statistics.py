import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from attacks.statistics import clopper_pearson
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
