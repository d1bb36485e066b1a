"""How a search moves in its space: pure functions of (space, genome, rng).

The four mutations are `add`, `remove`, `alter` and `exchange`; `crossover` cuts two genomes. Each
lists its valid outcomes and draws one uniformly, so that offspring are valid, limits included; no
outcome is a copy of its parent, except where a docstring says so.

Source: DPFNAS, section III-A2.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import TypeVar

import numpy as np

from panas.architecture.feasibility import Blocks
from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.runtime.errors import BadInput

T = TypeVar("T")


def random_genome(space: SearchSpace, rng: np.random.Generator) -> Genome:
    """Draw a genome: a uniform length, then each block uniformly from those that may stand there.

    A block may stand where the rest can still be completed within the limits, and to a genome that
    is not of pools alone.
    """
    length = _draw(space.lengths, rng)
    blocks: Blocks = ()
    while len(blocks) < length:
        left = length - len(blocks) - 1
        menu = [b for b in space.menu(blocks) if space.completable((*blocks, b), left)]
        blocks += (_draw(menu, rng),)
    return Genome(blocks)


def add(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Insert a random block at a random position; raises BadInput if none fits.

    Both draws are uniform: over the gaps, and over the blocks that keep the genome valid there.
    """
    return _outcome(space, genome, _added, rng)


def remove(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Delete a random block; raises BadInput if none can go (as the last convolution cannot)."""
    return _outcome(space, genome, _removed, rng)


def alter(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Give a random block another configuration: another width or kernel, or the other pooling.

    A custom block becomes another of its class. Raises BadInput if no block can change.
    """
    return _outcome(space, genome, _altered, rng)


def exchange(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Swap two random blocks that differ; raises BadInput if there are none that may."""
    return _outcome(space, genome, _exchanged, rng)


def mutate(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Apply one of the four mutations, drawn uniformly among those with a valid outcome.

    Returns the genome itself if there is none (a space of one genome).
    """
    space.check(genome)
    mutations = (_added, _removed, _altered, _exchanged)
    applicable = [m for m in mutations if any(_open(space, m(space, genome.blocks)))]
    return _outcome(space, genome, _draw(applicable, rng), rng) if applicable else genome


def crossover(
    space: SearchSpace, a: Genome, b: Genome, rng: np.random.Generator
) -> tuple[Genome, Genome]:
    """Exchange the tails of two genomes, each cut at its own point.

    Cut points are inside the parents. One pair of them is drawn uniformly among those that make
    both children valid; if there is none, the parents come back unchanged. Together the children
    have exactly the parents' blocks.
    """
    space.check(a)
    space.check(b)
    pairs = [
        (a.blocks[:i] + b.blocks[j:], b.blocks[:j] + a.blocks[i:])
        for i, j in product(range(1, len(a.blocks)), range(1, len(b.blocks)))
    ]
    valid = [pair for pair in pairs if all(space.fault(child) is None for child in pair)]
    if not valid:
        return a, b
    left, right = _draw(valid, rng)
    return Genome(left), Genome(right)


Groups = Iterator[list[Blocks]]
"""Outcomes of a mutation, valid or not, grouped by where it acts."""


def _added(space: SearchSpace, blocks: Blocks) -> Groups:
    for i in range(len(blocks) + 1):
        yield [(*blocks[:i], block, *blocks[i:]) for block in space.choices]


def _removed(space: SearchSpace, blocks: Blocks) -> Groups:
    for i in range(len(blocks)):
        yield [blocks[:i] + blocks[i + 1 :]]


def _altered(space: SearchSpace, blocks: Blocks) -> Groups:
    for i, old in enumerate(blocks):
        others = [b for b in space.choices if type(b) is type(old) and b != old]
        yield [(*blocks[:i], block, *blocks[i + 1 :]) for block in others]


def _exchanged(space: SearchSpace, blocks: Blocks) -> Groups:
    for i, j in combinations(range(len(blocks)), 2):
        if blocks[i] != blocks[j]:
            yield [(*blocks[:i], blocks[j], *blocks[i + 1 : j], blocks[i], *blocks[j + 1 :])]


def _open(space: SearchSpace, groups: Groups) -> Groups:
    """The groups with a valid outcome."""
    return (group for group in groups if any(space.fault(child) is None for child in group))


def _outcome(
    space: SearchSpace,
    genome: Genome,
    mutation: Callable[[SearchSpace, Blocks], Groups],
    rng: np.random.Generator,
) -> Genome:
    """Draw a place, then one of the valid outcomes there, each uniformly."""
    space.check(genome)
    groups = list(_open(space, mutation(space, genome.blocks)))
    if not groups:
        raise BadInput(f"expected a genome that this mutation can act on, got {genome}; use mutate")
    return Genome(_draw([c for c in _draw(groups, rng) if space.fault(c) is None], rng))


def _draw(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]
