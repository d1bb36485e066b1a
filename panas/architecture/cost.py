"""What a genome costs: parameters, multiply-accumulates and bytes, in closed form.

A convolution from c to k channels with kernel s on an h x w map, by parts (biases: none):

| part | parameters | multiply-accumulates |
|---|---|---|
| depthwise | c s^2 | h w c s^2 |
| pointwise | c k | h w c k |
| shortcut, where c != k | c k | h w c k |
| norm | 2 k | not counted |

A dense block from f features to k: each matrix counts once.

| block | matrices, biases aside | norm |
|---|---|---|
| dense | f x k | 2 k |
| gated | twice f x k | 2 k |
| residual | f x k, k x k, and f x k without a bias where f != k | 2 k |

Then come the adaptation layer `Linear(C_last, d)` and the head `Linear(d, classes)`, with biases.
Norms, activations and pools count no multiply-accumulates, as is the custom. Custom blocks are
counted on torch's meta device, which computes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal

import torch

from panas.architecture.blocks import (
    Block,
    BlockType,
    ConvBlock,
    DenseBlock,
    PoolBlock,
    Shape,
    shape_after,
)
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec, Norm
from panas.runtime.errors import BadInput

Size = Literal["parameters", "macs", "bytes"]

FLOAT32, COUNTER = 4, 8  # bytes of a number, and of a BatchNorm's int64 count of batches


@dataclass(frozen=True)
class Cost:
    """The cost of a bottom and its head, on one image."""

    parameters: int  # trainable
    macs: int  # multiply-accumulates of one forward pass
    bytes: int  # of the float32 state: parameters, and BatchNorm's running statistics


@dataclass(frozen=True)
class LayerCost:
    """One line of a network's cost table."""

    name: str  # the block's text, or "adapt" or "head"
    out_shape: tuple[int, ...]  # for one image; one number behind "adapt" and "head"
    parameters: int
    macs: int
    bytes: int


def cost(genome: Genome, spec: NetworkSpec) -> Cost:
    """What a genome's bottom and head cost; BadInput if the pools shrink the map to nothing."""
    rows = cost_table(genome, spec)
    return Cost(*(sum(getattr(row, f.name) for row in rows) for f in fields(Cost)))


def cost_table(genome: Genome, spec: NetworkSpec) -> list[LayerCost]:
    """Where the cost lies: one line a block, then "adapt" and "head"."""
    shape, rows = spec.shape, list[LayerCost]()
    for block in genome.blocks:
        part = block_cost(block, shape, spec.norm)
        shape = shape_after(block, shape)
        rows.append(LayerCost(str(block), shape, part.parameters, part.macs, part.bytes))
    ends = ("adapt", shape[0], spec.width), ("head", spec.width, spec.classes)
    for name, inputs, outputs in ends:
        part = linear_cost(inputs, outputs)
        rows.append(LayerCost(name, (outputs,), part.parameters, part.macs, part.bytes))
    return rows


def size_of(spec: NetworkSpec, size: Size | None) -> Callable[[Genome], float] | None:
    """How large a genome's network is, as a second objective of a search; None for none."""
    if size is None:
        return None
    return lambda genome: float(getattr(cost(genome, spec), size))


def linear_cost(inputs: int, outputs: int) -> Cost:
    """The cost of a linear layer with bias."""
    parameters = (inputs + 1) * outputs
    return Cost(parameters, inputs * outputs, parameters * FLOAT32)


@lru_cache(maxsize=1 << 16)
def block_cost(block: Block, shape: Shape, norm: Norm) -> Cost:
    """The cost of one block on a map of `shape`; BadInput where `shape_after` raises it.

    Args:
        block: a built-in or a custom block.
        shape: (channels, height, width) of the map before it.
        norm: "group" or "batch", of a convolution or a dense block.
    """
    c, h, w = shape
    k, *sides = shape_after(block, shape)
    if isinstance(block, PoolBlock):
        return Cost(0, 0, 0)
    if isinstance(block, DenseBlock):
        return _dense_cost(block, c * h * w, norm)
    if not isinstance(block, ConvBlock):
        return _counted(block, shape, (k, *sides))
    weights = c * block.kernel_size**2 + c * k * (1 if c == k else 2)
    return Cost(
        weights + 2 * k, h * w * weights, (weights + 2 * k) * FLOAT32 + _statistics(k, norm)
    )


def _dense_cost(block: DenseBlock, f: int, norm: Norm) -> Cost:
    k = block.out_channels
    weights, biases = {
        "dense": (f * k, k),
        "gated": (2 * f * k, 2 * k),
        "residual": (f * k + k * k + (f != k) * f * k, 2 * k),
    }[block.kind]
    parameters = weights + biases + 2 * k
    return Cost(parameters, weights, parameters * FLOAT32 + _statistics(k, norm))


def _statistics(k: int, norm: Norm) -> int:
    """Bytes of what a norm of k channels counts beside its parameters."""
    return 2 * k * FLOAT32 + COUNTER if norm == "batch" else 0


def _counted(block: BlockType, shape: Shape, after: tuple[int, ...]) -> Cost:
    """Count a custom block: its weights, its state, its convolutions and matrix products."""
    from torch.utils.flop_counter import FlopCounterMode  # here: it loads a compiler

    try:
        with torch.device("meta"), torch.no_grad():
            module = block.build(shape[0]).eval()
            with FlopCounterMode(display=False) as counter:
                out_shape = tuple(module(torch.zeros(1, *shape)).shape)
    except Exception as e:
        raise BadInput(
            f"expected block {block} to build and run for a map of {shape} on torch's meta device, "
            f"got {type(e).__name__}: {' '.join(str(e).split())}; correct its build"
        ) from e
    if out_shape != (1, *after):
        raise BadInput(
            f"expected block {block} to turn a map of {shape} into {after}, as it says, got "
            f"{out_shape[1:]}; correct its build, out_channels or out_side"
        )
    return Cost(
        parameters=sum(p.numel() for p in module.parameters()),
        macs=counter.get_total_flops() // 2,
        bytes=sum(t.numel() * t.element_size() for t in module.state_dict().values()),
    )
