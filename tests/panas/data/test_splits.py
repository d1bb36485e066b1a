from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panas.data.samples import Samples
from panas.data.splits import Splits, hashed_split, resample_to, split, stratified
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
def test_parts_are_disjoint_and_cover_all_with_their_sizes_and_classes(y, f, seed) -> None:
    s, n = cut(y, f, seed), len(y)
    assert sorted(np.concatenate(parts(s))) == list(range(n))
    assert all(p.dtype == np.int64 and np.all(np.diff(p) > 0) for p in parts(s))
    again = cut(y, f, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts(s), parts(again), strict=True))
    assert n == 0 or len(s.train)
    for part, fraction in ((s.validation, f[1]), (s.test, f[2])):
        assert fraction > 0 or not len(part)
        assert n < 4 or fraction == 0 or len(part)
    for part, fraction in zip((s.search, s.validation, s.test), f, strict=True):
        assert abs(len(part) - fraction * n) <= 1
    for part in parts(s):
        share = np.bincount(y, minlength=5) * len(part) / max(n, 1)
        assert np.all(np.abs(np.bincount(y[part], minlength=5) - share) <= 2)


@pytest.mark.parametrize(
    "f", [(1.0, 0.0, 0.0), (-0.1, 0.0, 0.0), (0.5, 0.3, 0.2), (0.0, np.nan, 0.0)]
)
def test_bad_fractions_are_refused_and_seeds_split_differently(f) -> None:
    y = np.zeros(100, np.int64)
    with pytest.raises(BadInput, match="fractions"):
        cut(y, f, 0)
    assert not np.array_equal(cut(y, (0.0, 0.0, 0.5), 0).test, cut(y, (0.0, 0.0, 0.5), 1).test)


@given(labels, st.floats(0, 1), seeds)
def test_stratified_draws_within_one_of_each_share(y, fraction, seed) -> None:
    size = round(fraction * len(y))
    drawn = stratified(y, size, np.random.default_rng(seed))
    assert len(np.unique(drawn)) == len(drawn) == size
    if size:
        share = np.bincount(y) * size / len(y)
        assert np.all(np.abs(np.bincount(y[drawn], minlength=len(share)) - share) < 1)


def test_stratified_breaks_ties_at_random_and_refuses_more_than_there_is() -> None:
    rng = np.random.default_rng(0)
    seen = {int(i) for _ in range(100) for i in stratified(np.arange(5), 1, rng)}
    assert seen == set(range(5))
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


def test_an_absent_class_gives_its_weight_to_the_others_and_every_member_can_be_drawn() -> None:
    y = np.array([0, 0, 2, 2])
    drawn = resample_to(y, np.array([1.0, 5.0, 3.0]), 40, np.random.default_rng(0))
    assert np.bincount(y[drawn]).tolist() == [10, 0, 30]
    alike = resample_to(y, np.array([-1.0, 5.0, 0.0]), 40, np.random.default_rng(0))
    assert np.bincount(y[alike]).tolist() == [20, 0, 20]  # of no weight at all
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


def rows(values: list[int], groups: list[int] | None = None) -> Samples:
    x = torch.tensor(values, dtype=torch.float32).reshape(-1, 1, 1, 1)
    of = None if groups is None else torch.tensor(groups, dtype=torch.int64)
    return Samples(x, torch.tensor([v % 2 for v in values], dtype=torch.int64), 2, of)


def hashed(samples: Samples, key: bytes = b"k", shares=(0.1, 0.2, 0.2)) -> Splits:
    s, v, t = shares
    return hashed_split(samples, search=s, validation=v, test=t, key=key)


def values_of(samples: Samples, part: np.ndarray) -> list[int]:
    return sorted(samples.x.flatten()[part].int().tolist())


PARTS = ("search", "train", "validation", "test")


@given(st.lists(st.integers(0, 500), max_size=60), seeds)
def test_a_hashed_split_is_a_partition_whatever_the_order(values, seed) -> None:
    samples, key = rows(values), seed.to_bytes(8, "big")
    order = np.random.default_rng(seed).permutation(len(values))
    one, other = hashed(samples, key), hashed(samples.take(order), key)
    parts = [getattr(one, name) for name in PARTS]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(values)))
    for name in PARTS:
        shuffled = values_of(samples.take(order), getattr(other, name))
        assert values_of(samples, getattr(one, name)) == shuffled


@given(st.lists(st.integers(0, 99), max_size=30), st.integers(0, 99), seeds)
def test_one_more_sample_moves_nobody_else(values, more, seed) -> None:
    key = seed.to_bytes(8, "big")
    fewer, samples = rows(values), rows([*values, more])
    assert grown_by(fewer, samples, key) <= 1


def grown_by(fewer: Samples, samples: Samples, key: bytes) -> int:
    """How many are new in what is trained and searched on; nobody may be gone from there."""
    before, after, grown = hashed(fewer, key), hashed(samples, key), 0
    for name in ("search", "train"):
        large = values_of(samples, getattr(after, name))
        for value in values_of(fewer, getattr(before, name)):
            large.remove(value)  # fails if it is gone
        grown += len(large)
    return grown


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 9), seeds)
def test_one_more_group_moves_nobody_else(groups, more, seed) -> None:
    key = seed.to_bytes(8, "big")
    groups = [g for g in groups if g != more]
    samples = rows(list(range(len(groups) + 3)), [*groups, more, more, more])
    fewer = samples.take(range(len(groups)))
    before, after = hashed(fewer, key), hashed(samples, key)
    moved = 0
    for name in ("search", "train"):
        mine = {groups[i] for i in getattr(before, name)}
        theirs = {int(samples.groups[i]) for i in getattr(after, name)}
        assert mine <= theirs
        moved += len(theirs - mine)
    assert moved <= 1
    held = [{int(samples.groups[i]) for i in getattr(after, name)} for name in PARTS]
    assert sum(map(len, held)) == len(set.union(*held))  # no group in two parts


def test_a_hashed_split_has_the_shares_asked_for_and_follows_its_key() -> None:
    samples = rows(list(range(4000)))
    one, other = hashed(samples), hashed(samples, b"another")
    for name, share in zip(PARTS, (0.1, 0.5, 0.2, 0.2), strict=True):
        assert abs(len(getattr(one, name)) / 4000 - share) < 0.03
    assert not np.array_equal(one.train, other.train)
    assert np.array_equal(one.train, hashed(samples).train)
    twice = rows([*range(50), *range(50)])
    for part in (getattr(hashed(twice), name) for name in PARTS):
        assert sorted(part % 50) == sorted([*set(part % 50)] * 2)


def test_few_samples_still_validate_and_one_more_moves_no_hundred_others() -> None:
    for seed in range(50):
        cut = hashed(rows(list(range(6))), seed.to_bytes(8, "big"), (0.0, 0.1, 0.1))
        assert len(cut.validation)
        assert len(cut.test)
    assert len(hashed(rows([1, 2, 3]), shares=(0.0, 0.0, 0.0)).train) == 3
    part = torch.zeros(1000, dtype=torch.int64)
    samples = replace(rows(list(range(1000))), part=part, official=(1,))
    one = replace(samples, part=part.index_fill(0, torch.tensor([7]), 1))
    before, after = ({*hashed(s).train.tolist()} for s in (samples, one))
    assert len(before ^ after) <= 2


def test_parts_that_the_data_name_are_used_as_they_are() -> None:
    part = np.array([0] * 60 + [2] * 20 + [1] * 20)
    named = replace(rows(list(range(100))), part=torch.from_numpy(part), official=(1, 2))
    cut = hashed(named)
    assert cut.test.tolist() == list(range(60, 80))
    assert cut.validation.tolist() == list(range(80, 100))
    assert 0 < len(cut.search) < 20
    without = torch.from_numpy(np.where(part == 1, 0, part))
    with pytest.raises(BadInput, match="parts that are named"):
        hashed(replace(named, official=()))
    only_test = replace(named, part=without, official=(2,))
    cut = hashed(only_test)
    assert cut.test.tolist() == list(range(60, 80))
    assert 0 < len(cut.validation) < 40
    torn = replace(named, groups=torch.arange(100) // 50)
    with pytest.raises(BadInput, match="each group in one of the parts"):
        hashed(torn)
    assert hashed(replace(named, groups=torch.arange(100) // 20)).test.tolist() == [*range(60, 80)]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=40), st.sampled_from([1, 2]), seeds)
def test_the_first_sample_of_an_official_part_moves_nobody_else(values, part, seed) -> None:
    key = seed.to_bytes(8, "big")
    official = torch.tensor([0] * len(values) + [part])
    samples = replace(rows([*values, 500]), part=official, official=(1, 2))
    fewer = samples.take(range(len(values)))
    assert grown_by(fewer, samples, key) <= 1
