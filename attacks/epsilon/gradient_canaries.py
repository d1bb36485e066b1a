"""Gradient canaries: the strongest canaries for DP-SGD, each a whole clip along one weight.

A Dirac canary's loss is its own weight, times a factor so large that every clip shortens its
gradient: C e_j after the clip, at every step that samples it. The adversary is as strong as the
definition of privacy lets it be but for one thing: it chose its samples' gradients, and sees the
first and the last weights, yet not those between.

    score of canary j = (w_first - w_last)_j

Canaries pass through all that a sample does: the Poisson batch, the per-sample gradient, the clip,
the noise and the divisor of `panas.privacy.gradients.private` as they are, on the weights of the
network that is audited. To this end samples become rows of numbers whose first says whose loss
they have. Canaries on one layer's weights alone find noise that misses it; among those of all
layers they would neither rank high nor low.

| symbol | name |
|---|---|
| j | `coordinates`, positions in all trainable weights written as one row |
| C | `Plan.clip` |

The plan is calibrated for data and *all* canaries, n = data + m, so that its rate does not tell
how many the coins took.
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
from panas.privacy.gradients.private import PrivateGradient, cross_entropy
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
        """How many."""
        return len(self.coordinates)

    def take(self, indices: Indices) -> "DiracCanaries":
        """Those at `indices`, in that order."""
        return DiracCanaries(self.coordinates[torch.as_tensor(indices, dtype=torch.int64)])


def diracs(network: nn.Module, m: int, rng: np.random.Generator) -> DiracCanaries:
    """m canaries, each on a weight of its own, chosen at random among all trainable ones.

    Raises:
        BadInput: if the network has fewer weights, or more than can be numbered.

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
    """Train a network in place by DP-SGD for one round of `plan`, on data and canaries.

    Args:
        network: maps images (b, c, h, w) to logits (b, classes), and mixes no samples.
        data: genuine samples.
        canaries: those that the coins took.
        plan: of n = data + all canaries that there might be.
        learning_rate: of plain SGD, above 0.
        noise: source of the Poisson batches and of the noise.

    Returns:
        How far each trainable weight was moved down, w_first - w_last.

    Raises:
        BadInput: if the plan is for fewer samples than there are.

    """
    n = len(data) + len(canaries)
    if n > plan.samples:
        raise BadInput(
            f"expected a plan for at least the {n} samples and canaries, got one for "
            f"{plan.samples}; calibrate it for the data and all canaries"
        )
    model = _Planted(network, data.shape).train()
    x = torch.zeros(n, 1 + data.inputs()[0].numel())
    x[: len(data), 1:] = data.inputs().flatten(1)
    x[len(data) :, 0] = 1.0 + canaries.coordinates
    y = torch.cat([data.y, torch.zeros(len(canaries), dtype=torch.int64)])
    first = _flat(network).detach().clone()
    parameters = [p for p in network.parameters() if p.requires_grad]
    x, y = x.to(first.device), y.to(first.device)
    optimiser = torch.optim.SGD(parameters, lr=learning_rate)
    gradient = PrivateGradient(model, _loss)
    with warnings.catch_warnings():
        # A canary's loss reads a weight without its layer, so that the slower way is the only one.
        warnings.filterwarnings("ignore", "per-sample gradients by torch.func")
        for batch in poisson_batches(n, plan.rate, plan.steps, noise):
            gradient.step(x[batch], y[batch], plan.clip_and_noise, noise)
            optimiser.step()
    return first - _flat(network).detach()


def dirac_scores(descent: Float[Tensor, "p"], canaries: DiracCanaries) -> Float[Tensor, "m"]:
    """How far each canary's weight was moved down."""
    return descent[canaries.coordinates]


class _Planted(nn.Module):
    """A network whose samples are rows (1 + c h w): a mark and an image; see `_loss`.

    A genuine sample has mark 0, its logits, and 0 in the last column. A canary has mark 1 + j,
    logits 0, and its weight, made steep, in the last column.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.network = network
        self._shape = shape
        self._trainable = [n for n, p in network.named_parameters() if p.requires_grad]

    def forward(self, rows: Float[Tensor, "b k"]) -> Float[Tensor, "b columns"]:
        """Logits and steep weights of a batch of rows."""
        marks = rows[:, 0]
        planted = marks >= 1
        logits = self.network(rows[:, 1:].reshape(-1, *self._shape))
        # Read here and not before: whoever asks for gradients may have put other tensors there.
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
