"""Custom blocks, for the tests: what the protocol allows, and what it must refuse."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


class Gate(nn.Module):
    """Squeeze and excite: every channel is scaled by what all channels say on average."""

    def __init__(self, channels: int, ratio: int) -> None:
        super().__init__()
        hidden = max(1, channels // ratio)
        self.squeeze, self.excite = nn.Linear(channels, hidden), nn.Linear(hidden, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3))))))
        return x * gate[:, :, None, None]


@dataclass(frozen=True)
class Squeeze:
    """Keeps channels and sides."""

    ratio: int

    def __str__(self) -> str:
        return f"se{self.ratio}"

    def build(self, in_channels: int) -> nn.Module:
        return Gate(in_channels, self.ratio)

    def out_channels(self, in_channels: int) -> int:
        return in_channels

    def out_side(self, side: int) -> int:
        return side


@dataclass(frozen=True)
class Dilated:
    """A convolution without padding: each side loses two, whatever it is."""

    channels: int

    def __str__(self) -> str:
        return f"dil{self.channels}"

    def build(self, in_channels: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(in_channels, self.channels, 2, dilation=2), nn.Tanh())

    def out_channels(self, in_channels: int) -> int:
        return self.channels

    def out_side(self, side: int) -> int:
        return side - 2


class Halves(nn.Module):
    """Weights that no rule of a layer knows, and a stride of two."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.randn(2, channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([s * x[:, :, ::2, ::2] for s in self.scales], dim=1)


@dataclass(frozen=True)
class Double:
    """Doubles the channels, so that few of them fit one behind the other; halves each side."""

    def __str__(self) -> str:
        return "double"

    def build(self, in_channels: int) -> nn.Module:
        return Halves(in_channels)

    def out_channels(self, in_channels: int) -> int:
        return 2 * in_channels

    def out_side(self, side: int) -> int:
        return (side + 1) // 2


OWN = (Squeeze(2), Squeeze(4), Dilated(6), Double())
