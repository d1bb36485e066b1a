"""How a search moves in its space: offspring are drawn from the valid outcomes, limits included.

Source: DPFNAS, section III-A2.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import TypeVar

import numpy as np

from panas.architecture.blocks import ConvBlock, PoolBlock
from panas.architecture.genome import Genome
from panas.architecture.limits import Blocks
from panas.architecture.space import SearchSpace

T = TypeVar("T")
Groups = Iterator[list[Blocks]]  # outcomes of a mutation, valid or not, by where it acts
Mutation = Callable[[SearchSpace, Blocks], Groups]


def add(space: SearchSpace, blocks: Blocks) -> Groups:
    """Insert a block."""
    for i in range(len(blocks) + 1):
        yield [(*blocks[:i], block, *blocks[i:]) for block in space.choices]


def remove(space: SearchSpace, blocks: Blocks) -> Groups:
    """Delete a block."""
    for i in range(len(blocks)):
        yield [blocks[:i] + blocks[i + 1 :]]


def alter(space: SearchSpace, blocks: Blocks) -> Groups:
    """Make a block another of its class: another width or kernel, or the other pooling."""
    for i, old in enumerate(blocks):
        others = [b for b in space.choices if type(b) is type(old) and b != old]
        yield [(*blocks[:i], block, *blocks[i + 1 :]) for block in others]


def exchange(space: SearchSpace, blocks: Blocks) -> Groups:
    """Swap two blocks that differ."""
    for i, j in combinations(range(len(blocks)), 2):
        if blocks[i] != blocks[j]:
            yield [(*blocks[:i], blocks[j], *blocks[i + 1 : j], blocks[i], *blocks[j + 1 :])]


MUTATIONS: Sequence[Mutation] = (add, remove, alter, exchange)


def mutate(
    space: SearchSpace,
    genome: Genome,
    rng: np.random.Generator,
    mutations: Sequence[Mutation] = MUTATIONS,
) -> Genome:
    """Draw a mutation among those with a valid outcome, a place, and an outcome there, uniformly.

    Returns the genome itself only if there is none (a space of one genome).

    Args:
        space: the outcome lies in it.
        genome: of the space.
        rng: draws mutation, place and outcome.
        mutations: those to draw from.
    """
    space.check(genome)

    def valid(groups: Groups) -> Groups:
        return (group for group in groups if any(space.fault(child) is None for child in group))

    applicable = [m for m in mutations if any(valid(m(space, genome.blocks)))]
    if not applicable:
        return genome
    groups = list(valid(_draw(applicable, rng)(space, genome.blocks)))
    return Genome(_draw([child for child in _draw(groups, rng) if space.fault(child) is None], rng))


def random_genome(space: SearchSpace, rng: np.random.Generator) -> Genome:
    """Draw a genome: a uniform length, then each block uniformly from those that may stand there.

    A block may stand where the rest can be completed within the limits, not by pools alone.
    """
    length = _draw(space.lengths, rng)
    blocks: Blocks = ()
    while len(blocks) < length:
        left = length - len(blocks) - 1
        menu = [b for b in space.menu(blocks) if space.completable((*blocks, b), left)]
        blocks += (_draw(menu, rng),)
    return Genome(blocks)


def plain_genome(space: SearchSpace) -> Genome | None:
    """Convolutions that grow wider, with a pool between two: what one would build by hand.

    Maps that have more channels than the narrowest convolution are read by two of the widest: it
    would lose much of them. The longest that the space allows; None if it allows none, as a space
    of dense blocks.

    >>> import panas
    >>> str(plain_genome(panas.SearchSpace(shape=(1, 28, 28), max_blocks=6, widths=(16, 32, 64))))
    'c16k3-max-c32k3-max-c64k3'
    """
    if space.dense or not space.pools:
        return None
    kernel, pool = min(space.kernels), PoolBlock(sorted(space.pools)[-1])
    widths = sorted(space.widths)
    rows = [widths]
    if space.shape[0] > widths[0]:
        rows = [[c, c] for c in reversed(widths)]  # the widest that the limits allow
    for row in rows:
        blocks = [b for c in row for b in (ConvBlock(c, kernel), pool)][:-1]
        for n in range(min(len(blocks), space.max_blocks), 0, -1):
            genome = Genome(tuple(blocks[:n]))
            if space.allows(genome):
                return genome
    return None


def crossover(
    space: SearchSpace, a: Genome, b: Genome, rng: np.random.Generator
) -> tuple[Genome, Genome]:
    """Exchange the tails of two genomes, each cut at a point of its own inside it.

    The pair of cuts is drawn uniformly among those that make both children valid; if there is
    none, the parents come back.

    Args:
        space: both children lie in it.
        a: of the space; its head begins the first child.
        b: of the space; its head begins the second child.
        rng: draws the pair of cuts.
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


def _draw(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]
