"""The encoder's network: fixed Gabor moduli, blocks that a search has chosen, averages on a grid.

    picture in [0, 1] -> moduli of `panas.features.gabor` and colours, 16 x 16
                      -> the genome's blocks -> averages on `GRID` x `GRID` places -> a vector

A genome is the project's own (`panas.architecture`), with one block of ours beside: a full
convolution, since separable ones are slow on a CPU for what they learn.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from experiments.encoder.processes import SIDE
from panas.architecture.genome import Genome
from panas.architecture.limits import Constraints, Limits
from panas.architecture.network import NetworkSpec, build_bottom
from panas.architecture.space import SearchSpace
from panas.features.gabor import bank_of, gabor_filters

GRID = 2
INPUT = 51  # channels behind the stem: 16 moduli and 1 average of each of 3 colours
HALF = SIDE // 2
LARGE = 1000  # numbers of a tensor that is kept in 16 bits
PROJECTED = 128  # numbers that the loss compares
WIDTHS, FULL = (64, 128), (32, 64, 128)
MOST_MACS, MOST_PARAMETERS = 12_500_000, 430_000


class Stem(nn.Module):
    """Square roots of Gabor moduli of luminance and opponent colours, and the colours' averages."""

    filters: Tensor
    colours: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.side = bank_of((3, SIDE, SIDE)).side
        self.register_buffer("filters", gabor_filters(self.side))
        s = 3**-0.5, 2**-0.5, 6**-0.5
        colours = [[s[0]] * 3, [s[1], -s[1], 0.0], [s[2], s[2], -2 * s[2]]]
        self.register_buffer("colours", torch.tensor(colours))

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n 51 h h"]:
        """The maps of pictures in [-1, 1]."""
        x = torch.einsum("ij,njhw->nihw", self.colours, x)
        n = x.shape[0]
        flat = x.reshape(n * 3, 1, SIDE, SIDE)
        answers = F.conv2d(flat, self.filters, padding=self.side // 2, stride=2)
        squares = answers[:, 0::2].square() + answers[:, 1::2].square()
        moduli = (squares + 1e-8).sqrt().sqrt().reshape(n, -1, HALF, HALF)
        return torch.cat([moduli, F.avg_pool2d(x, 2)], 1)


@dataclass(frozen=True)
class FullBlock:
    """A 3 x 3 convolution, norm and ReLU, with a shortcut where channels stay."""

    channels: int

    def __str__(self) -> str:
        return f"full{self.channels}"

    def build(self, in_channels: int) -> nn.Module:
        """A fresh module."""
        return Full(in_channels, self.channels)

    def out_channels(self, in_channels: int) -> int:
        """Channels that come out."""
        return self.channels

    def out_side(self, side: int) -> int:
        """The map keeps its size."""
        return side


class Full(nn.Module):
    """What `FullBlock` builds.

    Args:
        inputs: channels that come in.
        outputs: channels that come out.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.adds = inputs == outputs

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k h w"]:
        """The map of the same size."""
        z = F.relu(self.norm(self.convolution(x)))
        return z + x if self.adds else z


BLOCKS = tuple(FullBlock(c) for c in FULL)


def space() -> SearchSpace:
    """Where architectures are searched."""
    spec = NetworkSpec(shape=(INPUT, HALF, HALF), classes=1, width=1, norm="batch")
    limits = Limits(spec, Constraints(macs=MOST_MACS, parameters=MOST_PARAMETERS))
    return SearchSpace(
        shape=spec.shape,
        min_blocks=3,
        max_blocks=8,
        widths=WIDTHS,
        kernels=(3, 5),
        blocks=BLOCKS,
        limits=limits,
    )


class EncoderNetwork(nn.Module):
    """From pictures in [-1, 1] to vectors.

    Args:
        genome: of the blocks.
        generator: of the first weights.
    """

    def __init__(self, genome: Genome, generator: torch.Generator) -> None:
        super().__init__()
        self.stem, self.norm = Stem(), nn.BatchNorm2d(INPUT)
        shape = (INPUT, HALF, HALF)
        bottom = build_bottom(genome, shape=shape, width=1, norm="batch", generator=generator)
        self.blocks = bottom.blocks
        self.outputs = bottom.adapt.in_features * GRID**2

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n e"]:
        """Vectors of pictures."""
        maps = self.blocks(self.norm(self.stem(x)))
        return F.adaptive_avg_pool2d(maps, GRID).flatten(1)


class Stored(nn.Module):
    """A network whose large weights are kept in 16 bits, and used in 32.

    Args:
        network: is rounded.
    """

    def __init__(self, network: EncoderNetwork) -> None:
        super().__init__()
        self.used = [network]  # in a list: its weights are not this module's
        self.names = []
        for name, tensor in network.state_dict().items():
            large = tensor.numel() >= LARGE and not name.startswith("stem")
            self.names.append(name)
            self.register_buffer(f"w{len(self.names)}", tensor.half() if large else tensor)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n e"]:
        """Vectors of pictures."""
        weights = {name: getattr(self, f"w{i}") for i, name in enumerate(self.names, start=1)}
        weights = {name: w.float() if w.is_floating_point() else w for name, w in weights.items()}
        return functional_call(self.used[0], weights, (x,))


def export(network: EncoderNetwork, path: Path) -> int:
    """Write a program that `--encoder` takes; its bytes."""
    stored = Stored(network.eval().to(memory_format=torch.contiguous_format)).eval()
    program = torch.export.export(stored, (torch.zeros(1, 3, SIDE, SIDE),))
    content = io.BytesIO()
    said = '{"size": 32, "channels": 3, "mean": 0.5, "std": 0.5}'
    torch.export.save(program, content, extra_files={"encoder.json": said})
    path.write_bytes(content.getvalue())
    return len(content.getvalue())
