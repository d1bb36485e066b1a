"""Fusion against naive weighted means, and the degradation ratio by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.searches.decnas import Candidate, degradation, fused_accuracy, ranked
from panas.runtime.errors import BadInput


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=6))
def test_fused_accuracy_is_the_mean_of_accuracies_weighted_by_samples(sites):
    weighted, total = 0.0, 0
    for right, wrong in sites:
        weighted += (right + wrong) * (right / (right + wrong))
        total += right + wrong
    counts = [(float(right), float(wrong)) for right, wrong in sites]
    assert fused_accuracy(counts) == pytest.approx(weighted / total)


def test_noised_counts_give_an_accuracy_all_the_same():
    assert fused_accuracy([(-3.0, 1.0), (1.0, 0.5)]) == 0
    assert fused_accuracy([(9.0, -2.0)]) == 1
    assert fused_accuracy([]) is None


def candidate(id: str, resource: float, accuracy: float | None) -> Candidate:
    return Candidate(id=id, widths=(2,), resource=float(resource), accuracy=accuracy)


def test_degradation_is_accuracy_lost_over_resource_saved():
    # 80 % before, 74 % after, 1,000 MACs of which 700 are left.
    assert degradation(0.8, 0.74, (1000.0, 700.0)) == pytest.approx(0.0002)
    with pytest.raises(BadInput, match="saves some"):
        degradation(0.8, 0.74, (1000.0, 1000.0))


def test_the_least_degradation_is_first_not_the_best_accuracy():
    little = candidate("little", 900, 0.78)  # .02 / 100
    much = candidate("much", 500, 0.75)  # .05 / 500
    unknown = candidate("unknown", 100, None)
    candidates = ranked([unknown, little, much], 0.8, 1000.0)
    assert [c.id for c in candidates] == ["much", "little", "unknown"]
    # Where both gain, what is gained a resource saved counts.
    assert [c.id for c in ranked([much, little], 0.7, 1000.0)] == ["little", "much"]
    # Nobody reported on the network before: the best candidate has lost nothing.
    assert [c.id for c in ranked([much, little], None, 1000.0)] == ["little", "much"]


def test_a_candidate_is_kept_as_json():
    for c in (candidate("a", 1.5, None), candidate("b", 2, 0.25)):
        assert Candidate.from_json(c.to_json()) == c
