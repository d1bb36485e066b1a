import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panas.data.splits import Splits, resample_to, split, stratified
from panas.runtime.errors import BadInput

labels = st.lists(st.integers(0, 4), max_size=80).map(lambda y: np.array(y, dtype=np.int64))
fractions = st.tuples(*[st.floats(0, 0.33)] * 3)
seeds = st.integers(0, 2**32)


def parts(s: Splits) -> list[np.ndarray]:
    return [s.search, s.train, s.validation, s.test]


def cut(y: np.ndarray, f: tuple[float, float, float], seed: int) -> Splits:
    rng = np.random.default_rng(seed)
    return split(y, search=f[0], validation=f[1], test=f[2], rng=rng)


@given(labels, fractions, seeds)
def test_parts_are_disjoint_cover_everything_and_repeat(y, f, seed) -> None:
    s = cut(y, f, seed)
    assert sorted(np.concatenate(parts(s))) == list(range(len(y)))
    assert all(p.dtype == np.int64 and np.all(np.diff(p) > 0) for p in parts(s))
    again = cut(y, f, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts(s), parts(again), strict=True))


@given(labels, fractions, seeds)
def test_sizes(y, f, seed) -> None:
    s = cut(y, f, seed)
    n = len(y)
    assert n == 0 or len(s.train)
    for part, fraction in ((s.validation, f[1]), (s.test, f[2])):
        assert fraction > 0 or not len(part)
        assert n < 4 or fraction == 0 or len(part)
    for part, fraction in zip((s.search, s.validation, s.test), f, strict=True):
        assert abs(len(part) - fraction * n) <= 1


@given(labels.filter(len), fractions, seeds)
def test_each_part_has_each_class_in_proportion(y, f, seed) -> None:
    for part in parts(cut(y, f, seed)):
        share = np.bincount(y, minlength=5) * len(part) / len(y)
        assert np.all(np.abs(np.bincount(y[part], minlength=5) - share) <= 2)


@pytest.mark.parametrize(
    "f", [(1.0, 0.0, 0.0), (-0.1, 0.0, 0.0), (0.5, 0.3, 0.2), (0.0, np.nan, 0.0)]
)
def test_bad_fractions(f) -> None:
    with pytest.raises(BadInput, match="fractions"):
        cut(np.zeros(10, np.int64), f, 0)


def test_different_seeds_split_differently() -> None:
    y = np.zeros(100, np.int64)
    assert not np.array_equal(cut(y, (0.0, 0.0, 0.5), 0).test, cut(y, (0.0, 0.0, 0.5), 1).test)


@given(labels, st.floats(0, 1), seeds)
def test_stratified_draws_within_one_of_each_share(y, fraction, seed) -> None:
    size = round(fraction * len(y))
    drawn = stratified(y, size, np.random.default_rng(seed))
    assert len(np.unique(drawn)) == len(drawn) == size
    if size:
        share = np.bincount(y) * size / len(y)
        assert np.all(np.abs(np.bincount(y[drawn], minlength=len(share)) - share) < 1)


def test_stratified_breaks_ties_at_random() -> None:
    rng = np.random.default_rng(0)
    seen = {int(i) for _ in range(100) for i in stratified(np.arange(5), 1, rng)}
    assert seen == set(range(5))


def test_stratified_refuses_more_than_there_is() -> None:
    with pytest.raises(BadInput):
        stratified(np.arange(3), 4, np.random.default_rng(0))


@given(
    labels.filter(len),
    st.lists(st.floats(-1e6, 1e300), min_size=5, max_size=5).map(np.array),
    st.integers(0, 60),
    seeds,
)
def test_resampled_frequencies_follow_the_histogram(y, histogram, size, seed) -> None:
    drawn = resample_to(y, histogram, size, np.random.default_rng(seed))
    assert drawn.shape == (size,)
    present = np.bincount(y, minlength=5) > 0
    weights = np.where(present, histogram.clip(0), 0)
    if not weights.any():
        weights = present.astype(float)
    share = weights / weights.max() / (weights / weights.max()).sum() * size
    assert np.all(np.abs(np.bincount(y[drawn], minlength=5) - share) < 1 + 1e-6)


def test_an_absent_class_gives_its_weight_to_the_others() -> None:
    y = np.array([0, 0, 2, 2])
    drawn = resample_to(y, np.array([1.0, 5.0, 3.0]), 40, np.random.default_rng(0))
    assert np.bincount(y[drawn]).tolist() == [10, 0, 30]


def test_every_member_of_a_class_can_be_drawn() -> None:
    drawn = resample_to(np.zeros(5, np.int64), np.ones(1), 200, np.random.default_rng(0))
    assert set(drawn) == set(range(5))


@pytest.mark.parametrize(
    ("y", "histogram", "size"),
    [([], [1.0], 1), ([0, 3], [1.0, 1.0], 2), ([0], [np.nan], 1), ([0], [1.0], -1)],
)
def test_resample_refuses_what_it_cannot_follow(y, histogram, size) -> None:
    y = np.array(y, dtype=np.int64)
    with pytest.raises(BadInput):
        resample_to(y, np.array(histogram), size, np.random.default_rng(0))
