"""The mean of updates: against a naive one, and what it refuses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from baselines.common.averaging import Mean, check_arrays, number_in, weight_in
from panas.runtime.errors import BadInput

WEIGHTS = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=5)


@given(weights=WEIGHTS, seed=st.integers(0, 99))
def test_the_mean_is_the_naive_weighted_one(weights: list[float], seed: int):
    generator = torch.Generator().manual_seed(seed)
    sets = [{"w": torch.randn(3, 2, generator=generator)} for _ in weights]
    mean = Mean()
    for arrays, weight in zip(sets, weights, strict=True):
        mean.add(arrays, weight)
    for i in range(3):
        for j in range(2):
            total = sum(w * float(s["w"][i, j]) for w, s in zip(weights, sets, strict=True))
            assert mean.result()["w"][i, j] == pytest.approx(total / sum(weights), abs=1e-5)


def test_whole_numbers_stay_whole_and_equal_ones_stay_equal():
    mean = Mean()
    for weight in (0.1, 0.3):
        mean.add({"steps": torch.tensor(3), "w": torch.ones(1)}, weight)
    assert torch.equal(mean.result()["steps"], torch.tensor(3))
    assert mean.result()["w"].dtype == torch.float32


def test_the_mean_of_nothing_is_empty():
    assert Mean().result() == Mean({"w": torch.zeros(1)}).result() == {}


LIKE = {"w": torch.zeros(3, 2)}


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"v": torch.zeros(3, 2)},
        {"w": torch.zeros(3, 2), "v": torch.zeros(1)},
        {"w": torch.zeros(1, 2)},  # torch would stretch it
        {"w": torch.tensor(0.0)},
        {"w": torch.zeros(3, 2, dtype=torch.int64)},
    ],
    ids=["none", "other", "more", "stretched", "scalar", "type"],
)
def test_an_update_of_another_form_is_refused(arrays: dict[str, torch.Tensor]):
    with pytest.raises(BadInput, match=r"expected .* update"):
        check_arrays(arrays, LIKE)
    first, given_form = Mean(), Mean(LIKE)
    first.add(LIKE, 1.0)
    for mean in (first, given_form):
        with pytest.raises(BadInput):
            mean.add(arrays, 1.0)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_is_finite_and_above_zero(weight: float):
    with pytest.raises(BadInput, match="weight above 0"):
        Mean().add(LIKE, weight)


@pytest.mark.parametrize("value", [None, "3", True, [1], math.nan, math.inf, 10**400])
def test_a_number_of_a_record_is_one(value: object):
    assert number_in({"n": 3}, "n") == 3.0
    with pytest.raises(BadInput, match="finite number 'n'"):
        number_in({"n": value}, "n")


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, True, "3", None])
def test_a_weight_that_is_not_above_0_is_refused(value: object):
    with pytest.raises(BadInput, match="in an update"):
        weight_in({"samples": value}, "samples")
    assert weight_in({"samples": 3}, "samples") == 3.0
