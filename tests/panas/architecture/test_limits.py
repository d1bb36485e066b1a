"""Hard limits against the enumeration of whole spaces, and the table of measured times."""

import json
import time
from dataclasses import replace
from itertools import product
from statistics import median
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from custom_blocks import Dilated, Double, Squeeze
from hypothesis import given, settings
from hypothesis import strategies as st
from made_samples import one_at_a_time
from random_spaces import NAMES, SPEC, costs, limits_of
from scipy.stats import spearmanr
from torch import nn

from panas.architecture.blocks import Block, ConvBlock, PoolBlock, Shape
from panas.architecture.cost import block_cost, cost
from panas.architecture.genome import Genome
from panas.architecture.latency import measure, steps
from panas.architecture.limits import Constraints, LatencyTable, Limits
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread

TINY = SearchSpace(
    shape=(2, 9, 8), min_blocks=1, max_blocks=3, widths=(2, 5), kernels=(3,), blocks=(Double(),)
)


def fake(space: SearchSpace, **sizes: int) -> LatencyTable:
    """A table whose times are whole numbers without any order."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1 + crc32(str(now).encode()) % 50
        return now

    return measure(space, replace(SPEC, **sizes), repeats=1, clock=clock)


def every_genome(space: SearchSpace) -> list[Genome]:
    menu = (*space.convs, *map(PoolBlock, space.pools), *space.blocks)
    sizes = range(space.min_blocks, space.max_blocks + 1)
    candidates = (blocks for n in sizes for blocks in product(menu, repeat=n))
    solid = (b for b in candidates if not all(isinstance(block, PoolBlock) for block in b))
    return [genome for genome in map(Genome, solid) if space.allows(genome)]


TIMES = fake(TINY)
EVERY = every_genome(TINY)


COSTS = {genome: costs(genome, TINY, TIMES) for genome in EVERY}


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    shares=st.dictionaries(st.sampled_from(NAMES), st.floats(0, 0.6), min_size=1),
    seed=st.integers(0, 2**32),
)
def test_random_genomes_are_those_within_the_limits_and_nothing_else(
    shares: dict[str, float], seed: int
) -> None:
    bounds: dict[str, Any] = {}
    for name, share in shares.items():  # limits between the cheapest and the dearest of all
        of_all = np.array([COSTS[genome][name] for genome in EVERY])
        bound = float(np.quantile(of_all, share, method="lower"))
        bounds[name] = bound if name == "latency_ms" else int(bound)
    limits = limits_of(**bounds, latency=TIMES)
    within = {g for g in EVERY if all(COSTS[g][name] <= bounds[name] for name in bounds)}
    if not within:
        with pytest.raises(BadInput, match="limits"):
            replace(TINY, limits=limits)
        return
    space = replace(TINY, limits=limits)
    assert {g for g in EVERY if space.allows(g)} == within
    rng = np.random.default_rng(seed)
    drawn = {random_genome(space, rng) for _ in range(20)}
    assert drawn <= within
    if len(within) <= 2:  # each is drawn with probability 1/3 or more
        assert drawn == within


def test_costs_at_odds_do_not_hide_what_fits() -> None:
    # Small genomes are slow and fast ones large, so that the front has many vectors.
    blocks = {(str(b), shape): 10**6 - cost_of(b, shape) for b, shape in steps(TINY)}
    table = replace(TIMES, blocks=blocks)
    pairs = {
        g: (int(COSTS[g]["parameters"]), table.latency_ms(g, TINY.shape))
        for g in EVERY
        if len(g.blocks) == 2
    }
    for parameters, ms in sorted(set(pairs.values()))[::4]:
        limits = limits_of(parameters=parameters, latency_ms=ms, latency=table)
        within = {g for g, (p, t) in pairs.items() if p <= parameters and t <= ms}
        space = replace(TINY, min_blocks=2, max_blocks=2, limits=limits)  # one just fits
        rng = np.random.default_rng(0)
        assert {random_genome(space, rng) for _ in range(12 * len(within))} == within


def cost_of(block: Block, shape: Shape) -> int:
    return 100 * block_cost(block, shape, "group").parameters


def test_limits_without_a_number_change_nothing() -> None:
    loose = replace(TINY, limits=limits_of())
    draws = [random_genome(s, np.random.default_rng(5)) for s in (TINY, loose)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_that_nothing_keeps_names_the_cheapest(name: str) -> None:
    cheapest = min(COSTS[genome][name] for genome in EVERY)
    exact = cheapest if name == "latency_ms" else int(cheapest)
    replace(TINY, limits=limits_of(**{name: exact}, latency=TIMES))  # it may be met
    less = exact - (1e-6 if name == "latency_ms" else 1)
    with pytest.raises(BadInput) as error:
        replace(TINY, limits=limits_of(**{name: less}, latency=TIMES))
    message = str(error.value)
    assert "\n" not in message
    named = message.split("the cheapest, ")[1].split(", has")[0]
    assert COSTS[Genome.parse(named, TINY.blocks)][name] == cheapest


def test_limits_that_can_only_be_kept_apart_are_refused_together() -> None:
    space = SearchSpace(
        shape=(1, 8, 8), min_blocks=2, max_blocks=2, widths=(4,), kernels=(3,), pools=("max",)
    )
    genomes = [Genome.parse(text) for text in ("max-c4k3", "c4k3-max", "c4k3-c4k3")]
    table = fake(space)
    table = replace(table, blocks={**table.blocks, ("max", (1, 8, 8)): 10**6})
    macs = cost(genomes[0], replace(SPEC, shape=space.shape)).macs  # the pool first: few products
    fast = min(table.latency_ms(g, space.shape) for g in genomes[1:])  # the pool first: slow
    few, soon = {"macs": macs}, {"latency_ms": fast, "latency": table}
    assert replace(space, limits=limits_of(**few)).allows(genomes[0])
    assert not replace(space, limits=limits_of(**soon)).allows(genomes[0])
    both = limits_of(**few, **soon)
    with pytest.raises(BadInput, match=r"macs and .* ms of latency: the cheapest"):
        replace(space, limits=both)


def test_a_genome_beyond_a_limit_and_a_table_of_another_space_are_refused() -> None:
    space = replace(TINY, limits=limits_of(parameters=70))
    with pytest.raises(BadInput, match=r"parameters, above the limit of 70 parameters"):
        space.check(Genome.parse("c5k3-c5k3-c5k3"))
    other = replace(TINY, shape=(3, 9, 8))
    with pytest.raises(BadInput, match="measure it anew"):
        replace(other, limits=limits_of(latency_ms=1.0, latency=TIMES))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parameters": 0}, "parameters 0"),
        ({"macs": -1}, "macs -1"),
        ({"latency_ms": float("nan"), "latency": TIMES}, "latency_ms nan"),
        ({"latency_ms": 1.0}, "panas.architecture.latency.measure"),
        ({"latency_ms": 1.0, "latency": TIMES, "width": 8}, "same width"),
        ({"latency_ms": 1.0, "latency": TIMES, "norm": "batch"}, "same width"),
    ],
)
def test_bad_limits_are_refused(fields: dict[str, Any], words: str) -> None:
    spec = replace(SPEC, **{k: v for k, v in fields.items() if k in ("width", "norm")})
    most = {k: v for k, v in fields.items() if k in NAMES}
    with pytest.raises(BadInput, match="expected") as error:
        Limits(spec, Constraints(**most), fields.get("latency"))
    assert words in str(error.value)


def test_a_table_survives_json_and_a_latency_is_the_sum_over_the_blocks() -> None:
    again = LatencyTable.from_json(json.loads(json.dumps(TIMES.to_json())))
    assert again == TIMES
    assert json.dumps(again.to_json()) == json.dumps(TIMES.to_json())
    assert hash(again) == hash(TIMES)
    genome = Genome.parse("c2k3-max-double", TINY.blocks)
    shapes = ((2, 9, 8), (2, 9, 8), (2, 4, 4))
    parts = [TIMES.blocks[str(b), shape] for b, shape in zip(genome.blocks, shapes, strict=True)]
    assert TIMES.latency_ms(genome, TINY.shape) == (sum(parts) + TIMES.ends[4]) / 1e6


@pytest.mark.parametrize(
    "change",
    [
        *one_at_a_time(width=["7"], norm=["layer"], more=[1], ends=([[4, "fast"]], [4], None)),
        *({"blocks": [["c4k3", *b]]} for b in (([1, 8], 3), ([1, 8, 8], 3.5), ([1, 8, 8], -3))),
    ],
)
def test_bad_json_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="latency table"):
        LatencyTable.from_json(TIMES.to_json() | change)


def test_every_block_is_timed_on_every_map_that_it_can_meet() -> None:
    met = set()
    for genome in EVERY:
        shape = TINY.shape
        for block in genome.blocks:
            met.add((str(block), shape))
            after = TINY.after(block, shape)
            assert after is not None
            shape = after
        assert shape[0] in TIMES.ends
    assert met == set(TIMES.blocks)
    assert len(steps(TINY)) == len(met)


def test_a_time_is_the_median_of_the_repeats_in_the_order_of_the_blocks() -> None:
    space = SearchSpace(
        shape=(1, 4, 4), min_blocks=1, max_blocks=1, widths=(2,), kernels=(1,), pools=()
    )
    took = iter([5, 900, 7, 30, 10, 20, 3, 1, 2])  # of the block, of the end behind 1 and 2
    now, started = 0, False

    def clock() -> int:
        nonlocal now, started
        started = not started
        now += 0 if started else next(took)
        return now

    table = measure(space, SPEC, repeats=3, clock=clock)
    assert dict(table.blocks) == {("c2k1", (1, 4, 4)): 7}
    assert dict(table.ends) == {1: 20, 2: 2}


def test_measuring_leaves_threads_and_random_state_alone() -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    seen = []

    def clock() -> int:
        seen.append(torch.get_num_threads())
        return len(seen)

    measure(TINY, SPEC, repeats=1, clock=clock)
    assert set(seen) == {1}
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)
    with pytest.raises(BadInput, match="repeats"):
        measure(TINY, SPEC, repeats=0)


@pytest.mark.thorough
def test_the_table_ranks_genomes_as_whole_networks_do() -> None:
    blocks = (Squeeze(4), Dilated(16))
    space = SearchSpace(shape=(3, 16, 16), blocks=blocks)
    spec = NetworkSpec(shape=space.shape, classes=10, width=64)
    table = measure(space, spec)
    rng = np.random.default_rng(0)
    genomes = [Genome((ConvBlock(16, 3),)), *(random_genome(space, rng) for _ in range(20))]
    with one_thread():
        whole = [milliseconds(spec, g) for g in genomes]
    sums = [table.latency_ms(g, space.shape) for g in genomes]
    assert spearmanr(sums, whole).statistic > 0.5  # .8 to .9 on a quiet machine
    assert 0.3 < np.median(np.divide(sums, whole)) < 3


def milliseconds(spec: NetworkSpec, genome: Genome) -> float:
    """The median time of a whole network's forward pass on one image."""
    network = nn.Sequential(spec.bottom(genome), spec.head(torch.Generator())).eval()
    x, times = torch.zeros(1, *spec.shape), list[float]()
    with torch.no_grad():
        for _ in range(22):
            begun = time.perf_counter()
            network(x)
            times.append(1e3 * (time.perf_counter() - begun))
    return median(times[2:])
