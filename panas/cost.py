"""What a genome costs: parameters, multiply-accumulates and bytes in closed form; latency measured.

A convolution from c to k channels with kernel s on an h x w map, by parts (biases: none):

| part | parameters | multiply-accumulates |
|---|---|---|
| depthwise | c s^2 | h w c s^2 |
| pointwise | c k | h w c k |
| shortcut, where c != k | c k | h w c k |
| norm | 2 k | not counted |

Then come the adaptation layer `Linear(C_last, d)` and the head `Linear(d, classes)`, with biases.
Norms, activations and pools are not counted as multiply-accumulates, as is the custom.
"""

import time
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from panas.errors import BadInput
from panas.genome import Genome, PoolBlock
from panas.network import Norm

FLOAT32 = 4
COUNTER = 8
"""Bytes of a BatchNorm's int64 count of batches."""


@dataclass(frozen=True)
class Cost:
    """The cost of a bottom and its head, on one image."""

    parameters: int
    """Trainable parameters."""
    macs: int
    """Multiply-accumulates of one forward pass."""
    bytes: int
    """Size of the float32 state: parameters, and BatchNorm's running statistics."""


def cost(
    genome: Genome, *, shape: tuple[int, int, int], width: int, classes: int, norm: Norm = "group"
) -> Cost:
    """Count what the genome's bottom and head cost, without building them.

    Args:
        genome: the architecture.
        shape: (channels, height, width) of one image, each at least 1.
        width: d, the width of the representation, at least 1.
        classes: outputs of the head, at least 1.
        norm: "group" or "batch"; only the latter has running statistics.

    Raises:
        BadInput: if a size is below 1, or the pools shrink the map to nothing.

    """
    if min(*shape, width, classes) < 1:
        raise BadInput(
            f"expected shape, width and classes of at least 1, got {shape}, {width} and {classes}; "
            "take them from the data"
        )
    c, h, w = shape
    parameters = macs = statistics = 0
    for block in genome.blocks:
        if isinstance(block, PoolBlock):
            h, w = h // 2, w // 2
            if min(h, w) < 1:
                raise BadInput(
                    f"expected maps of at least 2 x 2 before each pool, got {genome} on {shape}; "
                    "use fewer pools"
                )
            continue
        k = block.out_channels
        weights = c * block.kernel_size**2 + c * k * (1 if c == k else 2)
        parameters += weights + 2 * k
        macs += h * w * weights
        if norm == "batch":
            statistics += 2 * k * FLOAT32 + COUNTER
        c = k
    parameters += (c + 1) * width + (width + 1) * classes
    macs += c * width + width * classes
    return Cost(parameters=parameters, macs=macs, bytes=parameters * FLOAT32 + statistics)


def latency_ms(
    module: nn.Module, shape: tuple[int, int, int], *, batch: int = 1, repeats: int = 20
) -> float:
    """Measure the median time of a forward pass, in milliseconds, on the module's own device.

    Args:
        module: what to time, in evaluation mode; its mode is put back.
        shape: (channels, height, width) of one image.
        batch: images a pass, at least 1.
        repeats: timed passes, at least 1, after two that are not.

    """
    if batch < 1 or repeats < 1:
        raise BadInput(
            f"expected batch and repeats of at least 1, got {batch} and {repeats}; raise them"
        )
    like = next(module.parameters(), torch.zeros(0))
    x = torch.zeros(batch, *shape, dtype=like.dtype, device=like.device)
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            times = [_time_ms(module, x) for _ in range(repeats + 2)]
    finally:
        for m, mode in modes:
            m.training = mode
    return median(times[2:])


def _time_ms(module: nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter()
    module(x)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return 1e3 * (time.perf_counter() - start)
