"""Linear inverters in closed form: ridge regression from features to images.

| symbol | name |
|---|---|
| Z, X | features (n, d) of public samples and their flattened images (n, p), centred |
| W = (Z'Z + lambda I)^-1 Z'X | weights (d, p); the intercept is not penalised |

lambda is the one of a grid that serves a held-out quarter of the public samples best.

`ridge_on_noise` is the attack that knows the mechanism: on public samples it simulates what the
release does to a class's sum and learns, for each class, how far a noised estimate should move its
guess away from the mean public image of that class. Where noise drowns the release it learns not
to move, so that it is never much worse than blind.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.threats.observation import Inverter, Observation, class_means, estimate_means
from panas.privacy.release.estimate import ClassSums
from panas.runtime.seeds import torch_generator

STRENGTHS = torch.logspace(-8, 4, 13, dtype=torch.float64)
"""Candidates for lambda, in units of the mean eigenvalue of Z'Z."""

HELD_OUT = 0.25
"""Share of the pairs on which lambda is chosen."""

SIMULATIONS = 200
"""Simulated releases of each class in `ridge_on_noise`."""


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
    """One ridge fit for each strength (lambda over the mean eigenvalue), from one decomposition."""
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
    """Ridge with lambda chosen on the last quarter of the rows, then fitted on all of them.

    The rows are expected in random order.
    """
    held = max(1, round(HELD_OUT * len(z)))
    errors = torch.stack(
        [(f(z[-held:]) - x[-held:]).square().mean() for f in solve(z[:-held], x[:-held], STRENGTHS)]
    )
    return solve(z, x, STRENGTHS[errors.argmin()][None])[0]


def ridge_inverter(observation: Observation, *, rng: np.random.Generator) -> Inverter:
    """Learn a linear inverter of representations on known samples.

    Args:
        observation: what the server sees.
        rng: order of the known samples, and so which are held out.

    """
    z, x = observation.pairs(rng)
    linear = fit(z, x.flatten(1))

    def invert(z: Tensor) -> Tensor:
        return linear(z).float().clamp(-1, 1).unflatten(1, observation.public.shape)

    return invert


def ridge_on_noise(
    observation: Observation, *, rng: np.random.Generator
) -> Float[Tensor, "classes c h w"]:
    """Reconstruct one image a class from noised sums, knowing the mechanism.

    Args:
        observation: of a release that holds sums by class.
        rng: drives the simulated releases.

    Returns:
        For each class the mean public image, moved by what the release adds to it.

    """
    known, generator = observation.known, torch_generator(rng)
    x, scale = known.inputs().flatten(1), observation.noise_scale
    images = class_means(x, known)
    seen, sizes = observation.estimates(), observation.counts()
    for c in known.y.unique().tolist():
        mine, size = known.y == c, round(float(sizes[c]))
        draws = rng.multinomial(size, np.full(int(mine.sum()), 1 / int(mine.sum())), SIMULATIONS)
        share = torch.from_numpy(draws / size).float()  # each row: a client's mix of public samples

        def noise(*shape: int) -> Tensor:
            return scale * torch.randn(*shape, generator=generator)

        sums = size * share @ observation.known_z[mine]
        sums = sums + noise(*sums.shape)
        counted = size + noise(SIMULATIONS) if isinstance(observation.estimate, ClassSums) else None
        mu = observation.known_means[c].expand_as(sums)
        linear = fit(estimate_means(sums, counted, mu), share @ x[mine] - images[c])
        images[c] += linear(seen[c][None])[0].float()
    return images.clamp(-1, 1).unflatten(1, known.shape)
