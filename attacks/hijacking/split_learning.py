"""Split learning: a client sends smashed features, and a server answers with gradients.

In each iteration the client draws a batch of its samples, sends z = f(x), receives one gradient a
sample with respect to z, and steps f with Adam. It cannot check whether the gradients serve the
promised task: `attacks.hijacking.fsha` uses this.

| symbol | name |
|---|---|
| x, n | the client's samples in [-1, 1], and how many |
| f | `ResidualNetwork`, the client's part of the network |
| z | smashed features of a batch, all that a client ever sends |
| g_i | the server's gradient at z_i, of the loss of sample i alone |
| B, q | batch size (expected, under DP), and B / n |
| C, sigma | clipping norm and noise multiplier of DP-SGD |

With a defence the client runs DP-SGD on f: of Poisson batches, g_i is pulled back to one gradient
of f a sample (that of z_i . g_i), clipped to C, summed, noised with sigma C and divided by B. This
covers *the weights of f* alone: z leaves without noise, with epsilon infinity.

Source: Gupta and Raskar 2018 (split learning without label sharing).
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.hijacking.networks import ResidualNetwork, draw
from panas.data.samples import Indices, Samples
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import MAX_NOISE, epsilon_of, least_noise
from panas.privacy.gradients.private import ClipAndNoise, PrivateGradient
from panas.privacy.noise import NoiseSource, poisson_batch
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator


@runtime_checkable
class Server(Protocol):
    """The other side of the wire."""

    def answer(self, z: Float[Tensor, "b k u v"]) -> Float[Tensor, "b k u v"]:
        """One gradient a sample with respect to its smashed features; b may be 0 and vary."""


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """How a client trains."""

    width: float
    """Of f, as a share of the paper's channel counts."""
    batch_size: int
    """B; expected, under a defence, whose batches are Poisson samples."""
    learning_rate: float
    momentum: float
    """Of Adam: its first decay rate."""
    defence: ClipAndNoise | None = None
    """DP-SGD on f; its batch size is min(B, n)."""


def noise_for(budget: Budget, q: float, iterations: int) -> float:
    """The least sigma at which `iterations` steps of DP-SGD fit the budget."""
    sigma = least_noise(
        lambda s: epsilon_of([SampledGaussian(q, s, iterations)], budget) <= budget.epsilon
    )
    if sigma is None:
        raise BadInput(
            f"expected a budget that affords {iterations} steps at q = {q:.3g}, got epsilon "
            f"{budget.epsilon:g}, which needs noise above {MAX_NOISE:g}; raise epsilon"
        )
    return sigma


class SplitClient:
    """One client: its samples and its network, of which nothing but z ever leaves.

    `noise` draws the batches and the noise of a defence, `rng` all else.
    Privacy: `send` and `receive` are all that a server may be given. Other members belong to the
    client's own side, and to the simulation that holds the truth.
    """

    def __init__(
        self,
        private: Samples,
        config: SplitConfig,
        *,
        rng: np.random.Generator,
        noise: NoiseSource,
        device: torch.device,
    ) -> None:
        check_images(private, config.batch_size, "private")
        self._private, self._batch_size, self._device = private, config.batch_size, device
        self._rng, self._noise, self._defence = rng, noise, config.defence
        self.network = ResidualNetwork(private.shape[0], config.width)
        draw(self.network, torch_generator(rng))
        self.network.to(device)
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=config.learning_rate, betas=(config.momentum, 0.999)
        )
        self._gradient = PrivateGradient(self.network, _pulled_back)
        self._pending: tuple[Tensor, Tensor] | None = None

    def send(self) -> Float[Tensor, "b k u v"]:
        """Smashed features of the next batch: numbers alone, with no graph behind them."""
        x = self._private.inputs(self._batch()).to(self._device)
        with torch.set_grad_enabled(self._defence is None):
            z = self.network(x)
        self._pending = (x, z)
        return z.detach().clone()

    def receive(self, gradient: Float[Tensor, "b k u v"]) -> None:
        """Step f along the server's gradients at the features that were sent last."""
        shape = None if self._pending is None else tuple(self._pending[1].shape)
        if self._pending is None or tuple(gradient.shape) != shape:
            raise BadInput(
                f"expected gradients at the features sent last, {shape}, got "
                f"{tuple(gradient.shape)}; answer each batch once"
            )
        (x, z), self._pending = self._pending, None
        self.optimiser.zero_grad(set_to_none=True)
        if self._defence is None:
            z.backward(gradient / len(z))
        else:
            self._gradient.step(x, gradient, self._defence, self._noise)
        self.optimiser.step()

    @torch.no_grad()
    def smash(self, indices: Indices) -> Float[Tensor, "m k u v"]:
        """f of chosen samples, as of now: for the holder of the truth, to score an attack."""
        x = self._private.inputs(indices).to(self._device)
        return torch.cat([self.network(part) for part in x.split(512)])

    def _batch(self) -> Indices:
        n = len(self._private)
        if self._defence is None:
            return self._rng.choice(n, self._batch_size, replace=False, shuffle=False)
        return poisson_batch(n, min(1.0, self._batch_size / n), self._noise)


def _pulled_back(z: Float[Tensor, "b k u v"], g: Float[Tensor, "b k u v"]) -> Float[Tensor, "b"]:
    """z_i . g_i, whose gradient in the weights of f is g_i pulled back through f."""
    return (z * g).flatten(1).sum(1)


def exchange(client: SplitClient, server: Server) -> None:
    """One iteration of the protocol: features up, gradients down."""
    client.receive(server.answer(client.send()))


def check_images(samples: Samples, batch_size: int, whose: str) -> None:
    """Refuse samples that are fewer than a batch, or no numbers in [-1, 1]."""
    if not 1 <= batch_size <= len(samples):
        raise BadInput(
            f"expected at least a batch of {batch_size} {whose} samples, got {len(samples)}; "
            "give more samples or a smaller batch_size, of 1 or more"
        )
    if samples.x.is_floating_point() and not bool((samples.x.abs() <= 1).all()):
        raise BadInput(
            f"expected {whose} samples in [-1, 1], got others or NaN; scale or clean the data"
        )
