"""Partitions of sites into groups: balanced, and nearer in labels than random ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.searches.decnas import (
    BALANCE,
    SiteFacts,
    frequencies,
    partition,
)


def imbalance(sites: list[SiteFacts], groups: list[list[int]]) -> float:
    sizes = [sum(sites[i].samples for i in group) for group in groups]
    return max(sizes) / min(sizes)


def label_distance(sites: list[SiteFacts], groups: list[list[int]]) -> float:
    counts = np.array([s.histogram for s in sites])
    whole = counts.sum(0) / counts.sum()
    shares = [counts[group].sum(0) / counts[group].sum() for group in groups]
    return float(np.mean([np.abs(share - whole).sum() for share in shares]))


def skewed(seed: int, sites: int = 18) -> list[SiteFacts]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 60, sites)
    return [SiteFacts(int(n), tuple(n * rng.dirichlet([0.3] * 6))) for n in sizes]


def at_random(seed: int, sites: int, groups: int) -> list[list[int]]:
    order = np.random.default_rng(100 + seed).permutation(sites)
    return [[int(i) for i in part] for part in np.array_split(order, groups)]


@pytest.mark.slow
@pytest.mark.parametrize("groups", [2, 4])
def test_groups_keep_the_balance_and_are_nearer_in_labels_than_random_ones(groups: int):
    gains = []
    for seed in range(4):
        sites = skewed(seed)
        result = partition(sites, groups)
        assert sorted(i for group in result for i in group) == list(range(len(sites)))
        assert imbalance(sites, result) <= BALANCE
        random = at_random(seed, len(sites), groups)
        gains.append(label_distance(sites, random) - label_distance(sites, result))
    # Paired over seeds: better at every one, and by much on average.
    assert min(gains) > 0
    assert np.mean(gains) > 0.1


def test_many_sites_are_balanced_by_the_greedy_rule_alone():
    sites = skewed(0, 150)
    result = partition(sites, 7)
    assert imbalance(sites, result) <= BALANCE
    assert label_distance(sites, result) < label_distance(sites, at_random(0, 150, 7)) - 0.1


def test_two_of_each_kind_are_paired_with_the_other_kind():
    kinds = [SiteFacts(10, (10.0, 0.0))] * 2 + [SiteFacts(10, (0.0, 10.0))] * 2
    result = partition(kinds, 2)
    assert {frozenset(i // 2 for i in group) for group in result} == {frozenset({0, 1})}
    assert label_distance(kinds, result) == pytest.approx(0)


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=9),
    st.integers(1, 12),
)
def test_no_group_is_empty_and_no_site_is_lost(sizes: list[int], groups: int):
    sites = [SiteFacts(n, (float(i), 1.0)) for i, n in enumerate(sizes)]
    result = partition(sites, groups)
    assert len(result) == min(groups, len(sites))
    assert all(result)
    assert sorted(i for group in result for i in group) == list(range(len(sites)))


def test_noised_counts_may_be_negative():
    assert frequencies((-3.0, 1.0, 3.0)).tolist() == [0, 0.25, 0.75]
    assert frequencies((-3.0, -1.0)).tolist() == [0.5, 0.5]
