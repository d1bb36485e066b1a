"""A convolutional decoder: learns to turn features (representation and class) into images.

`Linear(f, 32 h0 w0)`, then twice: upsample (nearest), 3 x 3 convolution (to 32, then 16 channels),
ReLU; a last convolution and tanh, so that images lie in [-1, 1]. (h0, w0) is a quarter of the
image, rounded up, and the upsampling goes by size, so that any c, h, w will do. It learns on public
samples with Adam, mean squared error and a cosine schedule.

Source: the feature-inversion evaluation of DPFNAS, section IV; a small decoder of that kind.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attacks.threats.observation import Inverter, Observation
from panas.architecture.network import initialise
from panas.runtime.seeds import torch_generator

CHANNELS = 32
BATCH = 32
LEARNING_RATE = 4e-3


class Decoder(nn.Module):
    """Features (n, f) to images (n, c, h, w) in [-1, 1]."""

    def __init__(self, width: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        c, h, w = shape
        self.sizes = [(-(-h // k), -(-w // k)) for k in (4, 2, 1)]
        self.centre: Tensor
        self.scale: Tensor
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("scale", torch.ones(()))
        self.spread = nn.Linear(width, CHANNELS * self.sizes[0][0] * self.sizes[0][1])
        self.convolutions = nn.ModuleList(
            [nn.Conv2d(CHANNELS, k, 3, padding=1) for k in (CHANNELS, CHANNELS // 2)]
        )
        self.last = nn.Conv2d(CHANNELS // 2, c, 3, padding=1)

    def standardise(self, z: Float[Tensor, "n f"]) -> None:
        """Centre inputs as `z` is, and scale them (all features alike) to its spread."""
        self.centre = z.mean(0)
        self.scale = (z - self.centre).square().mean().sqrt().clamp(min=1e-6)

    def forward(self, z: Float[Tensor, "n f"]) -> Float[Tensor, "n c h w"]:
        """Images of a batch of features."""
        maps = F.relu(self.spread((z - self.centre) / self.scale))
        maps = maps.unflatten(1, (CHANNELS, *self.sizes[0]))
        for size, convolution in zip(self.sizes[1:], self.convolutions, strict=True):
            maps = F.relu(convolution(F.interpolate(maps, size=size)))
        return torch.tanh(self.last(maps))


def decoder_inverter(
    observation: Observation, *, epochs: int, rng: np.random.Generator
) -> Inverter:
    """Train a decoder of representations on known samples: public ones, or leaked pairs.

    Args:
        observation: what the server sees.
        epochs: passes over the public samples, at least 1.
        rng: initial weights and batches.

    """
    z, x = observation.pairs(rng)
    decoder = Decoder(z.shape[1], observation.public.shape)
    initialise(decoder, torch_generator(rng))
    decoder.standardise(z)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.from_numpy(rng.permutation(len(z))).split(BATCH):
            optimiser.zero_grad(set_to_none=True)
            F.mse_loss(decoder(z[batch]), x[batch]).backward()
            optimiser.step()
        schedule.step()
    decoder.eval()

    @torch.no_grad()
    def invert(z: Tensor) -> Tensor:
        return torch.cat([decoder(part) for part in z.split(512)])

    return invert
