"""The head: the shared top model on representations of width d, and its public simplex."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from panas.runtime.errors import BadInput

HeadInit = Literal["etf", "random"]

ETF_SCALE = 10.0  # norm of the logits on unit representations (an inverse temperature)


class Head(nn.Module):
    """The shared top model: `Linear(d, classes)`."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
        """Logits of a batch of representations."""
        return self.linear(z)


def build_head(width: int, classes: int, *, init: HeadInit, generator: torch.Generator) -> Head:
    """Build a head: "random" (torch's default distribution) or the public simplex ETF.

    Args:
        width: d, at least 1.
        classes: C, at least 1.
        init: "random" for torch's default distribution, "etf" for the public simplex.
        generator: draws the weights of a random head; the simplex has none.
    """
    head = Head(width, classes)
    bound = 1 / math.sqrt(width)
    with torch.no_grad():
        for p in head.parameters():
            p.uniform_(-bound, bound, generator=generator)
        if init == "etf":
            head.linear.weight.copy_(simplex_etf(width, classes))
            head.linear.bias.zero_()
    return head


def simplex_etf(width: int, classes: int) -> Float[Tensor, "classes d"]:
    """Weights of a fixed simplex equiangular tight frame; BadInput if d < classes.

    Each class owns floor(d / classes) coordinates, so that its ideal representation is non-negative
    and can leave a ReLU. Privacy: reads no data. Source: Papyan, Han and Donoho 2020 (neural
    collapse).
    """
    if width < classes:
        raise BadInput(
            f"expected a representation at least as wide as the {classes} classes, got {width}; "
            "raise width, or take a random head (of a run network.width, federation.head_init)"
        )
    share = width // classes
    U = torch.zeros(width, classes)
    for c in range(classes):
        U[c * share : (c + 1) * share, c] = share**-0.5
    if classes == 1:
        return ETF_SCALE * U.T
    centre = torch.eye(classes) - 1 / classes
    return ETF_SCALE * math.sqrt(classes / (classes - 1)) * (U @ centre).T
