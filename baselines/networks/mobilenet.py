"""A super-network like MobileNetV3, and the sub-networks that a choice takes out of it.

A stage is a row of inverted residual blocks: 1x1 to more channels, depthwise k x k, squeeze and
excite in some stages, 1x1 back. A choice fixes four things of each stage:

| menu | what |
|---|---|
| channels | after a block |
| depth | blocks |
| kernel | side k of the depthwise convolutions |
| expansion | channels within a block, as a multiple of those that come in |

The super-network is the sub-network of the largest choices. All sub-networks give their weights the
same names; what a smaller one has are the first channels and the middle of the kernels of a larger
one's (`overlap`).

Source: Howard et al. 2019 (blocks); Yao et al. 2024, PerFedRLNAS (menus). Deviations: SiLU and a
sigmoid in the place of their piecewise forms; a block has a shortcut unless it is its stage's
first; one layer of `last` channels before the pool in the place of the published pair; maps are
halved while their side is at least 4, by the last stages if not by all.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any

from torch import Tensor, nn

from baselines.networks.cnns import SMALLEST
from panas.architecture.network import Norm
from panas.privacy.gradients.apart import keeps_samples_apart
from panas.runtime.errors import BadInput

Menu = tuple[int, ...]

SQUEEZED = 4  # channels of a block for each one between squeeze and excite


@dataclass(frozen=True)
class Stage:
    """What a stage of the super-network offers; menus go up."""

    channels: Menu
    depth: Menu
    kernel: Menu
    expansion: Menu
    stride: int  # of its first block
    squeezes: bool

    @property
    def menus(self) -> tuple[Menu, ...]:
        """Its four menus."""
        return self.channels, self.depth, self.kernel, self.expansion


@dataclass(frozen=True)
class Space:
    """A super-network: its stages, and the channels of the layers around them."""

    first: int
    stages: tuple[Stage, ...]
    last: int

    @property
    def menus(self) -> tuple[Menu, ...]:
        """All menus, stage by stage: channels, depth, kernel, expansion."""
        return tuple(menu for stage in self.stages for menu in stage.menus)

    @property
    def largest(self) -> tuple[int, ...]:
        """The choice that is the super-network."""
        return tuple(len(menu) - 1 for menu in self.menus)

    def checked(self, choice: Sequence[Any]) -> tuple[int, ...]:
        """A choice as a message has it; BadInput if it is none from these menus."""
        if not all(type(at) is int for at in choice):
            raise BadInput(f"expected whole numbers as a choice, got {list(choice)!r:.60}")
        self.picked(choice)
        return tuple(choice)

    def picked(self, choice: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Channels, depth, kernel and expansion of each stage; BadInput for no choice of these."""
        menus = self.menus
        if len(choice) != len(menus) or not all(
            0 <= at < len(menu) for at, menu in zip(choice, menus, strict=False)
        ):
            raise BadInput(
                f"expected a choice from {len(menus)} menus, got {list(choice)!r:.60}; "
                "use the settings of the run"
            )
        values = [menu[at] for at, menu in zip(choice, menus, strict=True)]
        return tuple(tuple(values[i : i + 4]) for i in range(0, len(values), 4))


PUBLISHED = Space(
    first=16,
    stages=(
        Stage((16,), (1, 2), (3, 5), (1,), 2, False),
        Stage((16, 24), (1, 2), (3, 5), (1,), 2, True),
        Stage((24, 40), (1, 2), (3, 5), (3, 4, 5), 2, False),
        Stage((40, 80), (2, 3, 4), (3, 5), (3, 4, 5), 2, True),
        Stage((48, 112), (2, 3, 4), (3, 5), (3, 4, 5), 1, True),
        Stage((96, 160), (2, 3, 4), (3, 5), (3, 4, 5), 2, True),
    ),
    last=1280,
)
FIRST_STRIDE = 2  # of the convolution before all stages


def scaled(scale: float, stages: int, most_blocks: int, last: int) -> Space:
    """The published space, smaller: its first stages, with fewer channels and blocks.

    Args:
        scale: factor on the channels, in (0, 1].
        stages: how many of the published ones stay, from the first.
        most_blocks: of a stage.
        last: channels of the last convolution.
    """

    def wide(channels: int) -> int:
        return max(2, round(channels * scale))

    return Space(
        wide(PUBLISHED.first),
        tuple(
            Stage(
                _menu(map(wide, stage.channels)),
                _menu(min(depth, most_blocks) for depth in stage.depth),
                stage.kernel,
                stage.expansion,
                stage.stride,
                stage.squeezes,
            )
            for stage in PUBLISHED.stages[:stages]
        ),
        last,
    )


@keeps_samples_apart
class SqueezeExcite(nn.Module):
    """Each channel of a map, times a number in (0, 1) that the means of all channels give."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        few = max(1, channels // SQUEEZED)
        self.reduce, self.act = nn.Conv2d(channels, few, 1), nn.SiLU()
        self.expand, self.gate = nn.Conv2d(few, channels, 1), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """The map, of the same shape."""
        means = x.mean((2, 3), keepdim=True)
        out: Tensor = x * self.gate(self.expand(self.act(self.reduce(means))))
        return out


@keeps_samples_apart
class InvertedResidual(nn.Module):
    """A block: wider, depthwise, narrower; the sum with its input where there is a shortcut."""

    def __init__(self, layers: "OrderedDict[str, nn.Module]", shortcut: bool) -> None:
        super().__init__()
        self.body, self.shortcut = nn.Sequential(layers), shortcut

    def forward(self, x: Tensor) -> Tensor:
        """The map after it."""
        out: Tensor = self.body(x)
        return out + x if self.shortcut else out


def mobilenet(
    space: Space, choice: Sequence[int], shape: tuple[int, int, int], classes: int, norm: Norm
) -> nn.Sequential:
    """The sub-network of a choice, from images to logits.

    Args:
        space: its stages, and the menus of their settings.
        choice: a channel, depth or other setting of each menu, as `Space` orders them.
        shape: (channels, height, width) of an image.
        classes: width of the logits.
        norm: "group" (allowed under DP) or "batch".
    """
    strides = strides_for([FIRST_STRIDE, *(s.stride for s in space.stages)], min(shape[1:]))
    first = nn.Conv2d(shape[0], space.first, 3, strides[0], 1, bias=False)
    channels, stages = space.first, list[nn.Module]()
    for stage, stride, (out, depth, kernel, expansion) in zip(
        space.stages, strides[1:], space.picked(choice), strict=True
    ):
        blocks = list[nn.Module]()
        widths = [channels, *[out] * depth]
        for number, (inputs, outputs) in enumerate(pairwise(widths)):
            inside = inputs * expansion
            layers = _expanding(inputs, inside, norm)
            layers |= _depthwise(inside, kernel, 1 if number else stride, norm)
            if stage.squeezes:
                layers["squeeze"] = SqueezeExcite(inside)
            layers["project"] = nn.Conv2d(inside, outputs, 1, bias=False)
            layers["project_norm"] = _norm(outputs, norm)
            blocks.append(InvertedResidual(layers, shortcut=number > 0))
        stages.append(nn.Sequential(*blocks))
        channels = out
    height, width = shape[1:]
    for stride in strides:
        height, width = -(-height // stride), -(-width // stride)
    last = nn.Conv2d(channels, space.last, 1, bias=False)
    parts = {
        "first": nn.Sequential(first, _norm(space.first, norm), nn.SiLU()),
        "stages": nn.Sequential(*stages),
        "last": nn.Sequential(last, _norm(space.last, norm), nn.SiLU()),
        "pool": nn.AvgPool2d((height, width)),
        "flatten": nn.Flatten(),
        "classifier": nn.Linear(space.last, classes),
    }
    return nn.Sequential(OrderedDict(parts))


def strides_for(strides: Sequence[int], side: int) -> list[int]:
    """Those that a map of a side bears: the last ones, of a side of `SMALLEST` and more each."""
    result, halvings = [1] * len(strides), 0
    while side >= SMALLEST:
        side, halvings = -(-side // 2), halvings + 1
    for place in reversed(range(len(strides))):
        if strides[place] > 1 and halvings:
            result[place], halvings = strides[place], halvings - 1
    return result


def _menu(values: Iterable[int]) -> Menu:
    return tuple(sorted(set(values)))


def _norm(channels: int, norm: Norm) -> nn.Module:
    """Batch norm, or group norm with at least two channels a group."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(gcd(channels, 8) if 8 % channels else 1, channels)


def _expanding(inputs: int, inside: int, norm: Norm) -> "OrderedDict[str, nn.Module]":
    """The first convolution of a block; none where it would add no channel."""
    if inside == inputs:
        return OrderedDict()
    wider = nn.Conv2d(inputs, inside, 1, bias=False)
    return OrderedDict(expand=wider, expand_norm=_norm(inside, norm), expand_act=nn.SiLU())


def _depthwise(channels: int, kernel: int, stride: int, norm: Norm) -> dict[str, nn.Module]:
    deep = nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=channels, bias=False)
    return {"depthwise": deep, "depthwise_norm": _norm(channels, norm), "depthwise_act": nn.SiLU()}
