"""A space of networks for tables: blocks of linear layers, mixed or chosen, as in `darts`.

A first layer brings a row to `width` numbers; each of `blocks` blocks keeps that width and chooses
one operation; a last layer gives the logits. An operation is written `ACTIVATION_HIDDEN` (a layer
to so many hidden numbers, the activation, and a layer back), "skip" or "none".

Source: FEATHERS's search space for tables is not published; this one has widths, activations and
depth (by "skip") to choose from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from baselines.networks.darts import each
from panas.architecture.mixture import Mixture
from panas.privacy.gradients.apart import keeps_samples_apart
from panas.runtime.errors import BadInput

NONE, SKIP = "none", "skip"
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU}
OPERATIONS = ("relu_16", "relu_64", "tanh_16", "tanh_64", SKIP, NONE)
"""What a block may be."""


@dataclass(frozen=True, kw_only=True)
class MLPSpace:
    """The size of a network, and what its blocks may choose from."""

    inputs: int  # numbers of a sample
    classes: int  # number of logits
    blocks: int = 3
    width: int = 32  # numbers between blocks
    operations: tuple[str, ...] = OPERATIONS

    @property
    def given(self) -> tuple[str, ...]:
        """The operations that compute something; "none" comes after them."""
        return tuple(name for name in self.operations if name != NONE)


def operation(name: str, width: int) -> nn.Module:
    """One operation but "none" on so many numbers."""
    if name == SKIP:
        return nn.Identity()
    activation, hidden = name.split("_")
    middle = int(hidden)
    return nn.Sequential(
        nn.Linear(width, middle), ACTIVATIONS[activation](), nn.Linear(middle, width)
    )


@keeps_samples_apart
class MixedMLP(nn.Module):
    """All architectures at once: weights W, and alphas A in its mixtures, one a block."""

    def __init__(self, space: MLPSpace) -> None:
        super().__init__()
        self.space, self.flat = space, nn.Flatten()
        self.stem, self.head = _ends(space)
        self.blocks = nn.ModuleList(
            nn.ModuleList(operation(name, space.width) for name in space.given)
            for _ in range(space.blocks)
        )
        count = len(space.operations)
        self.mixtures = nn.ModuleList(Mixture(1, count) for _ in range(space.blocks))

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b classes"]:
        """Logits."""
        x = self.stem(self.flat(x))
        for mixture, operations in zip(
            self.mixtures, each(self.blocks, nn.ModuleList), strict=True
        ):
            results = [o(x) for o in operations]
            x = mixture(torch.stack(results, 1)[:, None])
        out: Tensor = self.head(x)
        return out


def chosen_mlp(space: MLPSpace, architecture: Mapping[str, Any]) -> nn.Sequential:
    """The network of one architecture, the operation of each block; BadInput if it is none."""
    chosen = architecture.get("blocks")
    if (
        not isinstance(chosen, list | tuple)
        or not all(o in space.given for o in chosen)
        or (len(architecture), len(chosen)) != (1, space.blocks)
    ):
        raise BadInput(f"expected an architecture of {space.blocks} blocks, got another")
    stem, head = _ends(space)
    return nn.Sequential(nn.Flatten(), stem, *(operation(o, space.width) for o in chosen), head)


def discretised_mlp(network: MixedMLP) -> tuple[str, ...]:
    """The operation with the largest share of each block, but "none"; among equals, the first."""
    given = network.space.given
    shares = (mixture.shares()[0, : len(given)] for mixture in each(network.mixtures, Mixture))
    return tuple(given[int(share.argmax())] for share in shares)


def _ends(space: MLPSpace) -> tuple[nn.Linear, nn.Linear]:
    return nn.Linear(space.inputs, space.width), nn.Linear(space.width, space.classes)
