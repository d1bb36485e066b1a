"""The search space: offspring are valid by construction, fair, and pure functions of the rng."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from panas.errors import BadInput
from panas.genome import ConvBlock, Genome, PoolBlock
from panas.network import build_bottom
from panas.space import (
    SearchSpace,
    add,
    alter,
    crossover,
    exchange,
    mutate,
    random_genome,
    remove,
)

MUTATIONS = (add, remove, alter, exchange)
seeds = st.integers(0, 2**32)


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    low = draw(st.integers(1, 4))
    return SearchSpace(
        shape=(draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.integers(1, 40))),
        min_blocks=low,
        max_blocks=low + draw(st.integers(0, 4)),
        widths=tuple(draw(st.sets(st.sampled_from([4, 8, 16]), min_size=1))),
        kernels=tuple(draw(st.sets(st.sampled_from([1, 3, 5]), min_size=1))),
        pools=tuple(draw(st.sets(st.sampled_from(["avg", "max"])))),
    )


def pools_of(genome: Genome) -> int:
    return sum(isinstance(block, PoolBlock) for block in genome.blocks)


@given(spaces(), seeds)
def test_random_genomes_and_mutants_are_valid(space: SearchSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    genome = random_genome(space, rng)
    for _ in range(5):
        assert space.allows(genome)
        space.check(genome)
        side = min(space.shape[1:])
        for block in genome.blocks:  # the oracle: walk down the map
            if isinstance(block, PoolBlock):
                assert side >= 4
                side //= 2
        genome = mutate(space, genome, rng)


@given(spaces(), seeds, st.sampled_from(MUTATIONS))
def test_each_mutation_does_what_its_name_says(
    space: SearchSpace, seed: int, mutation: Callable[..., Genome]
) -> None:
    rng = np.random.default_rng(seed)
    genome = random_genome(space, rng)
    before = genome.blocks
    try:
        child = mutation(space, genome, rng)
    except BadInput:
        assume(False)
    assert genome.blocks == before
    assert space.allows(child)
    assert child != genome
    after = child.blocks
    if mutation is add:
        assert any(after[:i] + after[i + 1 :] == before for i in range(len(after)))
    elif mutation is remove:
        assert any(before[:i] + before[i + 1 :] == after for i in range(len(before)))
    else:
        assert len(after) == len(before)
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert len(changed) == (1 if mutation is alter else 2)
        if mutation is alter:
            assert type(after[changed[0]]) is type(before[changed[0]])
        else:
            assert Counter(after) == Counter(before)


@given(spaces(), seeds)
def test_crossover_is_valid_and_keeps_every_block(space: SearchSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_genome(space, rng), random_genome(space, rng)
    blocks = a.blocks, b.blocks
    c, d = crossover(space, a, b, rng)
    assert (a.blocks, b.blocks) == blocks
    assert space.allows(c)
    assert space.allows(d)
    assert Counter(c.blocks + d.blocks) == Counter(a.blocks + b.blocks)


@given(spaces(), seeds)
def test_variation_is_a_function_of_the_rng(space: SearchSpace, seed: int) -> None:
    def run() -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        a, b = random_genome(space, rng), random_genome(space, rng)
        return a, b, mutate(space, a, rng), crossover(space, a, b, rng)

    assert run() == run()


def test_crossover_cuts_each_parent_at_its_own_point() -> None:
    space = SearchSpace(shape=(1, 8, 8), min_blocks=2, max_blocks=6)
    a = Genome.parse("c16k3-c16k3-c16k3-c16k3")
    b = Genome.parse("c32k3-c32k3-c32k3-c32k3")
    rng = np.random.default_rng(0)
    cuts: Counter[tuple[int, int]] = Counter()
    for _ in range(900):
        c, d = crossover(space, a, b, rng)
        i, j = c.blocks.count(a.blocks[0]), d.blocks.count(b.blocks[0])
        assert c.blocks == a.blocks[:i] + b.blocks[j:]
        cuts[i, j] += 1
    assert len(cuts) == 9  # all 3 x 3 pairs of inner cuts make children of 2 to 6 blocks
    assert chisquare(list(cuts.values())).pvalue > 1e-4


def test_crossover_without_a_valid_cut_returns_the_parents() -> None:
    space = SearchSpace(shape=(1, 8, 8), min_blocks=1, max_blocks=1)
    a, b = Genome.parse("c16k3"), Genome.parse("c32k5")
    assert crossover(space, a, b, np.random.default_rng(0)) == (a, b)


def test_mutate_draws_uniformly_among_the_applicable() -> None:
    space = SearchSpace(shape=(1, 8, 8), min_blocks=1, max_blocks=4)
    rng = np.random.default_rng(1)

    def kinds(genome: Genome) -> list[int]:
        seen: Counter[str] = Counter()
        for _ in range(500):
            child = mutate(space, genome, rng).blocks
            if len(child) != len(genome.blocks):
                seen["add" if len(child) > len(genome.blocks) else "remove"] += 1
            else:
                same = Counter(child) == Counter(genome.blocks)
                seen["exchange" if same else "alter"] += 1
        return list(seen.values())

    four = kinds(Genome.parse("c16k3-max-c32k5"))
    assert len(four) == 4
    assert chisquare(four).pvalue > 1e-4
    full = kinds(Genome.parse("c16k3-max-c32k5-c64k3"))
    assert len(full) == 3
    assert chisquare(full).pvalue > 1e-4
    assert len(kinds(Genome.parse("c16k3"))) == 2  # nothing to remove or exchange
    # The planted bug: adding twice as often as the rest.
    assert chisquare([200, 100, 100, 100]).pvalue < 1e-4


def test_added_blocks_are_uniform_over_the_menu() -> None:
    space = SearchSpace(shape=(1, 8, 8), min_blocks=1)
    rng = np.random.default_rng(2)
    genome = Genome.parse("c16k3")
    added = Counter(
        (Counter(add(space, genome, rng).blocks) - Counter(genome.blocks)).popitem()[0]
        for _ in range(1200)
    )
    assert set(added) == set(space.menu(genome.blocks))
    assert len(added) == 12
    assert chisquare(list(added.values())).pvalue > 1e-4


def test_a_space_of_one_genome_mutates_to_itself() -> None:
    space = SearchSpace(
        shape=(1, 3, 3), min_blocks=1, max_blocks=1, widths=(8,), kernels=(3,), pools=()
    )
    genome = Genome((ConvBlock(8, 3),))
    assert mutate(space, genome, np.random.default_rng(0)) == genome
    for mutation in MUTATIONS:
        with pytest.raises(BadInput, match="mutate"):
            mutation(space, genome, np.random.default_rng(0))


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


def test_no_offspring_ever_has_too_many_pools() -> None:
    space = SearchSpace(shape=(1, 8, 8), min_blocks=1, max_blocks=5, widths=(8,), kernels=(3,))
    rng = np.random.default_rng(3)
    a, b = random_genome(space, rng), random_genome(space, rng)
    most = 0
    for _ in range(500):
        a, b = crossover(space, mutate(space, a, rng), mutate(space, b, rng), rng)
        most = max(most, pools_of(a), pools_of(b))
    assert most == space.max_pools == 2


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
    for operation in (space.check, *(lambda g, m=m: m(space, g, rng) for m in MUTATIONS)):
        with pytest.raises(BadInput, match="search space"):
            operation(genome)
