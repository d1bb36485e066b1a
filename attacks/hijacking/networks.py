"""The networks of split learning and of FSHA, at a share of the paper's width.

Source: Pasquini et al. 2021 (arXiv 2012.02670, their fourth split), without its one batch
normalisation, which would mix samples, and with swish in the pilot.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def channels(width: float) -> tuple[int, int, int]:
    """Channels at a half, a quarter and an eighth of the image's side, each at least 4."""
    k1, k2, k3 = (max(4, round(width * k)) for k in (64, 128, 256))  # the paper's
    return k1, k2, k3


class _Residual(nn.Module):
    """ReLU, convolution, ReLU, convolution, beside a shortcut; halves the map with stride 2."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1)
        self.second = nn.Conv2d(after, after, 3, 1, 1)
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 3, stride, 1)

    def forward(self, x: Float[Tensor, "b k u v"]) -> Float[Tensor, "b l s t"]:
        """The next feature maps."""
        return self.shortcut(x) + self.second(F.relu(self.first(F.relu(x))))


class ResidualNetwork(nn.Sequential):
    """f: images (b, c, h, w) to smashed features (b, 256 width, h / 8, w / 8), rounded up."""

    def __init__(self, image_channels: int, width: float) -> None:
        k1, k2, k3 = channels(width)
        super().__init__(
            nn.Conv2d(image_channels, k1, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            _Residual(k1, k1),
            _Residual(k1, k2, 2),
            _Residual(k2, k2),
            _Residual(k2, k3, 2),
        )


def draw(network: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights anew as the authors' library does: uniform by Glorot, biases zero."""
    for m in network.modules():
        if isinstance(m, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.xavier_uniform_(m.weight, generator=generator)
            assert m.bias is not None
            nn.init.zeros_(m.bias)


def pilot(image_channels: int, width: float) -> nn.Sequential:
    """f~: images to features of the shape of z."""
    k1, k2, k3 = channels(width)
    return nn.Sequential(
        nn.Conv2d(image_channels, k1, 3, 2, 1),
        nn.SiLU(),
        nn.Conv2d(k1, k2, 3, 2, 1),
        nn.SiLU(),
        nn.Conv2d(k2, k3, 3, 2, 1),
        nn.SiLU(),
        nn.Conv2d(k3, k3, 3, 1, 1),
    )


def decoder(shape: tuple[int, int, int], width: float) -> nn.Sequential:
    """f~^-1: features to images of `shape` (c, h, w) in [-1, 1]."""
    (_, k2, k3), (c, h, w) = channels(width), shape
    high, wide = -h % 8, -w % 8  # what the maps are larger by
    return nn.Sequential(
        nn.ConvTranspose2d(k3, k3, 3, 2, 1, output_padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(k3, k2, 3, 2, 1, output_padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(k2, c, 3, 2, 1, output_padding=1),
        nn.ZeroPad2d((-(wide // 2), wide // 2 - wide, -(high // 2), high // 2 - high)),
        nn.Tanh(),
    )


def critic(z_shape: tuple[int, int, int], width: float, blocks: int) -> nn.Sequential:
    """D: features to one number a sample, (b,).

    Args:
        z_shape: (channels, height, width) of the features.
        width: factor on the channels, above 0.
        blocks: how many residual blocks.
    """
    k, (_, u, v) = channels(width)[2], z_shape
    return nn.Sequential(
        nn.Conv2d(z_shape[0], k, 3, padding=1),
        *(_Residual(k, k) for _ in range(blocks)),
        nn.Conv2d(k, k, 3, 2, 1),
        nn.Flatten(),
        nn.Linear(k * -(-u // 2) * -(-v // 2), 1),
        nn.Flatten(0),
    )
