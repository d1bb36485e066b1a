"""A convolutional decoder: learns to turn features (representation and class) into images.

It learns with Adam, mean squared error and a cosine schedule.

Source: the feature-inversion evaluation of DPFNAS, section IV; a small decoder of that kind.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attacks.threats.observation import Inverter, Observation
from panas.architecture.network import initialise
from panas.runtime.seeds import torch_generator

CHANNELS = 32
BATCH = 32
LEARNING_RATE = 4e-3


def decoder(width: int, shape: tuple[int, int, int]) -> nn.Sequential:
    """Features (n, width) to images (n, c, h, w) in [-1, 1]."""
    c, h, w = shape
    quarter, half = ((-(-h // k), -(-w // k)) for k in (4, 2))
    return nn.Sequential(
        nn.Linear(width, CHANNELS * quarter[0] * quarter[1]),
        nn.ReLU(),
        nn.Unflatten(1, (CHANNELS, *quarter)),
        nn.Upsample(size=half),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.Upsample(size=(h, w)),
        nn.Conv2d(CHANNELS, CHANNELS // 2, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(CHANNELS // 2, c, 3, padding=1),
        nn.Tanh(),
    )


def decoder_inverter(
    observation: Observation, *, epochs: int, rng: np.random.Generator
) -> Inverter:
    """Train a decoder in `epochs` passes over the known samples: public ones, or leaked pairs."""
    z, x = observation.pairs(rng)
    network = decoder(z.shape[1], observation.public.shape)
    initialise(network, torch_generator(rng))
    centre = z.mean(0)
    scale = (z - centre).square().mean().sqrt().clamp(min=1e-6)
    z = (z - centre) / scale
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.from_numpy(rng.permutation(len(z))).split(BATCH):
            optimiser.zero_grad(set_to_none=True)
            F.mse_loss(network(z[batch]), x[batch]).backward()
            optimiser.step()
        schedule.step()

    @torch.no_grad()
    def invert(z: Tensor) -> Tensor:
        return torch.cat([network((part - centre) / scale) for part in z.split(512)])

    return invert
