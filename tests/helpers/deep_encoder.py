"""An encoder of small pictures with all kinds of layers that a trunk knows."""

from pathlib import Path

import torch
from torch import Tensor, nn

SIDE = 32


class Excited(nn.Module):
    """Squeeze and excitation, as MobileNetV3 has it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * self.up(self.down(mean).relu()).sigmoid()


def draw_statistics(network: nn.Module) -> None:
    """Draw what the batch norms of a network have seen."""
    for m in network.modules():
        if isinstance(m, nn.BatchNorm2d):
            assert m.running_mean is not None
            assert m.running_var is not None
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 2)


class Deep(nn.Module):
    """An encoder of all kinds of layers: residual, pooled, excited, grouped, of uneven padding."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.stem = nn.Sequential(
                nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
            )
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.deep = nn.Sequential(
                nn.Conv2d(8, 8, (3, 5), padding=(1, 2), groups=8), nn.Hardswish(), Excited(8)
            )
            self.next = nn.Sequential(nn.Conv2d(8, 16, 3, dilation=2, padding=2), nn.ReLU())
            self.last = nn.Conv2d(16, 32, 1)
            draw_statistics(self)
        self.eval().requires_grad_(False)

    def maps(self, x: Tensor) -> Tensor:
        y: Tensor = self.pool(self.stem(x))
        result: Tensor = self.next(y + self.deep(y))
        return result

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.maps(x))
        return result.mean((2, 3))


def write_deep(path: Path) -> Path:
    """It as a .pt2 or .onnx file."""
    network, x = Deep(), (torch.zeros(1, 3, SIDE, SIDE),)
    if path.suffix == ".onnx":
        torch.onnx.export(network, x, path, external_data=False, verbose=False)
    else:
        torch.export.save(torch.export.export(network, x), path)
    return path
