"""Rows of representations, with their labels."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from panas.privacy.release.estimate import Rows


def rows(n: int, d: int, classes: int, seed: int, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, d, generator=g), torch.randint(classes, (n,), generator=g)


def around(n: int, spread: float, seed: int = 0) -> Rows:
    """Unit rows around one direction a class of five, the wider the harder."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(5, size=n))
    noise = torch.from_numpy(rng.standard_normal((n, 32))).float()
    return Rows(F.normalize(torch.eye(32)[y] + spread * noise, dim=1), y)
