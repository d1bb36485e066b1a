"""Where privacy noise and Poisson sampling come from.

Torch's own CPU generator is not used: it keeps only 32 bits of its seed, few enough to try all.

Noise is drawn in float64. Attacks on the gaps between floating-point numbers (Mironov 2012) are not
defended against: add noise in float64 and round the sum, so that only a rounding is seen.
"""

import math
import os
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


@runtime_checkable
class NoiseSource(Protocol):
    """Gaussian noise and uniform numbers for privacy mechanisms."""

    def normal(self, *shape: int) -> Tensor:
        """Independent standard normal numbers, float64, of the given shape."""

    def uniform(self, size: int) -> Tensor:
        """Independent numbers, uniform on [0, 1), float64, shape (size,)."""


class SystemNoise:
    """Noise from the operating system's entropy: nobody can predict or repeat a draw.

    Eight bytes of `os.urandom` a number, by the Box-Muller transform. No state, seed or buffer:
    threads, forked processes and sites share no draw. Numbers end at 8.57 standard deviations,
    beyond which a Gaussian has 1e-17 of its mass, and lie on a coarse grid just before (a radius
    comes of 53 bits): both are far below any delta in use.
    """

    def uniform(self, size: int) -> Tensor:
        """Uniform on [0, 1) with 53 random bits each."""
        words = np.frombuffer(bytearray(os.urandom(8 * size)), dtype=np.uint64)
        return torch.from_numpy((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal, of the given shape."""
        size = math.prod(shape)
        half = (size + 1) // 2
        u = self.uniform(2 * half)
        # 1 - u lies in (0, 1], so the logarithm is finite.
        radius = torch.sqrt(-2.0 * torch.log1p(-u[:half]))
        angle = 2.0 * math.pi * u[half:]
        pair = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)])
        return pair[:size].reshape(shape)


class ReproducibleNoise:
    """Noise that repeats from a generator. Privacy: none; for tests and public data only."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def uniform(self, size: int) -> Tensor:
        """Uniform on [0, 1)."""
        return torch.from_numpy(self._rng.random(size))

    def normal(self, *shape: int) -> Tensor:
        """Standard normal, of the given shape."""
        return torch.from_numpy(self._rng.standard_normal(shape))


def poisson_batch(samples: int, rate: float, noise: NoiseSource) -> Int[Tensor, "b"]:
    """Indices of a Poisson batch.

    Args:
        samples: how many units there are to draw from, 0 or more.
        rate: q, probability that a unit enters, in [0, 1], each by itself.
        noise: draws one uniform number a unit.
    """
    return torch.nonzero(noise.uniform(samples) < rate).flatten()


def poisson_batches(
    samples: int, rate: float, steps: int, noise: NoiseSource
) -> Iterator[Int[Tensor, "b"]]:
    """The indices of Poisson batches, each drawn when it is asked for.

    Args:
        samples: how many units there are to draw from, 0 or more.
        rate: q, probability that a unit enters a batch, in [0, 1].
        steps: how many batches; an empty one counts.
        noise: draws one uniform number a unit and batch.
    """
    return (poisson_batch(samples, rate, noise) for _ in range(steps))
