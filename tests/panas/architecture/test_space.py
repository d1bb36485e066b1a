"""The search space: offspring are valid by construction, fair, and pure functions of the rng.

Every property is tried on spaces with custom blocks, and with limits, too.
"""

import hashlib
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from custom_blocks import OWN
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from panas.architecture.blocks import Block, ConvBlock, PoolBlock, shape_after
from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.latency import steps
from panas.architecture.limits import LatencyTable, Limits
from panas.architecture.network import build_bottom
from panas.architecture.operators import (
    add,
    alter,
    crossover,
    exchange,
    mutate,
    random_genome,
    remove,
)
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput

MUTATIONS = (add, remove, alter, exchange)
seeds = st.integers(0, 2**32)


SHAPES = ((1, 1, 1), (3, 3, 40), (1, 4, 4), (2, 7, 12), (1, 8, 9), (3, 17, 16), (3, 32, 33))
NAMES = ("parameters", "macs", "bytes", "latency_ms")
SIZES: dict[str, Any] = {"width": 7, "classes": 3}
patient = settings(deadline=None, max_examples=40)


def table(space: SearchSpace) -> LatencyTable:
    """Times as they might have been measured: cheap and dear without any order."""
    found = steps(space)
    blocks = {(str(b), shape): crc32(f"{b}{shape}".encode()) % 999 for b, shape in found}
    channels = {shape_after(b, shape)[0] for b, shape in found}
    return LatencyTable(
        **SIZES,
        norm="group",
        blocks=blocks,
        ends={c: crc32(f"{c}".encode()) % 999 for c in channels},
    )


def costs(genome: Genome, space: SearchSpace, times: LatencyTable) -> dict[str, float]:
    found = cost(genome, shape=space.shape, **SIZES)
    exact = {name: getattr(found, name) for name in NAMES[:3]}
    return exact | {"latency_ms": times.latency_ms(genome, space.shape)}


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    low = draw(st.integers(1, 3))
    shape = draw(st.sampled_from(SHAPES))
    space = SearchSpace(
        shape=shape,
        min_blocks=low,
        max_blocks=low + draw(st.integers(0, 3)),
        widths=tuple(draw(st.sets(st.sampled_from([4, 8, 16]), min_size=1))),
        kernels=tuple(draw(st.sets(st.sampled_from([1, 3, 5]), min_size=1))),
        pools=tuple(draw(st.sets(st.sampled_from(["avg", "max"])))),
        blocks=tuple(draw(st.sets(st.sampled_from(OWN), max_size=2)))
        if min(shape[1:]) >= 4
        else (),
    )
    names = draw(st.sets(st.sampled_from(NAMES)))
    if not names:
        return space
    # Limits that one random genome keeps, and most others may not.
    times = table(space)
    some = random_genome(space, np.random.default_rng(draw(seeds)))
    slack = draw(st.sampled_from([1, 1.3]))
    most = {name: value for name, value in costs(some, space, times).items() if name in names}
    bounds = {n: x * slack if n == "latency_ms" else int(x * slack) for n, x in most.items()}
    assume(min(bounds.values()) > 0)
    return replace(space, limits=Limits(**SIZES, **bounds, latency=times))


def pools_of(genome: Genome) -> int:
    return sum(isinstance(block, PoolBlock) for block in genome.blocks)


def check_by_hand(space: SearchSpace, genome: Genome) -> None:
    """The oracle: lengths, menus, a walk down the map, and the costs of the whole."""
    assert space.min_blocks <= len(genome.blocks) <= space.max_blocks
    assert pools_of(genome) < len(genome.blocks)
    channels, *sides = space.shape
    for block in genome.blocks:
        before = sides
        if isinstance(block, PoolBlock):
            assert block.kind in space.pools
            sides = [side // 2 for side in sides]
        elif isinstance(block, ConvBlock):
            assert block.out_channels in space.widths
            assert block.kernel_size in space.kernels
            channels = block.out_channels
        else:
            assert block in space.blocks
            channels, sides = block.out_channels(channels), [block.out_side(s) for s in sides]
        assert sides == before or min(before) >= 4
        assert 1 <= channels <= 65_536
        assert min(sides) >= 1
    if space.limits is not None:
        assert space.limits.latency is not None
        for name, value in costs(genome, space, space.limits.latency).items():
            limit = getattr(space.limits, name)
            assert limit is None or value <= limit + (name == "latency_ms") * 1e-9


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
    check_by_hand(space, child)
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


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("limited", [False, True])
def test_each_mutation_reaches_every_valid_outcome_and_no_other(
    mutation: Callable[..., Genome], limited: bool
) -> None:
    plain = SearchSpace(
        shape=(2, 9, 9), min_blocks=2, max_blocks=5, widths=(4, 8), kernels=(3,), blocks=OWN[:3]
    )
    genome = Genome.parse("c4k3-max-se2-c4k3", OWN)
    most = costs(genome, plain, table(plain))
    limits = Limits(**SIZES, parameters=int(most["parameters"]) + 40, macs=int(most["macs"]) + 999)
    space = replace(plain, limits=limits if limited else None)
    rng = np.random.default_rng(0)
    expected = naive_children(space, genome, mutation.__name__)
    assert {mutation(space, genome, rng) for _ in range(12 * len(expected))} == expected
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


@pytest.mark.parametrize(("space", "zero", "one"), PLAIN)
def test_without_limits_the_draws_are_those_of_version_0_1(
    space: SearchSpace, zero: str, one: str
) -> None:
    def history(seed: int) -> str:
        rng, texts = np.random.default_rng(seed), []
        a, b = random_genome(space, rng), random_genome(space, rng)
        for _ in range(60):
            texts += [str(a), str(b)]
            c, d = crossover(space, a, b, rng)
            a, b = mutate(space, c, rng), random_genome(space, rng)
            for mutation in MUTATIONS:
                try:
                    texts.append(str(mutation(space, d, rng)))
                except BadInput:
                    texts.append("x")
        return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:16]

    assert (history(0), history(1)) == (zero, one)


@patient
@given(spaces(), seeds)
def test_a_pickled_space_is_the_same_space(space: SearchSpace, seed: int) -> None:
    random_genome(space, np.random.default_rng(seed))
    again = pickle.loads(pickle.dumps(space))
    assert again == space
    assert hash(again) == hash(space)
    draws = [random_genome(s, np.random.default_rng(seed)) for s in (space, again)]
    assert draws[0] == draws[1]


@patient
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
