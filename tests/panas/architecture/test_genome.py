"""The genome, its text and its JSON; the search space, its bounds; and what cannot be."""

import json
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_samples import one_at_a_time
from random_spaces import patient, seeds, spaces

from panas.architecture.blocks import LARGEST, Block, ConvBlock, PoolBlock
from panas.architecture.genome import Genome
from panas.architecture.network import build_bottom
from panas.architecture.operators import mutate, random_genome
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput

convs = st.builds(
    ConvBlock, st.integers(1, LARGEST), st.integers(0, LARGEST // 2 - 1).map(lambda k: 2 * k + 1)
)
pools = st.sampled_from([PoolBlock("avg"), PoolBlock("max")])
genomes = (
    st.tuples(st.lists(convs | pools, max_size=6), convs, st.lists(convs | pools, max_size=6))
    .map(lambda parts: (*parts[0], parts[1], *parts[2]))
    .map(Genome)
)


@given(genomes)
def test_text_and_json_name_the_same_genome(genome: Genome) -> None:
    assert Genome.parse(str(genome)) == genome
    assert Genome.from_json(json.loads(json.dumps(genome.to_json()))) == genome
    assert hash(Genome.parse(str(genome))) == hash(genome)


@given(genomes, genomes)
def test_different_genomes_have_different_texts(a: Genome, b: Genome) -> None:
    assert (a == b) == (str(a) == str(b))


def test_text_is_the_documented_one_and_a_genome_is_frozen_and_of_odd_kernels() -> None:
    blocks: tuple[Block, ...] = (ConvBlock(16, 3), PoolBlock("max"), ConvBlock(32, 5))
    assert str(Genome(blocks)) == "c16k3-max-c32k5"
    for channels, kernel in ((0, 3), (-1, 3), (16, 0), (16, 2), (16, -3)):
        with pytest.raises(BadInput):
            ConvBlock(channels, kernel)
    genome = Genome.parse("c16k3")
    with pytest.raises(FrozenInstanceError):
        genome.blocks = ()  # type: ignore[misc]


@pytest.mark.slow
@given(st.text(max_size=20) | st.text(alphabet="c0123456789k-avgmx", max_size=20))
def test_any_text_parses_back_to_itself_or_is_refused_in_one_line(text: str) -> None:
    try:
        genome = Genome.parse(text)
    except BadInput as error:
        message = str(error)
    else:
        message = "fine"
        assert str(genome) == text
    assert "\n" not in message


@pytest.mark.parametrize(
    "text",
    ["", "max", "avg-max", "c16k4", "c0k3", "c16k3-", "c016k3", "c٣k3", "c65537k3", " c16k3"],
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected"):
        Genome.parse(text)


CONV = {"type": "conv", "out_channels": 16, "kernel_size": 3}


@pytest.mark.parametrize(
    "data",
    [
        *(None, "c16k3", {}, [], [CONV, 3], [{"type": "pool", "kind": "max"}]),
        *(
            [CONV | wrong]
            for wrong in one_at_a_time(kernel_size=[2], out_channels=(True, 16.0), stride=[2])
        ),
        *(
            [CONV, {"type": "pool"} | wrong]
            for wrong in ({"kind": "sum"}, {"kind": "max", "size": 2})
        ),
    ],
)
def test_bad_json_is_refused(data: object) -> None:
    with pytest.raises(BadInput, match="expected"):
        Genome.from_json(data)


@pytest.mark.slow
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
        {"min_blocks": 5, "max_blocks": 4},
        *one_at_a_time(shape=[(0, 8, 8)], min_blocks=[0], widths=((), (16, 16), (0,))),
        *one_at_a_time(kernels=((), (4,)), pools=[("max", "max")]),
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
