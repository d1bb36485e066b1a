"""The genome: its text, its JSON, and what cannot be built."""

import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panas.architecture.blocks import LARGEST, Block, ConvBlock, PoolBlock
from panas.architecture.genome import Genome
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


def test_text_is_the_documented_one() -> None:
    blocks: tuple[Block, ...] = (ConvBlock(16, 3), PoolBlock("max"), ConvBlock(32, 5))
    assert str(Genome(blocks)) == "c16k3-max-c32k5"


def test_a_genome_is_frozen() -> None:
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
        None,
        "c16k3",
        {},
        [],
        [CONV, 3],
        [CONV | {"kernel_size": 2}],
        [CONV | {"out_channels": True}],
        [CONV | {"out_channels": 16.0}],
        [CONV | {"stride": 2}],
        [CONV, {"type": "pool", "kind": "sum"}],
        [CONV, {"type": "pool", "kind": "max", "size": 2}],
        [{"type": "pool", "kind": "max"}],
    ],
)
def test_bad_json_is_refused(data: object) -> None:
    with pytest.raises(BadInput, match="expected"):
        Genome.from_json(data)


@pytest.mark.parametrize(("channels", "kernel"), [(0, 3), (-1, 3), (16, 0), (16, 2), (16, -3)])
def test_bad_convolutions_are_refused(channels: int, kernel: int) -> None:
    with pytest.raises(BadInput):
        ConvBlock(channels, kernel)
