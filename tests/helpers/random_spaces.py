"""Search spaces, drawn with custom blocks and with limits, and what a genome of one must be."""

from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
from custom_blocks import OWN
from hypothesis import assume, settings
from hypothesis import strategies as st

from panas.architecture.blocks import ConvBlock, PoolBlock, shape_after
from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.latency import steps
from panas.architecture.limits import Constraints, LatencyTable, Limits
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace

seeds = st.integers(0, 2**32)


SHAPES = ((1, 1, 1), (3, 3, 40), (1, 4, 4), (2, 7, 12), (1, 8, 9), (3, 17, 16), (3, 32, 33))


NAMES = ("parameters", "macs", "bytes", "latency_ms")


SPEC = NetworkSpec(shape=(1, 1, 1), width=7, classes=3)


patient = settings(deadline=None, max_examples=40)


def table(space: SearchSpace) -> LatencyTable:
    """Times as they might have been measured: cheap and dear without any order."""
    result = steps(space)
    blocks = {(str(b), shape): crc32(f"{b}{shape}".encode()) % 999 for b, shape in result}
    channels = {shape_after(b, shape)[0] for b, shape in result}
    return LatencyTable(
        width=SPEC.width,
        classes=SPEC.classes,
        norm=SPEC.norm,
        blocks=blocks,
        ends={c: crc32(f"{c}".encode()) % 999 for c in channels},
    )


def costs(genome: Genome, space: SearchSpace, times: LatencyTable) -> dict[str, float]:
    result = cost(genome, replace(SPEC, shape=space.shape))
    exact = {name: getattr(result, name) for name in NAMES[:3]}
    return exact | {"latency_ms": times.latency_ms(genome, space.shape)}


def limits_of(latency: LatencyTable | None = None, **most: Any) -> Limits:
    """Limits on networks of SPEC."""
    return Limits(SPEC, Constraints(**most), latency)


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
    return replace(space, limits=limits_of(times, **bounds))


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
            limit = getattr(space.limits.constraints, name)
            assert limit is None or value <= limit + (name == "latency_ms") * 1e-9
