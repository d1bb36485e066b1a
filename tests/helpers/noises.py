"""Noise sources that are none: zeros, ones, and half of what they should be."""

import torch
from torch import Tensor

from panas.privacy.noise import SystemNoise


class NoNoise:
    """Zeros in place of noise."""

    def normal(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64)

    def uniform(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)


class Ones(NoNoise):
    """Ones in place of normal numbers."""

    def normal(self, *shape: int) -> Tensor:
        return torch.ones(shape, dtype=torch.float64)


class HalfNoise(SystemNoise):
    """The planted bug: half the standard deviation."""

    def normal(self, *shape: int) -> Tensor:
        return super().normal(*shape) / 2
