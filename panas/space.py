"""Which architectures a search may visit, and how it moves among them.

A space bounds the number of blocks and lists the menu of each. Variation is by pure functions of
(space, genome, rng): the four mutations `add`, `remove`, `alter`, `exchange`, and the cut-point
`crossover`. Each enumerates its valid outcomes and draws one uniformly, so that offspring are
valid by construction; no outcome is a copy of its parent, except where a docstring says so.

A pool is allowed while the smaller side of the map is at least 4. Convolutions keep the map's
size, so this only bounds the number of pools, wherever they stand.

Source: DPFNAS, sections III-A1 and III-A2. The menus and bounds are ours: the paper states none
but the kernels 3 and 5 and the two pools.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TypeVar, get_args

import numpy as np

from panas.errors import BadInput
from panas.genome import Block, ConvBlock, Genome, PoolBlock, PoolKind

T = TypeVar("T")
Blocks = tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Bounds and menus of the genomes for images of one shape."""

    shape: tuple[int, int, int]
    """(channels, height, width) of one image, each at least 1."""
    min_blocks: int = 3
    """Fewest blocks, at least 1."""
    max_blocks: int = 10
    """Most blocks, at least min_blocks."""
    widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    """Channels that a convolution may have."""
    kernels: tuple[int, ...] = (3, 5)
    """Kernels that a convolution may have, odd."""
    pools: tuple[PoolKind, ...] = ("avg", "max")
    """Pools that may be used; () for none."""

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise BadInput(
                f"expected shape as (channels, height, width), each at least 1, got {self.shape}; "
                "take it from the data"
            )
        if not 1 <= self.min_blocks <= self.max_blocks:
            raise BadInput(
                f"expected 1 <= min_blocks <= max_blocks, got {self.min_blocks} and "
                f"{self.max_blocks}; swap or raise them"
            )
        for name, menu in (("widths", self.widths), ("kernels", self.kernels)):
            if not menu or len(set(menu)) < len(menu):
                raise BadInput(f"expected {name} distinct and not empty, got {menu}; fix the menu")
        if len(set(self.pools)) < len(self.pools) or not {*self.pools} <= {*get_args(PoolKind)}:
            raise BadInput(f'expected pools from ("avg", "max"), got {self.pools}; fix the menu')
        _ = self.convs  # refuses widths and kernels that no block can have

    @property
    def convs(self) -> tuple[ConvBlock, ...]:
        """The menu of convolutions: every width with every kernel."""
        return tuple(ConvBlock(c, k) for c, k in product(self.widths, self.kernels))

    @property
    def max_pools(self) -> int:
        """The most pools a genome may have: one for each time that a side of 4 or more halves."""
        if not self.pools:
            return 0
        side = min(self.shape[1:])
        return max(0, side.bit_length() - 2)

    def allows(self, genome: Genome) -> bool:
        """Whether the genome lies in this space."""
        return self._fault(genome.blocks) is None

    def check(self, genome: Genome) -> None:
        """Raise BadInput, with the reason, unless the genome lies in this space."""
        if fault := self._fault(genome.blocks):
            raise BadInput(f"expected a genome of this search space, got {genome}: {fault}")

    def menu(self, others: Sequence[Block]) -> tuple[Block, ...]:
        """Every block that may stand beside `others`: a pool only if they leave room for one."""
        pools = tuple(PoolBlock(kind) for kind in self.pools)
        return self.convs + (pools if _pools(others) < self.max_pools else ())

    def _fault(self, blocks: Sequence[Block]) -> str | None:
        if not self.min_blocks <= len(blocks) <= self.max_blocks:
            return f"{len(blocks)} blocks, outside {self.min_blocks} to {self.max_blocks}"
        for block in blocks:
            if isinstance(block, PoolBlock):
                if block.kind not in self.pools:
                    return f"{block} is not among the pools {self.pools}"
            elif block.out_channels not in self.widths or block.kernel_size not in self.kernels:
                return f"{block} is not among widths {self.widths} and kernels {self.kernels}"
        if _pools(blocks) == len(blocks):
            return "no convolution"
        if _pools(blocks) > self.max_pools:
            return f"more pools than the {self.max_pools} that images of {self.shape} allow"
        return None


def random_genome(space: SearchSpace, rng: np.random.Generator) -> Genome:
    """Draw a genome: a uniform length, then each block uniformly from those that may stand there.

    The last block is a convolution where no other is one.
    """
    length = int(rng.integers(space.min_blocks, space.max_blocks + 1))
    blocks: tuple[Block, ...] = ()
    while len(blocks) < length:
        last_chance = len(blocks) == length - 1 and _pools(blocks) == len(blocks)
        blocks += (_draw(space.convs if last_chance else space.menu(blocks), rng),)
    return Genome(blocks)


def add(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Insert a random block at a random position; raises BadInput if the genome is full.

    Both draws are uniform: over the blocks that keep the genome valid, and over the gaps.
    """
    i = _place(_gaps, space, genome, rng)
    block = _draw(space.menu(genome.blocks), rng)
    return Genome((*genome.blocks[:i], block, *genome.blocks[i:]))


def remove(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Delete a random block; raises BadInput if none can go (length, or the last convolution)."""
    return Genome(_without(genome.blocks, _place(_removable, space, genome, rng)))


def alter(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Give a random block another configuration: another width or kernel, or the other pooling.

    Raises BadInput if no block has a second configuration.
    """
    i = _place(_alterable, space, genome, rng)
    block = _draw(_alternatives(space, genome.blocks[i]), rng)
    return Genome((*genome.blocks[:i], block, *genome.blocks[i + 1 :]))


def exchange(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Swap two random blocks that differ; raises BadInput if all blocks are the same."""
    i, j = _place(_unequal_pairs, space, genome, rng)
    blocks = list(genome.blocks)
    blocks[i], blocks[j] = blocks[j], blocks[i]
    return Genome(tuple(blocks))


def mutate(space: SearchSpace, genome: Genome, rng: np.random.Generator) -> Genome:
    """Apply one of the four mutations, drawn uniformly among those with a valid outcome.

    Returns the genome itself if there is none (a space of one genome).
    """
    space.check(genome)
    places = ((add, _gaps), (remove, _removable), (alter, _alterable), (exchange, _unequal_pairs))
    applicable = [mutation for mutation, where in places if where(space, genome)]
    return _draw(applicable, rng)(space, genome, rng) if applicable else genome


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
    cuts = [
        (i, j)
        for i, j in product(range(1, len(a.blocks)), range(1, len(b.blocks)))
        if all(space._fault(child) is None for child in _cross(a.blocks, b.blocks, i, j))
    ]
    if not cuts:
        return a, b
    left, right = _cross(a.blocks, b.blocks, *_draw(cuts, rng))
    return Genome(left), Genome(right)


def _cross(a: Blocks, b: Blocks, i: int, j: int) -> tuple[Blocks, Blocks]:
    return a[:i] + b[j:], b[:j] + a[i:]


def _without(blocks: Blocks, i: int) -> Blocks:
    return blocks[:i] + blocks[i + 1 :]


def _gaps(space: SearchSpace, genome: Genome) -> list[int]:
    room = len(genome.blocks) < space.max_blocks
    return list(range(len(genome.blocks) + 1)) if room else []


def _removable(space: SearchSpace, genome: Genome) -> list[int]:
    blocks = genome.blocks
    return [i for i in range(len(blocks)) if space._fault(_without(blocks, i)) is None]


def _alterable(space: SearchSpace, genome: Genome) -> list[int]:
    return [i for i, block in enumerate(genome.blocks) if _alternatives(space, block)]


def _unequal_pairs(space: SearchSpace, genome: Genome) -> list[tuple[int, int]]:
    pairs = combinations(range(len(genome.blocks)), 2)
    return [(i, j) for i, j in pairs if genome.blocks[i] != genome.blocks[j]]


def _alternatives(space: SearchSpace, block: Block) -> list[Block]:
    sort = type(block)
    return [other for other in space.menu(()) if isinstance(other, sort) and other != block]


def _pools(blocks: Sequence[Block]) -> int:
    return sum(isinstance(block, PoolBlock) for block in blocks)


def _place(
    where: Callable[[SearchSpace, Genome], Sequence[T]],
    space: SearchSpace,
    genome: Genome,
    rng: np.random.Generator,
) -> T:
    space.check(genome)
    places = where(space, genome)
    if not places:
        raise BadInput(f"expected a genome that this mutation can act on, got {genome}; use mutate")
    return _draw(places, rng)


def _draw(choices: Sequence[T], rng: np.random.Generator) -> T:
    return choices[int(rng.integers(len(choices)))]
