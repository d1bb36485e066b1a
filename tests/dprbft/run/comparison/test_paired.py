"""Paired differences by hand, and against scipy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dprbft.run.comparison.table import paired

OWN, OTHER = [0.9, 0.8, 0.95, 0.7], [0.85, 0.8, 0.9, 0.72]


def test_mean_error_and_p_are_those_of_the_differences():
    gains = [a - b for a, b in zip(OWN, OTHER, strict=True)]
    mean = sum(gains) / 4
    variance = sum((g - mean) ** 2 for g in gains) / 3
    error = math.sqrt(variance / 4)
    p = 2 * stats.t.sf(abs(mean / error), df=3)  # Student's t-test, by its formula
    difference = paired(OWN, OTHER)
    assert difference is not None
    assert (difference.mean, difference.error, difference.p) == pytest.approx((mean, error, p))
    assert difference.pairs == 4
    assert difference.p != pytest.approx(stats.ttest_ind(OWN, OTHER).pvalue)


def test_without_spread_there_is_no_test():
    assert paired([], []) is None
    one, same = paired([0.5], [0.4]), paired([0.5, 0.6], [0.5, 0.6])
    assert one is not None
    assert same is not None
    assert (one.error, one.p, one.pairs) == (None, None, 1)
    assert (same.mean, same.p) == (0.0, None)


@given(st.lists(st.tuples(*2 * [st.floats(0, 1)]), min_size=2, max_size=8))
def test_turning_the_pair_round_turns_the_sign(pairs: list[tuple[float, float]]):
    own, other = [a for a, _ in pairs], [b for _, b in pairs]
    forth, back = paired(own, other), paired(other, own)
    assert forth is not None
    assert back is not None
    assert forth.mean == pytest.approx(-back.mean)
