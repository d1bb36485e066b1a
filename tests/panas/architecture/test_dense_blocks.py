"""Blocks for rows of a table: from text to cost, DP-SGD, latency and a search's moves."""

import json
import pickle
from itertools import product
from typing import get_args

import numpy as np
import pytest
import torch
from sample_gradients import assert_equal, data
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.blocks import DenseBlock, DenseKind, shape_after
from panas.architecture.cost import block_cost, cost
from panas.architecture.dense import Dense, Gated, Residual
from panas.architecture.genome import Genome
from panas.architecture.latency import measure, steps
from panas.architecture.limits import Constraints, Limits
from panas.architecture.network import (
    NetworkSpec,
    Norm,
    SeparableBlock,
    build_block,
    build_bottom,
    weights_of,
)
from panas.architecture.operators import crossover, mutate, random_genome
from panas.architecture.space import SearchSpace, space_of
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.evolution.surrogate import capacity, features
from panas.privacy.gradients.apart import strangers
from panas.privacy.gradients.private import PrivateGradient
from panas.runtime.errors import BadInput

KINDS = get_args(DenseKind)
SHAPE = (1, 4, 4)
TEXT = "gated8-dense6-residual6"
GENOME = Genome.parse(TEXT)
SPACE = space_of(SHAPE, rows=True, max_blocks=4, widths=(4, 8))


def bottom(text: str, norm: Norm = "group", seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return build_bottom(Genome.parse(text), shape=SHAPE, width=5, norm=norm, generator=generator)


def test_text_and_json_name_the_same_genome() -> None:
    assert str(GENOME) == TEXT
    assert Genome.from_json(json.loads(json.dumps(GENOME.to_json()))) == GENOME
    assert pickle.loads(pickle.dumps(GENOME)) == GENOME
    for wrong in ("dense0", "dense", "gated08", "residual1000000", "dense-4"):
        with pytest.raises(BadInput):
            Genome.parse(wrong)
    with pytest.raises(BadInput):
        Genome.from_json([{"type": "dense", "kind": "sparse", "out_channels": 4}])
    for kind, k in (("sparse", 4), ("dense", 0), ("dense", True)):
        with pytest.raises(BadInput):
            DenseBlock(kind, k)  # type: ignore[arg-type]


def naive(module: Dense | Gated | Residual, x: Tensor) -> Tensor:
    """The formulas of the table, on rows; the norm by its own definition."""
    row = x.flatten(1)
    u, norm = module.linear(row), module.norm
    assert isinstance(norm, nn.GroupNorm)
    mean, variance = u.mean(1, keepdim=True), u.var(1, correction=0, keepdim=True)
    u = (u - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
    if isinstance(module, Dense):
        return F.relu(u)
    if isinstance(module, Gated):
        return u * torch.sigmoid(module.gate(row))
    assert isinstance(module, Residual)
    return module.second(F.relu(u)) + module.shortcut(row)


@pytest.mark.parametrize(("kind", "k"), product(KINDS, (4, 8, 16)))
def test_a_block_gives_what_its_formula_says(kind: DenseKind, k: int) -> None:
    block, x = DenseBlock(kind, k), torch.randn(7, *SHAPE)
    module = build_block(block, SHAPE, "group")
    assert isinstance(module, Dense | Gated | Residual)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_()
    assert module(x).shape == (7, *shape_after(block, SHAPE))
    torch.testing.assert_close(module(x).flatten(1), naive(module, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_another_scale_are_told_apart(kind: DenseKind) -> None:
    """A norm without a bias before it would give a row and twice that row the same features."""
    module, x = build_block(DenseBlock(kind, 8), SHAPE, "group"), torch.randn(3, *SHAPE)
    assert not torch.allclose(module(x), module(2 * x), atol=1e-3)


@pytest.mark.parametrize(("kind", "norm", "k"), product(KINDS, ("group", "batch"), (8, 16)))
def test_cost_counts_what_is_built(kind: DenseKind, norm: Norm, k: int) -> None:
    block = DenseBlock(kind, k)
    module, found = build_block(block, SHAPE, norm), block_cost(block, SHAPE, norm)
    assert found.parameters == sum(p.numel() for p in module.parameters())
    state = module.state_dict().values()
    assert found.bytes == sum(t.numel() * t.element_size() for t in state)
    assert found.macs == sum(m.weight.numel() for m in module.modules() if type(m) is nn.Linear)
    spec = NetworkSpec(shape=SHAPE, classes=3, width=5)
    assert cost(Genome((block,)), spec).parameters > found.parameters


@pytest.mark.parametrize("text", [*(f"{kind}8" for kind in KINDS), TEXT])
def test_samples_have_their_own_gradients_by_rules(text: str) -> None:
    model = nn.Sequential(bottom(text), nn.Linear(5, 3))
    assert not list(strangers(model))
    x, y = data(6, *SHAPE)
    assert_equal(model, x, y)
    gradient = PrivateGradient(model)
    total = gradient.clipped_sum(x, y, 1.0)
    apart = [gradient.clipped_sum(x[i : i + 1], y[i : i + 1], 1.0) for i in range(len(x))]
    for whole, *each in zip(total, *apart, strict=True):
        torch.testing.assert_close(whole, sum(each, torch.zeros(())))


def test_the_space_of_rows_has_dense_blocks_and_that_of_pictures_has_none() -> None:
    assert {type(b) for b in SPACE.choices} == {DenseBlock}
    assert len(SPACE.choices) == len(KINDS) * 2
    pictures = space_of(SHAPE, rows=False, max_blocks=4, widths=(4, 8))
    assert pictures == SearchSpace(shape=SHAPE, max_blocks=4, widths=(4, 8))
    assert not any(isinstance(b, DenseBlock) for b in pictures.choices)
    assert not pictures.allows(Genome.parse("dense4-dense4-dense4"))
    assert not SPACE.allows(Genome.parse("c4k3-c4k3-c4k3"))
    vector = space_of((1, 1, 384), rows=True)
    assert vector.allows(Genome.parse("gated64"))
    with pytest.raises(BadInput, match="dense"):
        SearchSpace(shape=SHAPE, dense=("dense", "dense"))


def test_facts_say_which_samples_are_rows() -> None:
    facts = Facts(class_names=("a", "b"), shape=(1, 2, 2), dtype="uint8")
    assert not facts.are_rows
    column = Column(name="a column")
    table = Facts(class_names=("a", "b"), shape=(1, 1, 1), dtype="float32", columns=(column,))
    assert table.are_rows


def test_moves_stay_in_the_space_and_reach_every_kind() -> None:
    rng = np.random.default_rng(0)
    genomes = [random_genome(SPACE, rng) for _ in range(60)]
    for _ in range(60):
        genomes.append(mutate(SPACE, genomes[int(rng.integers(60))], rng))
        genomes += crossover(SPACE, genomes[0], genomes[-1], rng)
    assert all(SPACE.allows(genome) for genome in genomes)
    assert {b.kind for g in genomes for b in g.blocks if isinstance(b, DenseBlock)} == {*KINDS}
    assert {len(g.blocks) for g in genomes} == {1, 2, 3, 4}


def test_limits_and_latencies_count_dense_blocks() -> None:
    spec = NetworkSpec(shape=SHAPE, classes=3, width=5)
    small = cost(Genome.parse("dense4"), spec).parameters
    limits = Limits(spec, Constraints(parameters=small))
    tight = space_of(SHAPE, rows=True, max_blocks=4, widths=(4, 8))
    tight = SearchSpace(
        shape=SHAPE, min_blocks=1, max_blocks=4, widths=(4, 8), dense=tight.dense, limits=limits
    )
    assert tight.allows(Genome.parse("dense4"))
    assert not tight.allows(Genome.parse("dense8"))
    assert str(random_genome(tight, np.random.default_rng(0))) == "dense4"
    reached = steps(SPACE)
    assert (DenseBlock("gated", 4), SHAPE) in reached
    assert (DenseBlock("gated", 4), (8, 1, 1)) in reached
    table = measure(SPACE, spec, repeats=1)
    assert table.latency_ms(GENOME if SPACE.allows(GENOME) else Genome.parse("dense4"), SHAPE) > 0


def test_what_a_search_expects_tells_kinds_apart() -> None:
    vectors = [features(Genome.parse(f"{kind}8"), SHAPE) for kind in KINDS]
    assert len({tuple(v) for v in vectors}) == len(KINDS)
    sizes = [capacity(Genome.parse(f"dense{k}"), SHAPE) for k in (4, 8, 16)]
    assert sizes == sorted(sizes)


def test_weights_repeat_by_their_generator() -> None:
    first, again, other = (weights_of(bottom(TEXT, seed=seed)) for seed in (3, 3, 4))
    assert all(torch.equal(t, again[name]) for name, t in first.items())
    assert not all(torch.equal(t, other[name]) for name, t in first.items())
    assert not any(isinstance(m, SeparableBlock) for m in bottom(TEXT).modules())
