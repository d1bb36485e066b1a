"""The blocks of an architecture, and what a custom block must be.

| text | block |
|---|---|
| `c16k3` | depthwise separable residual convolution to 16 channels, kernel 3 x 3 |
| `avg`, `max` | 2 x 2 average or max pooling |
| `dense32`, `gated32`, `residual32` | a layer on all features of a row, to 32 features |
| anything else | a block of a custom one: `BlockType` |

Dense blocks are for rows of a table and for vectors, in which no place is beside another. They
take any map as one vector, and give out a map of 1 x 1.

Source: DPFNAS, section III-A1. Dense and custom blocks are ours.
"""

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, Protocol, cast, get_args, runtime_checkable

from torch import nn

from panas.runtime.errors import BadInput

Shape = tuple[int, int, int]  # (channels, height, width) of an image or a feature map
PoolKind = Literal["avg", "max"]
DenseKind = Literal["dense", "gated", "residual"]
LARGEST = 65_536  # channels and kernel of a block, at most: what a message may ask for
CONV = re.compile(r"c([1-9][0-9]{0,5})k([1-9][0-9]{0,5})")
DENSE = re.compile(rf"({'|'.join(get_args(DenseKind))})([1-9][0-9]{{0,5}})")
_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")


@dataclass(frozen=True)
class ConvBlock:
    """A depthwise separable convolution with a shortcut; the map keeps its size."""

    out_channels: int  # 1 to 65,536
    kernel_size: int  # side of the depthwise kernel, odd, 1 to 65,535

    def __post_init__(self) -> None:
        if not _is_count(self.out_channels):
            raise BadInput(
                f"expected out_channels as an integer from 1 to {LARGEST}, "
                f"got {self.out_channels!r}; choose a width from the menu"
            )
        if not _is_count(self.kernel_size) or self.kernel_size % 2 == 0:
            raise BadInput(
                f"expected kernel_size as an odd integer from 1 to {LARGEST}, "
                f"got {self.kernel_size!r}; choose 3 or 5"
            )

    def __str__(self) -> str:
        return f"c{self.out_channels}k{self.kernel_size}"


@dataclass(frozen=True)
class PoolBlock:
    """A 2 x 2 pooling with stride 2; each side of the map halves, rounded down."""

    kind: PoolKind

    def __post_init__(self) -> None:
        if self.kind not in get_args(PoolKind):
            raise BadInput(f'expected a pool "avg" or "max", got {self.kind!r}; choose one')

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class DenseBlock:
    """A layer on all features of a row: see `panas.architecture.dense`."""

    kind: DenseKind
    out_channels: int  # features that come out, 1 to 65,536

    def __post_init__(self) -> None:
        if self.kind not in get_args(DenseKind):
            raise BadInput(
                f"expected a kind of {', '.join(get_args(DenseKind))}, got {self.kind!r}; "
                "choose one"
            )
        if not _is_count(self.out_channels):
            raise BadInput(
                f"expected out_channels as an integer from 1 to {LARGEST}, "
                f"got {self.out_channels!r}; choose a width from the menu"
            )

    def __str__(self) -> str:
        return f"{self.kind}{self.out_channels}"


@runtime_checkable
class BlockType(Protocol):
    """A custom block: a frozen value whose `str` is its text in a genome, here `dil6`.

    It must be hashable and equal to its copies (a frozen dataclass is), and at the top level of a
    module if searches run in several processes. Under DP its module must not mix samples.
    `SearchSpace(..., blocks=(Squeeze(4),))` lets a search use it; docs/how-to/search.md shows one.
    """

    def __hash__(self) -> int: ...

    def build(self, in_channels: int) -> nn.Module:
        """Build a fresh module, (n, in_channels, h, w) to (n, out_channels, h', w')."""

    def out_channels(self, in_channels: int) -> int:
        """Channels that come out, 1 to 65,536."""

    def out_side(self, side: int) -> int:
        """Height or width that comes out, from 1 to `side`: a map may shrink, but not grow."""


Block = ConvBlock | DenseBlock | PoolBlock | BlockType
BUILT_IN = (ConvBlock, DenseBlock, PoolBlock)
POOLS: dict[str, PoolBlock] = {"avg": PoolBlock("avg"), "max": PoolBlock("max")}


def shape_after(block: Block, shape: Shape) -> Shape:
    """The shape behind a block; BadInput if nothing is left of the map."""
    c, h, w = shape
    if isinstance(block, ConvBlock):
        return block.out_channels, h, w
    if isinstance(block, DenseBlock):
        return block.out_channels, 1, 1
    if isinstance(block, PoolBlock):
        if min(h, w) < 2:
            raise BadInput(
                f"expected maps of at least 2 x 2 before each pool, got {h} x {w}; use fewer pools"
            )
        return c, h // 2, w // 2
    after = block.out_channels(c), block.out_side(h), block.out_side(w)
    calls = (f"out_channels({c})", LARGEST), (f"out_side({h})", h), (f"out_side({w})", w)
    for out, (call, most) in zip(after, calls, strict=True):
        if not _is_count(out) or out > most:
            raise BadInput(
                f"expected {call} of block {block} as an integer from 1 to {most}, got {out!r}; "
                "fix it or use it less often"
            )
    return after


def check_block(block: object) -> None:
    """Raise BadInput unless `block` can be a custom block in a genome."""
    try:
        settled = hash(copy(block)) == hash(block) and copy(block) == block
    except TypeError:
        settled = False
    if not settled:
        raise BadInput(
            f"expected a block that is hashable and equal to its copies, got a "
            f"{type(block).__name__} that is not; make it a frozen dataclass"
        )
    if not isinstance(block, BlockType):
        raise BadInput(
            "expected a block with the methods build, out_channels and out_side, got "
            f"{type(block).__name__}; see panas.architecture.blocks.BlockType"
        )
    text = str(block)
    if not _TEXT.fullmatch(text) or text in POOLS or _is_taken(text):
        raise BadInput(
            "expected a block's text as a letter, then letters, digits, _ or ., and unlike those "
            f"of the built-in blocks, got {text!r} of a "
            f"{type(block).__name__}; change its __str__"
        )


def by_text(blocks: Sequence[BlockType]) -> dict[str, BlockType]:
    """Custom blocks by their texts; BadInput if two share one, or one is invalid."""
    for block in blocks:
        check_block(block)
    own = {str(block): block for block in blocks}
    if len(own) < len(blocks):
        raise BadInput(
            f"expected blocks of different texts, got {', '.join(map(str, blocks))}; "
            "let __str__ tell them apart"
        )
    return own


def built_in(text: str) -> ConvBlock | DenseBlock | PoolBlock | None:
    """The built-in block of a text; None if it has none."""
    if text in POOLS:
        return POOLS[text]
    if match := CONV.fullmatch(text):
        return ConvBlock(int(match[1]), int(match[2]))
    if match := DENSE.fullmatch(text):
        return DenseBlock(cast(DenseKind, match[1]), int(match[2]))
    return None


def _is_taken(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (CONV, DENSE))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST
