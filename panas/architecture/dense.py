"""Blocks for rows of a table and for vectors: any map as one vector of f features, to k features.

| block | what it gives |
|---|---|
| dense | relu(norm(W x + b)) |
| gated | norm(W x + b) sigmoid(V x + c) |
| residual | V relu(norm(W x + b)) + c + S x, where S is the identity for f = k |

The norm is over all features of one row (a layer norm; batch norm where that is chosen). The bias
stands before it: without one, a row and twice that row would come out alike.

Sources: Gorishniy et al. 2021 (residual networks for tables); Dauphin et al. 2017 (gated linear
units).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.blocks import DenseBlock


class Dense(nn.Module):
    """Linear, norm, ReLU.

    Args:
        features: f, of a sample, at least 1.
        norm: of maps (n, k, 1, 1), the k features that come out.
        outputs: k, at least 1.
    """

    def __init__(self, features: int, norm: nn.Module, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.norm = norm

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k 1 1"]:
        """The features that come out, as a map."""
        return F.relu(self.norm(_as_map(self.linear(x.flatten(1)))))


class Gated(nn.Module):
    """Linear and norm, times the sigmoid of another linear layer.

    Args:
        features: f, of a sample, at least 1.
        norm: of maps (n, k, 1, 1), the k features that come out.
        outputs: k, at least 1.
    """

    def __init__(self, features: int, norm: nn.Module, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.norm = norm
        self.gate = nn.Linear(features, outputs)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k 1 1"]:
        """The features that come out, as a map."""
        row = x.flatten(1)
        return self.norm(_as_map(self.linear(row))) * _as_map(torch.sigmoid(self.gate(row)))


class Residual(nn.Module):
    """Two linear layers and a shortcut around them.

    Args:
        features: f, of a sample, at least 1.
        norm: of maps (n, k, 1, 1), the k features that come out.
        outputs: k, at least 1.
    """

    def __init__(self, features: int, norm: nn.Module, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.norm = norm
        self.second = nn.Linear(outputs, outputs)
        self.shortcut = (
            nn.Identity() if features == outputs else nn.Linear(features, outputs, bias=False)
        )

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k 1 1"]:
        """The features that come out, as a map."""
        row = x.flatten(1)
        inner = F.relu(self.norm(_as_map(self.linear(row)))).flatten(1)
        return _as_map(self.second(inner) + self.shortcut(row))


LAYERS = {"dense": Dense, "gated": Gated, "residual": Residual}


def build_dense(block: DenseBlock, features: int, norm: nn.Module) -> nn.Module:
    """Build the module of a dense block.

    Args:
        block: its kind and the features that come out.
        features: of the map before it, channels times height times width.
        norm: of maps (n, k, 1, 1).
    """
    return LAYERS[block.kind](features, norm, block.out_channels)


def _as_map(row: Float[Tensor, "n k"]) -> Float[Tensor, "n k 1 1"]:
    return row[:, :, None, None]
