"""Measured latency, block by block, so that a search can keep a limit of milliseconds.

Every block is timed once on every map that a genome of the space may put it on. A search with the
same table makes the same decisions.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median_low

import torch
from torch import Tensor, nn

from panas.architecture.blocks import Block, Shape
from panas.architecture.head import Head
from panas.architecture.limits import Constraints, LatencyTable, Limits
from panas.architecture.network import Bottom, NetworkSpec, build_block
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread
from panas.runtime.store import exclusive, read_json, write_json

Clock = Callable[[], int]


def measure(
    space: SearchSpace, spec: NetworkSpec, *, repeats: int = 7, clock: Clock = time.perf_counter_ns
) -> LatencyTable:
    """Time the forward pass of every block of a space: one image, one thread, the CPU.

    Args:
        space: its blocks and shape; its limits play no part.
        spec: width, classes and norm; its shape plays no part.
        repeats: passes whose median counts, at least 1, after an untimed one.
        clock: tells nanoseconds; another one for tests.
    """
    if repeats < 1:
        raise BadInput(f"expected repeats of at least 1, got {repeats}; raise them")
    width, classes, norm = spec.width, spec.classes, spec.norm
    with one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        blocks: dict[tuple[str, Shape], int] = {}
        last = dict.fromkeys(space.shape[:1])
        for block, shape in steps(space):
            module = build_block(block, shape, norm)
            blocks[str(block), shape] = _time(module, torch.zeros(1, *shape), repeats, clock)
            last |= dict.fromkeys((space.after(block, shape) or shape)[:1])
        ends = {}
        for channels in last:
            end = nn.Sequential(Bottom([], channels, width, unit=True), Head(width, classes))
            ends[channels] = _time(end, torch.zeros(1, channels, 4, 4), repeats, clock)
    return LatencyTable(width=width, classes=classes, norm=norm, blocks=blocks, ends=ends)


def limited(
    space: SearchSpace, spec: NetworkSpec, constraints: Constraints, table: Path | None = None
) -> SearchSpace:
    """The space within some constraints; latencies are measured once.

    Args:
        space: comes back as it is where nothing is constrained.
        spec: of the networks that are limited.
        constraints: the most that a whole network may cost.
        table: file that keeps the latencies; None measures them anew.
    """
    if constraints == Constraints():
        return space
    latency = None if constraints.latency_ms is None else _measured(space, spec, table)
    return replace(space, limits=Limits(spec, constraints, latency))


def _measured(space: SearchSpace, spec: NetworkSpec, path: Path | None) -> LatencyTable:
    if path is None:
        return measure(space, spec)
    with exclusive(path):
        if not path.exists():
            write_json(path, measure(space, spec).to_json())
    return LatencyTable.from_json(read_json(path))


def steps(space: SearchSpace) -> list[tuple[Block, Shape]]:
    """Every block on every map that it may meet in a genome, limits aside."""
    visited: dict[tuple[Block, Shape], None] = {}  # a set in the order of discovery
    shapes = {space.shape: None}
    for _ in range(space.max_blocks):
        behind: dict[Shape, None] = {}
        for block, shape in product(space.choices, shapes):
            after = space.after(block, shape)
            if after is not None and (block, shape) not in visited:
                visited[block, shape] = behind[after] = None
        shapes = behind
    return list(visited)


def _time(module: nn.Module, x: Tensor, repeats: int, clock: Clock) -> int:
    module.eval()
    module(x)
    times = []
    for _ in range(repeats):
        start = clock()
        module(x)
        times.append(clock() - start)
    return median_low(times)
