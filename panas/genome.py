"""What an architecture is: a sequence of blocks, written `c16k3-max-c32k5`.

| text | block |
|---|---|
| `c16k3` | depthwise separable residual convolution to 16 channels, kernel 3 x 3 |
| `avg`, `max` | 2 x 2 average or max pooling |

A genome is frozen and hashable, and an invalid one cannot be built. Which genomes a search may
visit (lengths, menus, image size) is `panas.space`; the network of a genome is `panas.network`.

Source: DPFNAS, section III-A1.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from panas.errors import BadInput

PoolKind = Literal["avg", "max"]
LARGEST = 65_536
"""Upper bound of a block's channels and kernel: what a message may ask a receiver to build."""

_CONV = re.compile(r"c([1-9][0-9]{0,5})k([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class ConvBlock:
    """A depthwise separable convolution with a shortcut; the map keeps its size."""

    out_channels: int
    """Channels out, 1 to 65,536."""
    kernel_size: int
    """Side of the depthwise kernel, odd, 1 to 65,535."""

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
    """Which pooling: "avg" or "max"."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(PoolKind):
            raise BadInput(f'expected a pool "avg" or "max", got {self.kind!r}; choose one')

    def __str__(self) -> str:
        return self.kind


Block = ConvBlock | PoolBlock
_POOLS: dict[str, PoolBlock] = {"avg": PoolBlock("avg"), "max": PoolBlock("max")}


@dataclass(frozen=True)
class Genome:
    """An architecture: its blocks, input side first, at least one of them a convolution.

    >>> str(Genome.parse("c16k3-max-c32k5"))
    'c16k3-max-c32k5'
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, tuple) or not all(isinstance(b, Block) for b in self.blocks):
            raise BadInput(f"expected a tuple of blocks, got {self.blocks!r}; build it from blocks")
        if not any(isinstance(b, ConvBlock) for b in self.blocks):
            raise BadInput(f"expected at least one convolution, got {str(self)!r}; add one")

    def __str__(self) -> str:
        return "-".join(str(block) for block in self.blocks)

    @classmethod
    def parse(cls, text: str) -> "Genome":
        """The genome that `text` writes, as `str` writes it; raises BadInput if it writes none."""
        return cls(tuple(_parse_block(part, text) for part in text.split("-")))

    def to_json(self) -> list[dict[str, str | int]]:
        """The genome as plain JSON: one object per block, in order."""
        return [
            {"type": "conv", "out_channels": b.out_channels, "kernel_size": b.kernel_size}
            if isinstance(b, ConvBlock)
            else {"type": "pool", "kind": b.kind}
            for b in self.blocks
        ]

    @classmethod
    def from_json(cls, data: object) -> "Genome":
        """The genome that `to_json` wrote; raises BadInput for anything else."""
        if not isinstance(data, Sequence) or isinstance(data, str | bytes):
            raise BadInput(f"expected a list of blocks, got {data!r}; write it with to_json")
        return cls(tuple(_block_from_json(item) for item in data))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST


def _parse_block(part: str, text: str) -> Block:
    if part in _POOLS:
        return _POOLS[part]
    if match := _CONV.fullmatch(part):
        return ConvBlock(int(match[1]), int(match[2]))
    raise BadInput(
        f"expected blocks such as c16k3, avg or max joined by -, got {text!r}; check {part!r}"
    )


def _block_from_json(item: object) -> Block:
    match item:
        case {"type": "conv", "out_channels": int(channels), "kernel_size": int(kernel), **rest}:
            if not rest:
                return ConvBlock(channels, kernel)
        case {"type": "pool", "kind": "avg" | "max" as kind, **rest}:
            if not rest:
                return _POOLS[kind]
    raise BadInput(f"expected a conv or a pool block, got {item!r}; write it with to_json")
