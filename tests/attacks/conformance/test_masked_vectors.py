"""A masked vector is uniform; one that is not can be read."""

import numpy as np
import pytest

from attacks.conformance.finding import ERROR, alarms
from attacks.conformance.masked import findings_between_masked, findings_of_masked

RNG = np.random.default_rng(3)
EVERY = 2**64


def uniform(k: int = 800) -> np.ndarray:
    return RNG.integers(0, EVERY, k, dtype=np.uint64)


def steps(k: int = 800) -> np.ndarray:
    """What a mask hides: numbers of a release with its noise, in steps of the grid."""
    return (RNG.normal(0, 2.0**26, k) + 2.0**24).astype(np.int64).view(np.uint64)


def test_uniform_vectors_raise_no_alarm() -> None:
    found = [alarms(findings_of_masked(uniform()), ERROR / 20) for _ in range(50)]
    assert not any(found)
    assert not alarms(findings_between_masked({"a": uniform(), "b": uniform()}), ERROR / 2)


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(steps(), id="no mask"),
        pytest.param(uniform() >> np.uint64(1), id="a bit short"),
        pytest.param(uniform() & np.uint64(EVERY - 8), id="low bits clear"),
        pytest.param(np.tile(uniform(100), 8), id="a mask that repeats"),
        pytest.param(np.repeat(uniform(400), 2) + steps(), id="a mask for two"),
        pytest.param((uniform() >> np.uint64(32)) + steps(), id="masks of 32 bits"),
    ],
)
def test_what_is_not_uniform_is_noticed(vector: np.ndarray) -> None:
    assert alarms(findings_of_masked(vector), ERROR / 20)


@pytest.mark.parametrize("sign", [1, -1])
def test_sites_with_one_mask_are_noticed(sign: int) -> None:
    mask, other = uniform(), uniform()
    shared = mask if sign > 0 else (0 - mask)
    vectors = {"a": mask + steps(), "b": other, "c": shared + steps()}
    (first, *_) = alarms(findings_between_masked(vectors), ERROR / 2)
    assert first.of == ("a", "c")
