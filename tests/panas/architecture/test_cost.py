"""The closed forms against the real module: its parameters, its state and hooks that count."""

import math

import numpy as np
import pytest
import torch
from custom_blocks import OWN
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from panas.architecture.cost import cost, cost_table
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import NetworkSpec, Norm, build_bottom
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput


def counted_macs(model: nn.Module, shape: tuple[int, int, int]) -> int:
    """Naive oracle: for every output of a layer, the products that make it up."""
    total = 0

    def count(module: nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        total += output.numel() * math.prod(weight.shape[1:])

    hooks = [
        module.register_forward_hook(count)
        for module in model.modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    with torch.no_grad():
        model.eval()(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    return total


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.sampled_from([1, 3, 8]), st.integers(2, 13), st.integers(2, 13)),
    width=st.integers(1, 12),
    classes=st.integers(1, 6),
    norm=st.sampled_from(["group", "batch"]),
)
def test_closed_forms_match_the_module(
    seed: int, shape: tuple[int, int, int], width: int, classes: int, norm: Norm
) -> None:
    space = SearchSpace(shape=shape, min_blocks=1, max_blocks=6, widths=(4, 8, 12))
    genome = random_genome(space, np.random.default_rng(seed))
    bottom = build_bottom(genome, shape=shape, width=width, norm=norm)
    model = nn.Sequential(bottom, Head(width, classes))
    found = cost(genome, NetworkSpec(shape=shape, width=width, classes=classes, norm=norm))
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.bytes == sum(t.numel() * t.element_size() for t in model.state_dict().values())
    assert found.macs == counted_macs(model, shape)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    shape=st.sampled_from([(1, 8, 8), (3, 13, 9), (2, 16, 16)]),
    norm=st.sampled_from(["group", "batch"]),
    own=st.booleans(),
)
def test_the_table_adds_up_and_has_the_shapes_of_the_network(
    seed: int, shape: tuple[int, int, int], norm: Norm, own: bool
) -> None:
    space = SearchSpace(
        shape=shape, min_blocks=1, max_blocks=5, widths=(4, 12), blocks=OWN if own else ()
    )
    genome = random_genome(space, np.random.default_rng(seed))
    spec = NetworkSpec(shape=shape, width=5, classes=3, norm=norm)
    rows, total = cost_table(genome, spec), cost(genome, spec)
    for name in ("parameters", "macs", "bytes"):
        assert sum(getattr(row, name) for row in rows) == getattr(total, name)
    assert [row.name for row in rows] == [*map(str, genome.blocks), "adapt", "head"]
    bottom = build_bottom(genome, shape=shape, width=5, norm=norm).eval()
    x = torch.zeros(1, *shape)
    for module, row in zip(bottom.blocks, rows, strict=False):
        x = module(x)
        assert row.out_shape == tuple(x.shape[1:])
        assert row.parameters == sum(p.numel() for p in module.parameters())
        assert row.bytes == sum(t.numel() * t.element_size() for t in module.state_dict().values())
    assert [row.out_shape for row in rows[-2:]] == [(5,), (3,)]


def test_by_hand() -> None:
    # 16 x 16 maps of 2 channels: 2*9 + 2*4 + 2*4 weights; then 8 x 8 maps of 4: 4*25 + 4*4.
    found = cost(Genome.parse("c4k3-max-c4k5"), NetworkSpec(shape=(2, 16, 16), width=3, classes=2))
    assert found.macs == 256 * 34 + 64 * 116 + 4 * 3 + 3 * 2
    assert found.parameters == 34 + 8 + 116 + 8 + 15 + 8
    assert found.bytes == 4 * found.parameters


def test_too_many_pools_are_refused() -> None:
    with pytest.raises(BadInput, match="fewer pools"):
        cost(Genome.parse("c4k3-max-max"), NetworkSpec(shape=(1, 8, 2), width=3, classes=2))


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 1"):
        NetworkSpec(shape=(1, 8, 8), width=0, classes=2)
