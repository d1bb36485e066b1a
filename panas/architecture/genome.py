"""What an architecture is: a sequence of blocks, written `c16k3-max-c32k5`.

Source: DPFNAS, section III-A1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from panas.architecture.blocks import (
    BUILT_IN,
    POOLS,
    Block,
    BlockType,
    ConvBlock,
    DenseBlock,
    PoolBlock,
    built_in,
    by_text,
    check_block,
)
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class Genome:
    """An architecture: its blocks, input side first, not all of them pools.

    >>> str(Genome.parse("c16k3-max-c32k5"))
    'c16k3-max-c32k5'
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, tuple):
            raise BadInput(f"expected a tuple of blocks, got {self.blocks!r}; build it from blocks")
        for block in self.blocks:
            if not isinstance(block, BUILT_IN):
                check_block(block)
        if all(isinstance(b, PoolBlock) for b in self.blocks):
            raise BadInput(f"expected at least one convolution, got {str(self)!r}; add one")

    def __str__(self) -> str:
        return "-".join(str(block) for block in self.blocks)

    @classmethod
    def parse(cls, text: str, blocks: Sequence[BlockType] = ()) -> "Genome":
        """The genome that `text` writes, as `str` writes it.

        Args:
            text: the blocks' texts, joined by "-".
            blocks: the custom blocks that it may name.

        Raises:
            BadInput: if it writes no genome.

        """
        if not isinstance(text, str):
            raise BadInput(f"expected a genome as text, got {type(text).__name__}; give its str()")
        own = by_text(blocks)
        return cls(tuple(_parse_block(part, text, own) for part in text.split("-")))

    def to_json(self) -> list[dict[str, str | int]]:
        """The genome as plain JSON: one object per block, in order."""
        return [_block_to_json(block) for block in self.blocks]

    @classmethod
    def from_json(cls, data: object, blocks: Sequence[BlockType] = ()) -> "Genome":
        """The genome that `to_json` wrote, with `blocks` as in `parse`; else raises BadInput."""
        if not isinstance(data, Sequence) or isinstance(data, str | bytes):
            raise BadInput(f"expected a list of blocks, got {data!r}; write it with to_json")
        own = by_text(blocks)
        return cls(tuple(_block_from_json(item, own) for item in data))


def _parse_block(part: str, text: str, own: dict[str, BlockType]) -> Block:
    if block := built_in(part):
        return block
    if part in own:
        return own[part]
    known = ", ".join(["c16k3", "avg", "dense32", *own])
    raise BadInput(
        f"expected blocks such as {known} or max joined by -, got {text!r}; check {part!r}, or "
        "give the block that it names as one of `blocks`"
    )


def _block_to_json(block: Block) -> dict[str, str | int]:
    if isinstance(block, ConvBlock):
        return {"type": "conv"} | vars(block)
    if isinstance(block, DenseBlock):
        return {"type": "dense"} | vars(block)
    if isinstance(block, PoolBlock):
        return {"type": "pool"} | vars(block)
    return {"type": "own", "text": str(block)}


def _block_from_json(item: object, own: dict[str, BlockType]) -> Block:
    match item:
        case {"type": "conv", "out_channels": int(k), "kernel_size": int(s), **rest} if not rest:
            return ConvBlock(k, s)
        case {"type": "pool", "kind": "avg" | "max" as kind, **rest} if not rest:
            return POOLS[kind]
        case {
            "type": "dense",
            "kind": "dense" | "gated" | "residual" as kind,
            "out_channels": int(k),
            **rest,
        } if not rest:
            return DenseBlock(kind, k)
        case {"type": "own", "text": str(text), **rest} if not rest and text in own:
            return own[text]
    raise BadInput(
        f"expected a conv, pool or dense block, or one of `blocks`, got {item!r}; write it with "
        "to_json"
    )
