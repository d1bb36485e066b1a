"""From features (representation and class) to images: ridge regression, and a decoder.

Ridge regression is linear, and in closed form.

| symbol | name |
|---|---|
| Z, X | features (n, d) of public samples and their flattened images (n, p), centred |
| W = (Z'Z + lambda I)^-1 Z'X | weights (d, p); the intercept is not penalised |

`ridge_on_noise` knows the mechanism: on public samples it simulates what the release does to a
class's sum and learns how far a noised estimate should move its guess away from the mean public
image of that class. Where noise drowns the release it learns not to move.

The decoder is convolutional, and learns with Adam, mean squared error and a cosine schedule.

Source: the feature-inversion evaluation of DPFNAS, section IV; a small decoder of that kind.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attacks.threats.observation import Inverter, Observation, class_means, estimate_means
from panas.architecture.network import initialise
from panas.privacy.release.estimate import ClassSums
from panas.runtime.seeds import torch_generator

STRENGTHS = torch.logspace(-8, 4, 13, dtype=torch.float64)
"""Candidates for lambda, in units of the mean eigenvalue of Z'Z."""

SIMULATIONS = 200
"""Simulated releases of each class in `ridge_on_noise`."""

CHANNELS, BATCH, LEARNING_RATE = 32, 32, 4e-3  # of the decoder


@dataclass(frozen=True)
class Linear:
    """An affine map: `intercept + (z - centre) @ weights`, in float64."""

    centre: Float[Tensor, "d"]
    weights: Float[Tensor, "d p"]
    intercept: Float[Tensor, "p"]

    def __call__(self, z: Float[Tensor, "m d"]) -> Float[Tensor, "m p"]:
        """Predict one row for each row of z."""
        return self.intercept + (z.double() - self.centre) @ self.weights


def solve(
    z: Float[Tensor, "n d"], x: Float[Tensor, "n p"], strengths: Float[Tensor, "k"]
) -> list[Linear]:
    """One ridge fit for each strength (lambda over the mean eigenvalue), from one decomposition.

    Args:
        z: representations of known samples.
        x: their images, flat, p numbers each.
        strengths: lambda over the mean eigenvalue of z^T z, above 0.
    """
    z, x = z.double(), x.double()
    centre, intercept = z.mean(0), x.mean(0)
    Z, X = z - centre, x - intercept
    values, vectors = torch.linalg.eigh(Z.T @ Z)
    values = values.clamp(min=0)
    projected = vectors.T @ (Z.T @ X)
    unit = values.mean().clamp(min=1e-12)
    return [
        Linear(centre, vectors @ (projected / (values + s * unit)[:, None]), intercept)
        for s in strengths
    ]


def fit(z: Float[Tensor, "n d"], x: Float[Tensor, "n p"]) -> Linear:
    """Ridge on all rows, with lambda chosen on the last quarter; rows are in random order."""
    held = max(1, round(0.25 * len(z)))
    errors = torch.stack(
        [(f(z[-held:]) - x[-held:]).square().mean() for f in solve(z[:-held], x[:-held], STRENGTHS)]
    )
    return solve(z, x, STRENGTHS[errors.argmin()][None])[0]


def ridge_inverter(observation: Observation, *, rng: np.random.Generator) -> Inverter:
    """Learn a linear inverter of representations on known samples, in random order."""
    z, x = observation.pairs(rng)
    linear = fit(z, x.flatten(1))

    def invert(z: Tensor) -> Tensor:
        return linear(z).float().clamp(-1, 1).unflatten(1, observation.public.shape)

    return invert


def ridge_on_noise(
    observation: Observation, *, rng: np.random.Generator
) -> Float[Tensor, "classes c h w"]:
    """The mean public image of each class, moved by what its noised sum adds."""
    known, generator = observation.known, torch_generator(rng)
    x, scale = known.inputs().flatten(1), observation.noise_scale
    images = class_means(x, known)
    seen, sizes = observation.estimates(), observation.counts()
    for c in known.y.unique().tolist():
        in_c, size = known.y == c, round(float(sizes[c]))
        draws = rng.multinomial(size, np.full(int(in_c.sum()), 1 / int(in_c.sum())), SIMULATIONS)
        share = torch.from_numpy(draws / size).float()  # each row: a site's mix of public samples
        sums = size * share @ observation.known_z[in_c]
        sums = sums + scale * torch.randn(*sums.shape, generator=generator)
        counted = None
        if isinstance(observation.estimate, ClassSums):
            counted = size + scale * torch.randn(SIMULATIONS, generator=generator)
        mu = observation.known_means[c].expand_as(sums)
        linear = fit(estimate_means(sums, counted, mu), share @ x[in_c] - images[c])
        images[c] += linear(seen[c][None])[0].float()
    return images.clamp(-1, 1).unflatten(1, known.shape)


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
    """Train a decoder on the known samples: public ones, or leaked pairs.

    Args:
        observation: what the server saw, and which pairs it knows.
        epochs: passes over the known samples, at least 1.
        rng: of weights and batches.
    """
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
