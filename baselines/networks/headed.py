"""A bottom with a head that tells the representation beside the logits, for losses of both."""

import torch
from torch import Tensor, nn

from panas.privacy.gradients.apart import keeps_samples_apart


@keeps_samples_apart
class Headed(nn.Module):
    """From images to (n, classes + d): logits of a linear head, then what it was given."""

    def __init__(self, bottom: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.bottom, self.head = bottom, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Both, side by side."""
        z: Tensor = self.bottom(x)
        return torch.cat([self.head(z), z], dim=1)
