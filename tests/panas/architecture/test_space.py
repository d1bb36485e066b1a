"""The search space: its bounds, and what it refuses."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from random_spaces import patient, seeds, spaces

from panas.architecture.blocks import ConvBlock, PoolBlock
from panas.architecture.genome import Genome
from panas.architecture.network import build_bottom
from panas.architecture.operators import mutate, random_genome
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput


@patient
@given(spaces(), seeds)
def test_a_pickled_space_is_the_same_space(space: SearchSpace, seed: int) -> None:
    random_genome(space, np.random.default_rng(seed))
    again = pickle.loads(pickle.dumps(space))
    assert again == space
    assert hash(again) == hash(space)
    draws = [random_genome(s, np.random.default_rng(seed)) for s in (space, again)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    ("side", "most"), [(1, 0), (3, 0), (4, 1), (7, 1), (8, 2), (28, 3), (32, 4), (33, 4)]
)
def test_pools_stop_when_the_map_is_small(side: int, most: int) -> None:
    space = SearchSpace(shape=(3, side, 64), min_blocks=1)
    assert space.max_pools == most
    fits = Genome((ConvBlock(16, 3), *[PoolBlock("max")] * most))
    assert space.allows(fits)
    build_bottom(fits, shape=space.shape, width=4)
    assert not space.allows(Genome((*fits.blocks, PoolBlock("avg"))))


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": (0, 8, 8)},
        {"min_blocks": 0},
        {"min_blocks": 5, "max_blocks": 4},
        {"widths": ()},
        {"widths": (16, 16)},
        {"widths": (0,)},
        {"kernels": ()},
        {"kernels": (4,)},
        {"pools": ("max", "max")},
    ],
)
def test_bad_spaces_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        SearchSpace(**{"shape": (3, 32, 32), **fields})


@pytest.mark.parametrize(
    "text", ["c16k3", "c16k3-c16k3-c17k3", "c16k3-c16k3-c16k7", "c16k3-max-max-max"]
)
def test_foreign_genomes_are_refused(text: str) -> None:
    space = SearchSpace(shape=(3, 8, 8))
    genome = Genome.parse(text)
    rng = np.random.default_rng(0)
    assert not space.allows(genome)
    for operation in (space.check, lambda g: mutate(space, g, rng)):
        with pytest.raises(BadInput, match="search space"):
            operation(genome)
