"""Gradient canaries: the strongest canaries for DP-SGD, each a whole clip along one weight.

A Dirac canary's loss is its own weight, times a factor so large that its gradient is C e_j after
the clip. The adversary sees the first and the last weights, yet not those between.

    score of canary j = (w_first - w_last)_j

Canaries pass through `panas.privacy.gradients.private` as samples do. Canaries on one layer's
weights alone find noise that misses that layer. j are `coordinates`, positions in all trainable
weights written as one row; C is `Plan.clip`.

Source: Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846), section 6 (Dirac canaries); Nasr et
al. 2023.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from panas.data.samples import Indices, Samples
from panas.privacy.gradients.per_sample import cross_entropy
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import NoiseSource, poisson_batches
from panas.privacy.plan import Plan
from panas.runtime.errors import BadInput

STEEPNESS = 1e6
"""Norm of a canary's gradient before the clip."""

LARGEST = 2**24
"""Weights that can be told apart by a number of 32 bits."""


@dataclass(frozen=True)
class DiracCanaries:
    """Canaries that each own one weight."""

    coordinates: Int64[Tensor, "m"]

    def __len__(self) -> int:
        return len(self.coordinates)

    def take(self, indices: Indices) -> "DiracCanaries":
        """Those at `indices`, in that order."""
        return DiracCanaries(self.coordinates[torch.as_tensor(indices, dtype=torch.int64)])


def diracs(network: nn.Module, m: int, rng: np.random.Generator) -> DiracCanaries:
    """m canaries, each on a weight of its own, chosen at random among all trainable ones.

    Args:
        network: with m trainable weights or more.
        m: how many canaries, at least 1.
        rng: chooses the weights.
    """
    weights = sum(p.numel() for p in network.parameters() if p.requires_grad)
    if not m <= weights <= LARGEST:
        raise BadInput(
            f"expected a network of {m} to {LARGEST} trainable weights, got {weights}; plant "
            "fewer canaries, or audit a smaller network"
        )
    return DiracCanaries(torch.from_numpy(rng.choice(weights, m, replace=False)))


def train_with_dirac_canaries(
    network: nn.Module,
    data: Samples,
    canaries: DiracCanaries,
    *,
    plan: Plan,
    learning_rate: float,
    noise: NoiseSource,
) -> Float[Tensor, "p"]:
    """Train a network in place by DP-SGD for one round of `plan`; w_first - w_last.

    Args:
        network: maps images (b, c, h, w) to logits (b, classes), and mixes no samples.
        data: genuine samples.
        canaries: those that the coins took.
        plan: of n = data + *all* canaries, so that its rate does not tell how many were taken.
        learning_rate: of plain SGD, above 0.
        noise: source of the Poisson batches and of the noise.

    """
    n = len(data) + len(canaries)
    if n > plan.samples:
        raise BadInput(
            f"expected a plan for at least the {n} samples and canaries, got one for "
            f"{plan.samples}; calibrate it for the data and all canaries"
        )
    x = torch.zeros(n, 1 + data.inputs()[0].numel())
    x[: len(data), 1:] = data.inputs().flatten(1)
    x[len(data) :, 0] = 1.0 + canaries.coordinates
    y = torch.cat([data.y, torch.zeros(len(canaries), dtype=torch.int64)])
    first = _flat(network).detach().clone()
    parameters = [p for p in network.parameters() if p.requires_grad]
    x, y = x.to(first.device), y.to(first.device)
    optimiser = torch.optim.SGD(parameters, lr=learning_rate)
    gradient = PrivateGradient(_Planted(network, data.shape).train(), _loss)
    with warnings.catch_warnings():
        # A canary's loss reads a weight without its layer, which leaves only the slower way.
        warnings.filterwarnings("ignore", "per-sample gradients by torch.func")
        for batch in poisson_batches(n, plan.rate, plan.steps, noise):
            gradient.step(x[batch], y[batch], plan.clip_and_noise, noise)
            optimiser.step()
    return first - _flat(network).detach()


def dirac_scores(descent: Float[Tensor, "p"], canaries: DiracCanaries) -> Float[Tensor, "m"]:
    """How far each canary's weight was moved down."""
    return descent[canaries.coordinates]


class _Planted(nn.Module):
    """A network whose samples are rows (1 + c h w): mark and image, to logits and a last column.

    A genuine sample has mark 0, and 0 in the last column. A canary has mark 1 + j, logits 0, and
    its weight, made steep, in the last column.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.network = network
        self._shape = shape
        self._trainable = [n for n, p in network.named_parameters() if p.requires_grad]

    def forward(self, rows: Float[Tensor, "b k"]) -> Float[Tensor, "b columns"]:
        marks, planted = rows[:, 0], rows[:, 0] >= 1
        logits = self.network(rows[:, 1:].reshape(-1, *self._shape))
        # Read at each call: torch.func puts other tensors there.
        weights = dict(self.network.named_parameters())
        flat = torch.cat([weights[name].flatten() for name in self._trainable])
        owned = flat[(marks.long() - 1).clamp(0, len(flat) - 1)]
        steep = STEEPNESS * owned * planted
        return torch.cat([logits * ~planted[:, None], steep[:, None]], dim=1)


def _loss(outputs: Float[Tensor, "b columns"], y: Int64[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Cross-entropy of the logits, which is constant for a canary, and the last column."""
    return cross_entropy(outputs[:, :-1], y) + outputs[:, -1]


def _flat(network: nn.Module) -> Float[Tensor, "p"]:
    return torch.cat([p.flatten() for p in network.parameters() if p.requires_grad])
