"""The network of a genome: shapes, its formula, independence of samples, and what it costs."""

import math

import numpy as np
import pytest
import torch
from custom_blocks import OWN
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.blocks import ConvBlock
from panas.architecture.cost import cost, cost_table
from panas.architecture.genome import Genome
from panas.architecture.head import ETF_SCALE, Head, build_head, simplex_etf
from panas.architecture.network import NetworkSpec, Norm, SeparableBlock, build_bottom, initialise
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput

GENOME = Genome.parse("c8k3-max-c16k5-avg")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=generator(seed))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(2, 20), st.integers(2, 20)),
    norm=st.sampled_from(["group", "batch"]),
)
def test_every_genome_of_a_space_builds_and_keeps_the_width(
    seed: int, shape: tuple[int, int, int], norm: Norm
) -> None:
    space = SearchSpace(shape=shape, min_blocks=1, max_blocks=6, widths=(4, 12))
    genome = random_genome(space, np.random.default_rng(seed))
    bottom = build_bottom(genome, shape=shape, width=7, norm=norm).eval()
    z = bottom(images(2, shape))
    assert z.shape == (2, 7)
    assert torch.isfinite(z).all()
    assert (z >= 0).all()


@pytest.mark.parametrize("outputs", [4, 6])
def test_a_block_is_the_papers_formula(outputs: int) -> None:
    block = SeparableBlock(4, ConvBlock(outputs, 3), "batch").eval()
    x = images(2, (4, 5, 5))
    depth = F.conv2d(x, block.depthwise.weight, padding=1, groups=4)
    point = torch.einsum("nchw,kc->nkhw", depth, block.pointwise.weight[:, :, 0, 0])
    y = F.relu(point / (1 + 1e-5) ** 0.5)
    if outputs == 4:
        short = x
        assert isinstance(block.shortcut, nn.Identity)
    else:
        assert isinstance(block.shortcut, nn.Conv2d)
        short = torch.einsum("nchw,kc->nkhw", x, block.shortcut.weight[:, :, 0, 0])
    torch.testing.assert_close(block(x), y + short, atol=1e-5, rtol=1e-5)


def test_the_adaptation_layer_pools_globally() -> None:
    bottom = build_bottom(GENOME, shape=(1, 16, 16), width=6).eval()
    maps = bottom.blocks(images(3, (1, 16, 16)))
    z = F.relu(maps.flatten(2).mean(2) @ bottom.adapt.weight.T + bottom.adapt.bias)
    torch.testing.assert_close(bottom(images(3, (1, 16, 16))), z)


def test_group_norm_keeps_samples_apart_and_batch_norm_does_not() -> None:
    def depends_on_neighbours(norm: Norm) -> bool:
        bottom = build_bottom(GENOME, shape=(1, 8, 8), width=6, norm=norm, generator=generator())
        x = images(4, (1, 8, 8)).requires_grad_()
        (gradient,) = torch.autograd.grad(bottom.train()(x)[0].sum(), x)
        return bool(gradient[1:].abs().max() > 0)

    assert not depends_on_neighbours("group")
    assert depends_on_neighbours("batch")  # the planted bug: why DP forbids it


def test_unit_representations_have_norm_at_most_one_and_are_the_plain_ones_scaled() -> None:
    bottom = build_bottom(GENOME, shape=(1, 8, 8), width=6, unit=True, generator=generator())
    norms = bottom(100 * images(64, (1, 8, 8))).norm(dim=1)
    assert norms.max() <= 1 + 1e-6
    nn.init.zeros_(bottom.adapt.weight)
    nn.init.constant_(bottom.adapt.bias, -1)
    assert torch.equal(bottom(images(2, (1, 8, 8))), torch.zeros(2, 6))
    plain = build_bottom(GENOME, shape=(1, 8, 8), width=6, generator=generator())
    nn.init.constant_(plain.adapt.bias, 0.5)  # where a unit bottom starts
    unit = build_bottom(GENOME, shape=(1, 8, 8), width=6, unit=True, generator=generator())
    x = images(5, (1, 8, 8))
    z = plain(x)
    torch.testing.assert_close(unit(x), z / z.norm(dim=1, keepdim=True).clamp_min(1e-12))


def test_initialise_follows_torchs_distribution() -> None:
    layer = nn.Linear(25, 400)
    initialise(layer, generator())
    for p in (layer.weight, layer.bias):
        assert p.abs().max() <= 1 / 5
        assert abs(p.std().item() - 1 / 5 / 3**0.5) < 0.01


@given(classes=st.integers(2, 12), share=st.integers(1, 5), spare=st.integers(0, 3))
def test_the_simplex_has_equal_norms_and_equal_angles(classes: int, share: int, spare: int) -> None:
    W = simplex_etf(classes * share + min(spare, classes - 1), classes)
    gram = (W @ W.T) / ETF_SCALE**2
    expected = (1 + 1 / (classes - 1)) * torch.eye(classes) - 1 / (classes - 1)
    torch.testing.assert_close(gram, expected, atol=1e-5, rtol=0)


def test_the_simplex_head_has_non_negative_ideals_and_a_random_one_is_reproducible() -> None:
    head = build_head(12, 4, init="etf", generator=generator())
    ideal = torch.zeros(4, 12)
    for c in range(4):
        ideal[c, 3 * c : 3 * c + 3] = 3**-0.5
    assert head(ideal).argmax(1).tolist() == [0, 1, 2, 3]
    assert torch.equal(head.linear.bias, torch.zeros(4))
    a, b = (build_head(6, 3, init="random", generator=generator()) for _ in range(2))
    assert torch.equal(a.linear.weight, b.linear.weight)


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


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.sampled_from([1, 3, 8]), st.integers(2, 16), st.integers(2, 16)),
    width=st.integers(1, 12),
    classes=st.integers(1, 6),
    norm=st.sampled_from(["group", "batch"]),
    own=st.booleans(),
)
def test_costs_and_shapes_are_those_of_the_modules(
    seed: int, shape: tuple[int, int, int], width: int, classes: int, norm: Norm, own: bool
) -> None:
    blocks = OWN if own and min(shape[1:]) >= 8 else ()
    space = SearchSpace(shape=shape, min_blocks=1, max_blocks=6, widths=(4, 8, 12), blocks=blocks)
    genome = random_genome(space, np.random.default_rng(seed))
    spec = NetworkSpec(shape=shape, width=width, classes=classes, norm=norm)
    rows, total = cost_table(genome, spec), cost(genome, spec)
    for name in ("parameters", "macs", "bytes"):
        assert sum(getattr(row, name) for row in rows) == getattr(total, name)
    assert [row.name for row in rows] == [*map(str, genome.blocks), "adapt", "head"]
    bottom = build_bottom(genome, shape=shape, width=width, norm=norm).eval()
    head, x = Head(width, classes), torch.zeros(1, *shape)
    for module, row in zip((*bottom.blocks, bottom.adapt, head), rows, strict=True):
        assert row.parameters == sum(p.numel() for p in module.parameters())
        assert row.bytes == sum(t.numel() * t.element_size() for t in module.state_dict().values())
    for module, row in zip(bottom.blocks, rows, strict=False):
        x = module(x)
        assert row.out_shape == tuple(x.shape[1:])
    assert [row.out_shape for row in rows[-2:]] == [(width,), (classes,)]
    if not blocks:
        assert total.macs == counted_macs(nn.Sequential(bottom, head), shape)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 1"):
        NetworkSpec(shape=(1, 8, 8), width=0, classes=2)
    with pytest.raises(BadInput, match="fewer pools"):
        cost(Genome.parse("c4k3-max-max"), NetworkSpec(shape=(1, 8, 2), width=3, classes=2))
    with pytest.raises(BadInput, match="wide"):
        build_head(3, 4, init="etf", generator=generator())
    with pytest.raises(BadInput, match="fewer pools"):
        build_bottom(Genome.parse("c8k3-max-max"), shape=(1, 8, 2), width=4)
