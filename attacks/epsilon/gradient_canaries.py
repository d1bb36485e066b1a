"""Gradient canaries: the strongest canaries for DP-SGD, each a whole clip along its own direction.

A canary's loss is the network's weights along a unit vector u_j, times a factor so large that its
gradient is C u_j after the clip. All u_j are orthogonal, so that no canary hides another.

| canaries | u_j |
|---|---|
| `diracs` | one weight: they find noise that misses it |
| `orthogonal` | random signs on a share of all weights: together they test every weight |

| the adversary sees | score of canary j |
|---|---|
| the final network alone | `final_scores`: u_j . (w_first - w_last) |
| all rounds | `round_scores`: sum over steps t of log(1 - q + q e^((2 x_t - 1) / (2 sigma^2))) |

x_t is the step along u_j, in clips of one batch; if j is in the batch, its mean is 1. The sum over
rounds is the log-likelihood ratio, were there no genuine samples. Canaries pass through
`panas.privacy.gradients.private` as samples do. C, q and sigma are those of `Plan`.

Source: Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846), section 6 (Dirac canaries); Nasr et
al. 2023 (all rounds seen).
"""

import warnings
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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


@runtime_checkable
class GradientCanaries(Protocol):
    """Canaries that each own a direction among all p trainable weights, written as one row."""

    @property
    def marks(self) -> Int64[Tensor, "m"]:
        """A number for each, 0 or more."""

    def __len__(self) -> int:
        """How many."""

    def take(self, indices: Indices) -> "GradientCanaries":
        """Those at `indices`, in that order."""

    def along(self, weights: Float[Tensor, "... p"]) -> Float[Tensor, "... m"]:
        """u_j . weights of each canary."""

    def of_marks(self, weights: Float[Tensor, "p"], marks: Int64[Tensor, "b"]) -> Tensor:
        """The same of the canaries of these numbers."""


@dataclass(frozen=True)
class DiracCanaries:
    """Canaries that each own one weight."""

    coordinates: Int64[Tensor, "m"]  # positions in all trainable weights

    @property
    def marks(self) -> Int64[Tensor, "m"]:
        """The coordinates."""
        return self.coordinates

    def __len__(self) -> int:
        return len(self.coordinates)

    def take(self, indices: Indices) -> "DiracCanaries":
        """Those at `indices`, in that order."""
        return DiracCanaries(self.coordinates[torch.as_tensor(indices, dtype=torch.int64)])

    def along(self, weights: Float[Tensor, "... p"]) -> Float[Tensor, "... m"]:
        """Each canary's weight."""
        return weights[..., self.coordinates]

    def of_marks(self, weights: Float[Tensor, "p"], marks: Int64[Tensor, "b"]) -> Tensor:
        """The weights of these coordinates."""
        return weights[marks]


@dataclass(frozen=True)
class OrthogonalCanaries:
    """Canaries that divide all weights among them, each with random signs on its share."""

    marks: Int64[Tensor, "m"]
    owner: Int64[Tensor, "p"]  # of each weight: a mark
    unit: Float[Tensor, "p"]  # of each weight: its entry of its owner's direction

    def __len__(self) -> int:
        return len(self.marks)

    def take(self, indices: Indices) -> "OrthogonalCanaries":
        """Those at `indices`, in that order."""
        chosen = self.marks[torch.as_tensor(indices, dtype=torch.int64)]
        return OrthogonalCanaries(chosen, self.owner, self.unit)

    def along(self, weights: Float[Tensor, "... p"]) -> Float[Tensor, "... m"]:
        """Sums over each canary's share."""
        sums = weights.new_zeros(*weights.shape[:-1], int(self.owner.max()) + 1)
        return sums.index_add(-1, self.owner, weights * self.unit)[..., self.marks]

    def of_marks(self, weights: Float[Tensor, "p"], marks: Int64[Tensor, "b"]) -> Tensor:
        """Sums over the shares of these numbers."""
        owner, unit = self.owner.to(weights.device), self.unit.to(weights.device)
        return torch.where(owner == marks[:, None], weights * unit, 0.0).sum(1)


def diracs(network: nn.Module, m: int, rng: np.random.Generator) -> DiracCanaries:
    """m canaries, each on a weight of its own, chosen at random among all trainable ones.

    Args:
        network: with m trainable weights or more.
        m: how many canaries, at least 1.
        rng: chooses the weights.
    """
    return DiracCanaries(torch.from_numpy(rng.choice(_weights(network, m), m, replace=False)))


def orthogonal(network: nn.Module, m: int, rng: np.random.Generator) -> OrthogonalCanaries:
    """m canaries, each with random signs on an m-th of all trainable weights.

    Args:
        network: with m trainable weights or more.
        m: how many canaries, at least 1.
        rng: deals the weights, and draws the signs.
    """
    weights = _weights(network, m)
    owner = torch.from_numpy(rng.permutation(weights) % m)
    signs = torch.from_numpy(2.0 * rng.integers(2, size=weights) - 1)
    unit = signs / owner.bincount(minlength=m).sqrt()[owner]
    return OrthogonalCanaries(torch.arange(m), owner, unit.float())


def _weights(network: nn.Module, m: int) -> int:
    weights = sum(p.numel() for p in network.parameters() if p.requires_grad)
    if not m <= weights <= LARGEST:
        raise BadInput(
            f"expected a network of {m} to {LARGEST} trainable weights, got {weights}; plant "
            "fewer canaries, or audit a smaller network"
        )
    return weights


def train_with_gradient_canaries(
    network: nn.Module,
    data: Samples,
    canaries: GradientCanaries,
    *,
    plan: Plan,
    learning_rate: float,
    noise: NoiseSource,
) -> Float[Tensor, "steps p"]:
    """Train a network in place by DP-SGD for one round of `plan`; how far each step went down.

    The sum over steps is w_first - w_last.

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
    x[len(data) :, 0] = 1.0 + canaries.marks
    y = torch.cat([data.y, torch.zeros(len(canaries), dtype=torch.int64)])
    parameters = [p for p in network.parameters() if p.requires_grad]
    device = parameters[0].device
    x, y = x.to(device), y.to(device)
    optimiser = torch.optim.SGD(parameters, lr=learning_rate)
    gradient = PrivateGradient(_Planted(network, data.shape, canaries).train(), _loss)
    went = []
    with warnings.catch_warnings():
        # A canary's loss reads weights without their layer, which leaves only the slower way.
        warnings.filterwarnings("ignore", "per-sample gradients by torch.func")
        for batch in poisson_batches(n, plan.rate, plan.steps, noise):
            gradient.step(x[batch], y[batch], plan.clip_and_noise, noise)
            went.append(learning_rate * torch.cat([_grad(p).flatten() for p in parameters]))
            optimiser.step()
    return torch.stack(went)


def final_scores(went: Float[Tensor, "steps p"], canaries: GradientCanaries) -> Float[Tensor, "m"]:
    """How far the network was moved down along each canary, from first to last.

    Args:
        went: how far each step went down; only the sum is read.
        canaries: all of them.
    """
    return canaries.along(went.double().sum(0))


def round_scores(
    went: Float[Tensor, "steps p"],
    canaries: GradientCanaries,
    *,
    plan: Plan,
    learning_rate: float,
) -> Float[Tensor, "m"]:
    """The log-likelihood ratio of each canary from every step.

    Args:
        went: how far each step went down.
        canaries: all of them.
        plan: of the training.
        learning_rate: of the training.
    """
    mechanism = plan.clip_and_noise
    unit = learning_rate * mechanism.clip / mechanism.batch_size
    x = canaries.along(went.double()) / unit
    taken = (2 * x - 1) / (2 * mechanism.noise_multiplier**2)
    if plan.rate == 1:
        return taken.sum(0)
    q = torch.tensor(plan.rate, dtype=torch.float64)
    return torch.logaddexp(torch.log1p(-q), q.log() + taken).sum(0)


class _Planted(nn.Module):
    """A network whose samples are rows (1 + c h w): mark and image, to logits and a last column.

    A genuine sample has mark 0, and 0 in the last column. A canary has mark 1 + j, logits 0, and
    the weights along its direction, made steep, in the last column.
    """

    def __init__(
        self, network: nn.Module, shape: tuple[int, int, int], canaries: GradientCanaries
    ) -> None:
        super().__init__()
        self.network = network
        self._canaries = canaries
        self._shape = shape
        self._trainable = [n for n, p in network.named_parameters() if p.requires_grad]

    def forward(self, rows: Float[Tensor, "b k"]) -> Float[Tensor, "b columns"]:
        marks, planted = rows[:, 0], rows[:, 0] >= 1
        logits = self.network(rows[:, 1:].reshape(-1, *self._shape))
        # Read at each call: torch.func puts other tensors there.
        weights = dict(self.network.named_parameters())
        flat = torch.cat([weights[name].flatten() for name in self._trainable])
        owned = self._canaries.of_marks(flat, (marks.long() - 1).clamp(0, len(flat) - 1))
        steep = STEEPNESS * owned * planted
        return torch.cat([logits * ~planted[:, None], steep[:, None]], dim=1)


def _loss(outputs: Float[Tensor, "b columns"], y: Int64[Tensor, "b"]) -> Float[Tensor, "b"]:
    """Cross-entropy of the logits, which is constant for a canary, and the last column."""
    return cross_entropy(outputs[:, :-1], y) + outputs[:, -1]


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach()
