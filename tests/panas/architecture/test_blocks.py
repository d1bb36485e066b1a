"""Custom blocks, from text to DP-SGD: one small protocol, and clear words if it fails."""

import copy
import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from custom_blocks import OWN, Dilated, Double, Squeeze
from sample_gradients import assert_equal, data
from torch import nn

from panas.architecture.blocks import (
    BlockType,
    ConvBlock,
    PoolBlock,
    by_text,
    check_block,
    shape_after,
)
from panas.architecture.cost import block_cost
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import build_bottom, initialise
from panas.architecture.space import SearchSpace
from panas.privacy.gradients.private import PrivateGradient
from panas.runtime.errors import BadInput

TEXT = "c8k3-se2-dil6-double-max-se4"
GENOME = Genome.parse(TEXT, OWN)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_text_and_json_name_the_same_genome_of_custom_blocks() -> None:
    assert str(GENOME) == TEXT
    assert Genome.from_json(json.loads(json.dumps(GENOME.to_json())), OWN) == GENOME
    assert pickle.loads(pickle.dumps(GENOME)) == GENOME
    assert hash(copy.deepcopy(GENOME)) == hash(GENOME)
    assert all(isinstance(block, BlockType) for block in OWN)
    assert not isinstance(ConvBlock(8, 3), BlockType)


def test_a_genome_needs_the_blocks_that_it_names_and_more_than_pools() -> None:
    for attempt in (
        lambda: Genome.parse(TEXT, OWN[:2]),
        lambda: Genome.parse(TEXT),
        lambda: Genome.from_json(GENOME.to_json(), OWN[:2]),
        lambda: Genome.from_json([{"type": "own", "text": "se2", "more": 1}], OWN),
    ):
        with pytest.raises(BadInput, match="blocks"):
            attempt()
    assert Genome((Squeeze(2),)).blocks == (Squeeze(2),)
    with pytest.raises(BadInput, match="convolution"):
        Genome((PoolBlock("max"),))


@dataclass(frozen=True)
class Odd:
    """A block that says of itself whatever a test wants."""

    text: str = "odd"
    channels: Any = 8
    side: Any = None
    module: nn.Module | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.text

    def build(self, in_channels: int) -> nn.Module:
        return nn.Identity() if self.module is None else self.module

    def out_channels(self, in_channels: int) -> int:
        return self.channels

    def out_side(self, side: int) -> int:
        return side if self.side is None else self.side


class Unequal(Odd):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Unhashable(Odd):
    __hash__ = None  # type: ignore[assignment]


class Mute(Odd):
    __str__ = object.__str__


@pytest.mark.parametrize(
    ("block", "words"),
    [
        *((Odd(text), "__str__") for text in ("", "a-b", "a b", "3x3", "a\nb")),
        *((Odd(text), "built-in") for text in ("c16k3", "c16k4", "max", "gated8")),
        (Mute(), "__str__"),
        (Unequal(), "frozen dataclass"),
        (Unhashable(), "frozen dataclass"),
        ("c16k3", "out_channels"),
        (nn.Identity, "methods"),
        (3, "methods"),
    ],
)
def test_what_is_no_block_is_refused_in_one_line(block: Any, words: str) -> None:
    with pytest.raises(BadInput, match="expected") as error:
        check_block(block)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    if isinstance(block, Odd) and isinstance(block, BlockType):  # or the type checker objects
        with pytest.raises(BadInput, match=words):
            Genome((ConvBlock(8, 3), block))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        *((Odd(channels=n), r"out_channels\(3\)") for n in (0, -2, 8.0, 70_000)),
        *((Odd(side=n), r"out_side\(9\)") for n in (0, 10, True)),
        (Odd(channels=8), "as it says"),  # the module keeps 3 channels
        (Odd(channels=3, side=4), "as it says"),
        (Odd(channels=3, module=nn.Conv2d(5, 3, 1)), "correct its build"),
    ],
)
def test_a_space_refuses_a_block_that_is_not_what_it_says(block: Odd, words: str) -> None:
    with pytest.raises(BadInput, match=words) as error:
        SearchSpace(shape=(3, 9, 9), widths=(3,), blocks=(block,))
    assert "\n" not in str(error.value)


def test_two_blocks_of_one_text_are_refused() -> None:
    for attempt in (
        lambda: by_text([Odd(), Odd(channels=4)]),
        lambda: SearchSpace(shape=(8, 9, 9), widths=(8,), blocks=(Odd(), Odd(side=4))),
    ):
        with pytest.raises(BadInput, match="different texts"):
            attempt()


def test_shapes_follow_the_blocks_and_the_network_is_what_they_say() -> None:
    shape = (3, 20, 16)
    shapes = [shape := shape_after(block, shape) for block in GENOME.blocks]
    assert shapes == [(8, 20, 16), (8, 20, 16), (6, 18, 14), (12, 9, 7), (12, 4, 3), (12, 4, 3)]
    with pytest.raises(BadInput, match="fewer pools"):
        shape_after(PoolBlock("max"), (3, 1, 8))
    bottom = build_bottom(GENOME, shape=(3, 20, 16), width=5, generator=generator())
    assert bottom(torch.randn(2, 3, 20, 16, generator=generator())).shape == (2, 5)
    for block, module in zip(GENOME.blocks, bottom.blocks, strict=True):
        if isinstance(block, Squeeze):
            assert type(module).__name__ == "Gate"


def test_weights_are_drawn_from_the_generator_but_for_what_a_build_gives() -> None:
    def weights(seed: int, elsewhere: int) -> dict[str, torch.Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(elsewhere)
            built = build_bottom(GENOME, shape=(3, 20, 16), width=5, generator=generator(seed))
        return built.state_dict()

    a, b, c = weights(3, 1), weights(3, 2), weights(4, 1)
    assert all(torch.equal(a[name], b[name]) for name in a)
    name = "blocks.3.scales"  # a parameter that no initialiser of ours knows
    assert not torch.equal(a[name], c[name])
    layer = nn.Conv2d(3, 3, 1)
    nn.init.constant_(layer.weight, 0.25)
    genome = Genome((Odd(channels=3, module=layer), ConvBlock(4, 3)))
    bottom = build_bottom(genome, shape=(3, 8, 8), width=5, generator=generator())
    assert (bottom.blocks[0].weight == 0.25).all()


def test_whatever_is_drawn_anew_is_drawn_from_the_generator_or_refused() -> None:
    a, b = nn.LayerNorm(4), nn.ConvTranspose2d(3, 4, 2)
    nn.init.zeros_(a.weight)
    initialise(nn.Sequential(a, b), generator())
    again = nn.ConvTranspose2d(3, 4, 2)
    initialise(nn.Sequential(nn.LayerNorm(4), again), generator())
    assert (a.weight == 1).all()
    assert torch.equal(b.weight, again.weight)
    with pytest.raises(BadInput, match="reset_parameters"):
        initialise(Double().build(3), generator())


def test_macs_are_counted_and_counting_builds_nothing_large() -> None:
    # By hand: two linear layers of 8 x 4; a 2 x 2 convolution that lands on 18 x 14.
    assert block_cost(Squeeze(2), (8, 20, 16), "group").macs == 64
    assert block_cost(Dilated(6), (8, 20, 16), "group").macs == 18 * 14 * 6 * 8 * 4
    assert block_cost(Double(), (6, 18, 14), "group").macs == 0  # products alone are not counted
    before = torch.random.get_rng_state()
    assert block_cost(Dilated(60_000), (50_000, 64, 64), "group").parameters > 10**10
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("text", [TEXT, "se2-c8k3", "double-double", "dil6-se4-max"])
def test_private_gradients_are_those_of_a_loop(text: str) -> None:
    shape = (3, 12, 10)
    genome = Genome.parse(text, OWN)
    bottom = build_bottom(genome, shape=shape, width=6, unit=True, generator=generator())
    model = nn.Sequential(bottom, Head(6, 3)).train()
    initialise(model[1], generator())
    assert_equal(model, *data(7, *shape))


def test_an_own_block_that_mixes_samples_is_refused_under_dp() -> None:
    class Mixes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(0, keepdim=True)

    genome = Genome((ConvBlock(8, 3), Odd(module=Mixes())))
    model = nn.Sequential(build_bottom(genome, shape=(3, 8, 8), width=6), Head(6, 3))
    x, y = torch.randn(4, 3, 8, 8, generator=generator()), torch.tensor([0, 1, 2, 0])
    with pytest.raises(BadInput, match="mix"):
        PrivateGradient(model).clipped_sum(x, y, 1.0)
