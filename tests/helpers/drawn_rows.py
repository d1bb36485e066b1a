"""Rows of representations, with their labels."""

import torch
from torch import Tensor


def rows(n: int, d: int, classes: int, seed: int, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, d, generator=g), torch.randint(classes, (n,), generator=g)
