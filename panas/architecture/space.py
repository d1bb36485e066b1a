"""Which architectures a search may visit.

Pictures have convolutions and pools; rows of a table and vectors have dense blocks in their place,
since no column is beside another (`space_of`).

A block that shrinks the map (a pool, or a custom one) is allowed while the smaller side
of the map is at least 4. Among built-in blocks this only bounds the number of pools.

Source: DPFNAS, section III-A1. The menus and bounds are ours: the paper states none
but the kernels 3 and 5 and the two pools.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from typing import Any, get_args

from panas.architecture.blocks import (
    Block,
    BlockType,
    ConvBlock,
    DenseBlock,
    DenseKind,
    PoolBlock,
    PoolKind,
    Shape,
    by_text,
    shape_after,
)
from panas.architecture.cost import block_cost
from panas.architecture.genome import Genome
from panas.architecture.limits import Blocks, FeasibilityTable, Limits
from panas.runtime.errors import BadInput
from panas.runtime.typed import check_fields

ROW_BLOCKS = 1
"""Blocks of a network of rows, at least: one dense block is a network with a hidden layer."""


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Bounds and menus of the genomes for images of one shape.

    >>> import panas
    >>> space = panas.SearchSpace(shape=(1, 8, 8), max_blocks=4, widths=(16, 32))
    >>> space.max_pools, space.allows(panas.Genome.parse("c16k3-max-c32k5"))
    (2, True)
    """

    shape: Shape  # (channels, height, width) of one image, each at least 1
    min_blocks: int = 3  # at least 1
    max_blocks: int = 10  # at least min_blocks
    widths: tuple[int, ...] = (16, 32, 64, 128, 256)  # channels of a convolution
    kernels: tuple[int, ...] = (3, 5)  # of a convolution, odd
    pools: tuple[PoolKind, ...] = ("avg", "max")
    dense: tuple[DenseKind, ...] = ()  # kinds of dense blocks, in place of convolutions and pools
    blocks: tuple[BlockType, ...] = ()  # custom ones
    limits: Limits | None = None  # the most that a genome may cost

    def __post_init__(self) -> None:
        check_fields(self)
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
        if len(set(self.dense)) < len(self.dense) or not {*self.dense} <= {*get_args(DenseKind)}:
            raise BadInput(
                f"expected dense from {get_args(DenseKind)}, got {self.dense}; fix the menu"
            )
        _ = self.convs  # refuses widths and kernels that no block can have
        by_text(self.blocks)
        for block, channels in product(self.blocks, (self.shape[0], *self.widths)):
            block_cost(block, (channels, *self.shape[1:]), "group")  # refuses what cannot be built
        if self._pricing is not None and not self.lengths:
            raise self._pricing.nothing_fits(range(self.min_blocks, self.max_blocks + 1))

    @property
    def convs(self) -> tuple[ConvBlock, ...]:
        """Every width with every kernel."""
        return tuple(ConvBlock(c, k) for c, k in product(self.widths, self.kernels))

    @cached_property
    def choices(self) -> tuple[Block, ...]:
        """Every block that a genome may have: convolutions and pools, or dense; custom blocks."""
        if self.dense:
            dense = tuple(DenseBlock(kind, k) for kind, k in product(self.dense, self.widths))
            return (*dense, *self.blocks)
        pools = tuple(PoolBlock(kind) for kind in self.pools)
        return (*self.convs, *pools, *self.blocks)

    @property
    def max_pools(self) -> int:
        """The most pools a genome may have: one for each time that a side of 4 or more halves."""
        return max(0, min(self.shape[1:]).bit_length() - 2) if self.pools else 0

    def allows(self, genome: Genome) -> bool:
        """Whether the genome lies in this space."""
        return self.fault(genome.blocks) is None

    def check(self, genome: Genome) -> None:
        """Raise BadInput unless the genome lies in this space."""
        if fault := self.fault(genome.blocks):
            raise BadInput(f"expected a genome of this search space, got {genome}: {fault}")

    def menu(self, before: Sequence[Block]) -> tuple[Block, ...]:
        """Every block that may follow `before`."""
        shape = self.shape
        for block in before:
            shape = shape_after(block, shape)
        return tuple(block for block in self.choices if self.after(block, shape))

    def after(self, block: Block, shape: Shape) -> Shape | None:
        """The shape behind a block; None where it may not stand."""
        if isinstance(block, ConvBlock):
            return block.out_channels, *shape[1:]
        if isinstance(block, DenseBlock):
            return shape_after(block, shape)
        try:
            after = shape_after(block, shape)
        except BadInput:
            return None
        return None if after[1:] != shape[1:] and min(shape[1:]) < 4 else after

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without what was computed from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _set(self) -> frozenset[Block]:
        return frozenset(self.choices)

    @cached_property
    def _pricing(self) -> FeasibilityTable | None:
        if self.limits is None:
            return None
        return FeasibilityTable(self.limits, self.shape, self.choices, self.after)

    @cached_property
    def lengths(self) -> list[int]:
        """Numbers of blocks that a genome of this space may have, limits included."""
        return [n for n in range(self.min_blocks, self.max_blocks + 1) if self.completable((), n)]

    def completable(self, blocks: Blocks, left: int) -> bool:
        """Whether `left` blocks more can make a genome of what stands there validly."""
        if self._pricing is not None:
            return self._pricing.completable(blocks, left)
        return left > 0 or _pools(blocks) < len(blocks)

    def fault(self, blocks: Blocks) -> str | None:
        """Why blocks are no genome of this space, in words; None if they are one."""
        if not self.min_blocks <= len(blocks) <= self.max_blocks:
            return f"{len(blocks)} blocks, outside {self.min_blocks} to {self.max_blocks}"
        if not self._set.issuperset(blocks):
            return f"it has blocks beside the menu {'-'.join(map(str, self.choices))}"
        if _pools(blocks) == len(blocks):
            return "no convolution"
        if _pools(blocks) > self.max_pools:
            return f"more pools than the {self.max_pools} that images of {self.shape} allow"
        if self.blocks:
            shape: Shape = self.shape
            for block in blocks:
                if (after := self.after(block, shape)) is None:
                    return f"{block} may not stand on a map of {shape}"
                shape = after
        return self._pricing.excess(blocks) if self._pricing is not None else None


def space_of(
    shape: Shape,
    *,
    rows: bool,
    min_blocks: int = SearchSpace.min_blocks,
    max_blocks: int = SearchSpace.max_blocks,
    widths: tuple[int, ...] = SearchSpace.widths,
    kernels: tuple[int, ...] = SearchSpace.kernels,
) -> SearchSpace:
    """The space for samples of one kind: convolutions for pictures, dense blocks for rows.

    Args:
        shape: (channels, height, width) of a network's input.
        rows: whether a sample is a row of a table or a vector.
        min_blocks: of a network.
        max_blocks: of a network.
        widths: channels or features of a block.
        kernels: of convolutions.
    """
    return SearchSpace(
        shape=shape,
        min_blocks=min(min_blocks, ROW_BLOCKS) if rows else min_blocks,
        max_blocks=max_blocks,
        widths=widths,
        kernels=kernels,
        dense=get_args(DenseKind) if rows else (),
    )


def _pools(blocks: Sequence[Block]) -> int:
    return sum(isinstance(block, PoolBlock) for block in blocks)
