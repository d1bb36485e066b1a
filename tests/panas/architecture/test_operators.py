"""Operators: offspring are valid by construction, fair, and pure functions of the rng.

Every property is tried on spaces with custom blocks, and with limits, too.
"""

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from custom_blocks import OWN
from hypothesis import given
from random_spaces import check_by_hand, costs, limits_of, patient, seeds, spaces, table
from scipy.stats import chisquare

from panas.architecture.blocks import Block, PoolBlock
from panas.architecture.genome import Genome
from panas.architecture.latency import limited
from panas.architecture.limits import Constraints
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import (
    MUTATIONS,
    Mutation,
    add,
    crossover,
    mutate,
    plain_genome,
    random_genome,
)
from panas.architecture.space import SearchSpace


@pytest.mark.slow
@patient
@given(spaces(), seeds)
def test_random_genomes_and_mutants_are_valid(space: SearchSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    genome = random_genome(space, rng)
    for _ in range(5):
        assert space.allows(genome)
        space.check(genome)
        check_by_hand(space, genome)
        genome = mutate(space, genome, rng)


@patient
@given(spaces())
def test_the_plain_genome_is_of_the_space(space: SearchSpace) -> None:
    genome = plain_genome(space)
    if genome is not None:
        check_by_hand(space, genome)
        assert not any(isinstance(b, PoolBlock) for b in genome.blocks[::2])


@pytest.mark.parametrize(
    ("shape", "blocks", "genome"),
    [
        ((1, 28, 28), 5, "c16k3-max-c32k3-max-c64k3"),
        ((1, 28, 28), 4, "c16k3-max-c32k3-max"),
        ((3, 8, 8), 9, "c16k3-max-c32k3-max-c64k3"),
        ((3, 5, 5), 9, "c16k3-max-c32k3"),
        ((112, 10, 10), 9, "c64k3-max-c64k3"),
    ],
)
def test_the_plain_genome_grows_as_long_as_the_space_allows(
    shape: tuple[int, int, int], blocks: int, genome: str
) -> None:
    space = SearchSpace(shape=shape, min_blocks=1, max_blocks=blocks, widths=(32, 64, 16))
    assert str(plain_genome(space)) == genome
    assert plain_genome(replace(space, pools=())) is None
    assert plain_genome(replace(space, shape=(1, 1, 8), dense=("dense",))) is None


@pytest.mark.slow
@patient
@given(spaces(), seeds)
def test_crossover_is_valid_and_keeps_every_block(space: SearchSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_genome(space, rng), random_genome(space, rng)
    blocks = a.blocks, b.blocks
    c, d = crossover(space, a, b, rng)
    assert (a.blocks, b.blocks) == blocks
    for child in (c, d):
        assert space.allows(child)
        check_by_hand(space, child)
    assert Counter(c.blocks + d.blocks) == Counter(a.blocks + b.blocks)
    heads, tails = ({g.blocks[:1] for g in (c, d)}, {g.blocks[-1:] for g in (c, d)})
    assert heads == {a.blocks[:1], b.blocks[:1]}  # cuts are inside
    assert tails == {a.blocks[-1:], b.blocks[-1:]}


def naive_children(space: SearchSpace, genome: Genome, name: str) -> set[Genome]:
    """Whatever one mutation could make of a genome, if it is valid."""
    old, n = genome.blocks, len(genome.blocks)
    menu: tuple[Block, ...] = (*space.convs, *map(PoolBlock, space.pools), *space.blocks)
    made: dict[str, list[tuple[Block, ...]]] = {
        "add": [(*old[:i], b, *old[i:]) for i in range(n + 1) for b in menu],
        "remove": [old[:i] + old[i + 1 :] for i in range(n)],
        "alter": [
            (*old[:i], b, *old[i + 1 :]) for i in range(n) for b in menu if type(b) is type(old[i])
        ],
        "exchange": [
            (*old[:i], old[j], *old[i + 1 : j], old[i], *old[j + 1 :])
            for j in range(n)
            for i in range(j)
        ],
    }
    genomes = {Genome(b) for b in made[name] if any(not isinstance(x, PoolBlock) for x in b)}
    return {g for g in genomes if space.allows(g)} - {genome}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("limited", [False, True])
def test_each_mutation_reaches_every_valid_outcome_and_no_other(mutation: Mutation, limited: bool):
    plain = SearchSpace(
        shape=(2, 9, 9), min_blocks=2, max_blocks=5, widths=(4, 8), kernels=(3,), blocks=OWN[:3]
    )
    genome = Genome.parse("c4k3-max-se2-c4k3", OWN)
    most = costs(genome, plain, table(plain))
    limits = limits_of(parameters=int(most["parameters"]) + 40, macs=int(most["macs"]) + 999)
    space = replace(plain, limits=limits if limited else None)
    rng = np.random.default_rng(0)
    expected = naive_children(space, genome, mutation.__name__)
    assert {mutate(space, genome, rng, [mutation]) for _ in range(12 * len(expected))} == expected
    if limited:  # they cut something off
        assert len(expected) < len(naive_children(plain, genome, mutation.__name__))


PLAIN = (
    (SearchSpace(shape=(3, 32, 32)), "fcb363d858a27d0b", "c6f625c4b3c224d8"),
    (
        SearchSpace(shape=(1, 8, 8), min_blocks=1, max_blocks=4, widths=(8, 16)),
        "7e8ab10935f62d39",
        "ae407c781beafc6a",
    ),
    (
        SearchSpace(shape=(1, 3, 9), min_blocks=2, pools=("max",)),
        "e9e2cfaa5bf593a8",
        "9c17b1fd13f90eaf",
    ),
    (SearchSpace(shape=(1, 28, 28), pools=()), "e56f9d06dc7ad36f", "dba9a5964f7c4067"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("space", "zero", "one"), PLAIN)
def test_without_limits_the_draws_are_those_of_version_0_1(space: SearchSpace, zero: str, one: str):
    def history(seed: int) -> str:
        rng, texts = np.random.default_rng(seed), []
        a, b = random_genome(space, rng), random_genome(space, rng)
        for _ in range(60):
            texts += [str(a), str(b)]
            c, d = crossover(space, a, b, rng)
            a, b = mutate(space, c, rng), random_genome(space, rng)
            for mutation in MUTATIONS:
                child = mutate(space, d, rng, [mutation])
                texts.append("x" if child == d else str(child))
        return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:16]

    assert (history(0), history(1)) == (zero, one)


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
    alone = replace(space, widths=(16,), kernels=(3,))  # of one genome, which mutates to itself
    assert mutate(alone, a, np.random.default_rng(0)) == a


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
        (Counter(mutate(space, genome, rng, [add]).blocks) - Counter(genome.blocks)).popitem()[0]
        for _ in range(1200)
    )
    assert set(added) == set(space.menu(genome.blocks))
    assert len(added) == 12
    assert chisquare(list(added.values())).pvalue > 1e-4


def test_maps_are_read_by_two_of_the_widest_convolutions_that_the_limits_allow() -> None:
    space = SearchSpace(shape=(112, 10, 10), widths=(32, 64, 128))
    assert str(plain_genome(space)) == "c128k3-max-c128k3"
    spec = NetworkSpec(shape=space.shape, classes=10, width=16)
    tight = limited(space, spec, Constraints(parameters=30_000))
    assert str(plain_genome(tight)) == "c64k3-max-c64k3"
