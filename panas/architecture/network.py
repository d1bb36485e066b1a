"""From a genome to a network: its bottom, which is blocks and adaptation layer.

The adaptation layer gives every bottom the same output width, so that one head fits all: global
average pooling, `Linear(C_last, d)`, ReLU.

| symbol | name |
|---|---|
| d | `width`, the width of a representation |
| z = bottom(x) | representation, shape (n, d) |
| u = z / max(norm(z), tiny) | unit representation, what a sound release reads |

Privacy: the paper's BatchNorm couples the samples of a batch, so that clipping each sample's
gradient does not bound what one sample can do. Under DP the norm is "group".

Source: DPFNAS, section III-A1.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.blocks import Block, ConvBlock, DenseBlock, PoolBlock, Shape, shape_after
from panas.architecture.dense import build_dense
from panas.architecture.genome import Genome
from panas.architecture.head import Head, HeadInit, build_head
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator
from panas.runtime.typed import check_fields, checked

Norm = Literal["group", "batch"]


def norm_of(channels: int, norm: Norm) -> nn.Module:
    """A norm of so many channels of a map."""
    # No group may be one channel: on a 1 x 1 map that is one number, of variance 0.
    groups = math.gcd(channels, 8) if 8 % channels else 1
    return nn.GroupNorm(groups, channels) if norm == "group" else nn.BatchNorm2d(channels)


def norm_of_row(features: int, norm: Norm) -> nn.Module:
    """A norm of all features of a row together."""
    return nn.GroupNorm(1, features) if norm == "group" else nn.BatchNorm2d(features)


class SeparableBlock(nn.Module):
    """Depthwise k x k, pointwise 1 x 1, norm, ReLU, and a shortcut around them.

    Args:
        inputs: channels of the map before it, at least 1.
        block: kernel size k and output channels.
        norm: "group" (allowed under DP) or "batch".
    """

    def __init__(self, inputs: int, block: ConvBlock, norm: Norm) -> None:
        super().__init__()
        k, outputs = block.kernel_size, block.out_channels
        self.depthwise = nn.Conv2d(inputs, inputs, k, padding=k // 2, groups=inputs, bias=False)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm = norm_of(outputs, norm)
        self.shortcut = (
            nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, bias=False)
        )

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k h w"]:
        """The map of the same size with the block's channels."""
        return F.relu(self.norm(self.pointwise(self.depthwise(x)))) + self.shortcut(x)


class Bottom(nn.Module):
    """Blocks and adaptation layer: images to representations, of norm at most 1 with `unit`.

    Args:
        blocks: modules, input side first.
        last: channels of the last map, at least 1.
        width: d, at least 1.
        unit: scale each representation to norm 1.
    """

    def __init__(self, blocks: list[nn.Module], last: int, width: int, unit: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        self.adapt = nn.Linear(last, width)
        self.unit = unit

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        """Representations of a batch of images."""
        z = F.relu(self.adapt(self.blocks(x).mean(dim=(2, 3))))
        return F.normalize(z, dim=1) if self.unit else z


@checked
def build_bottom(
    genome: Genome,
    *,
    shape: tuple[int, int, int],
    width: int,
    norm: Norm = "group",
    unit: bool = False,
    generator: torch.Generator | None = None,
) -> Bottom:
    """Build the bottom of a genome.

    Args:
        genome: the architecture.
        shape: (channels, height, width) of one image.
        width: d, the width of the representation, at least 1.
        norm: "group" (allowed under DP) or "batch".
        unit: scale each representation to norm 1.
        generator: source of the initial weights; None takes torch's global one.

    Raises:
        BadInput: if the map shrinks to nothing.

    >>> import torch
    >>> import panas
    >>> genome = panas.Genome.parse("c8k3-max-c16k3")
    >>> bottom = panas.build_bottom(genome, shape=(1, 8, 8), width=4)
    >>> tuple(bottom(torch.zeros(5, 1, 8, 8)).shape)
    (5, 4)
    """
    blocks: list[nn.Module] = []
    for block in genome.blocks:
        after = shape_after(block, shape)
        blocks.append(build_block(block, shape, norm, generator))
        shape = after
    bottom = Bottom(blocks, shape[0], width, unit)
    if generator is not None:
        for block, module in zip(genome.blocks, blocks, strict=True):
            if isinstance(block, ConvBlock | DenseBlock):
                initialise(module, generator)
        initialise(bottom.adapt, generator)
    if unit:
        # A class owns few coordinates of the simplex head; none may start dead behind the ReLU.
        nn.init.constant_(bottom.adapt.bias, 0.5)
    return bottom


def build_block(
    block: Block, shape: Shape, norm: Norm, generator: torch.Generator | None = None
) -> nn.Module:
    """Build the module of one block.

    Args:
        block: a built-in or a custom block.
        shape: (channels, height, width) of the map before it.
        norm: "group" (allowed under DP) or "batch", of a convolution or a dense block.
        generator: seeds the weights of a custom block only; None: torch's global one.
    """
    if isinstance(block, ConvBlock):
        return SeparableBlock(shape[0], block, norm)
    if isinstance(block, DenseBlock):
        return build_dense(block, math.prod(shape), norm_of_row(block.out_channels, norm))
    if isinstance(block, PoolBlock):
        return nn.MaxPool2d(2) if block.kind == "max" else nn.AvgPool2d(2)
    if generator is None:
        return block.build(shape[0])
    with _seeded(generator):
        return block.build(shape[0])


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """What the networks of all sites share, whatever their genomes."""

    shape: tuple[int, int, int]  # (channels, height, width) of an image, each at least 1
    classes: int  # at least 1
    width: int  # d, width of a representation, at least 1
    norm: Norm = "group"  # allowed under DP, which "batch" is not
    unit: bool = True  # whether representations have norm 1
    head_init: HeadInit = "etf"  # the public simplex, or a random head
    train_head: bool = False  # whether the simplex head moves in training

    def __post_init__(self) -> None:
        check_fields(self)
        if min(*self.shape, self.width, self.classes) < 1:
            raise BadInput(
                "expected shape, width and classes of at least 1, got "
                f"{self.shape}, {self.width} and {self.classes}; take them from the data"
            )

    @property
    def head_moves(self) -> bool:
        """Whether the head trains; a random one must: its logits are too small to learn against."""
        return self.train_head or self.head_init == "random"

    def bottom(self, genome: Genome, generator: torch.Generator | None = None) -> Bottom:
        """The bottom of a genome, as `build_bottom` makes it."""
        return build_bottom(
            genome,
            shape=self.shape,
            width=self.width,
            norm=self.norm,
            unit=self.unit,
            generator=generator,
        )

    def head(self, generator: torch.Generator) -> Head:
        """The head that everyone starts from."""
        return build_head(self.width, self.classes, init=self.head_init, generator=generator)

    def network(
        self, genome: Genome, rng: np.random.Generator, device: str | torch.device = "cpu"
    ) -> tuple[Bottom, Head]:
        """Bottom and head, their weights seeded by the next draw of `rng`.

        Args:
            genome: what the bottom is built from; the head depends on this spec alone.
            rng: seeds the weights by its next draw.
            device: where both modules go, as "cpu" or "cuda".
        """
        generator = torch_generator(rng)
        return self.bottom(genome, generator).to(device), self.head(generator).to(device)


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights anew, as torch does; BadInput for layers that have no way to."""
    for m in module.modules():
        if isinstance(m, nn.Conv2d | nn.Linear):
            bound = 1 / math.sqrt(m.weight[0].numel())
            for p in m.parameters(recurse=False):
                nn.init.uniform_(p, -bound, bound, generator=generator)
        elif isinstance(m, nn.GroupNorm | nn.BatchNorm2d):
            m.reset_parameters()
        elif any(True for _ in m.parameters(recurse=False)):
            reset = getattr(m, "reset_parameters", None)
            if reset is None:
                raise BadInput(
                    f"expected layers whose weights can be drawn anew, got {type(m).__name__}; "
                    "give it a method reset_parameters()"
                )
            with _seeded(generator):
                reset()


@contextmanager
def _seeded(generator: torch.Generator) -> Iterator[None]:
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and running statistics, on the CPU."""
    return {name: t.detach().cpu().clone() for name, t in model.state_dict().items()}
