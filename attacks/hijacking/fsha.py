"""FSHA: a malicious server of split learning turns the client's network into one it can invert.

The server trains an autoencoder on public images, whose encoder is the pilot f~. Instead of the
task's gradients it sends the client those of a critic that separates z = f(x) from f~(public x), so
that f learns to send what f~ would have sent, which the server's decoder inverts.

| symbol | name |
|---|---|
| z, f | what the client sends, and its network |
| f~ | `pilot`: strided convolutions with swish between them |
| f~^-1 | `decoder`: transposed convolutions with ReLU between them, and tanh |
| D | `critic`: a convolution, residual blocks, a strided convolution, one number a sample |
| lambda | `penalty`, weight of the critic's gradient penalty |

In each iteration D ascends mean D(z) - mean D(f~(x_pub)) - lambda mean (|grad D(z^)| - 1)^2, z^
being uniform between a z and an f~(x_pub); f~ and its decoder descend the squared error of
f~^-1(f~(x_pub)); the client gets the gradients of D(z_i), to descend.

Source: Pasquini, Ateniese and Bernaschi 2021 (arXiv 2012.02670). Their settings: width 1, six
blocks in the critic and one step of it an iteration, lambda 500, constant learning rates 1e-5 (f,
f~ and its decoder) and 1e-4 (D), batches of 64, 10,000 iterations. What differs makes narrow
networks learn quickly. The norm in the penalty is one a channel of z^, as in the authors' code; one
over all of z^, as in their text, is far slower.

**Split learning.** In each iteration the client draws a batch of its samples, sends smashed
features z = f(x), receives one gradient a sample with respect to z, and steps f with Adam. It
cannot check whether the gradients serve the promised task: FSHA uses this.

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

import math
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attacks.hijacking.networks import ResidualNetwork, channels, critic, decoder, draw, pilot
from panas.data.samples import Indices, Samples
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import MAX_NOISE, epsilon_of, least_noise
from panas.privacy.gradients.private import ClipAndNoise, PrivateGradient
from panas.privacy.noise import NoiseSource, poisson_batch
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator

Slopes = Literal["channel", "sample"]
"""Which norm the penalty bounds: that of each channel of a sample's features, or of all."""


@dataclass(frozen=True, kw_only=True)
class FSHAConfig:
    """Settings of the attack, and of the client's training, which the server announces."""

    width: float = 0.25
    """Channel counts of f, f~ and decoder, as a share of the paper's; above 0."""
    critic_width: float = 0.375
    """Channel count of the critic, as a share of the paper's 256; above 0."""
    critic_blocks: int = 1
    """Residual blocks of the critic, 0 or more; 6 in the paper."""
    critic_steps: int = 6
    """Steps of D an iteration, at least 1; 1 in the paper."""
    batch_size: int = 64
    """Samples a batch, at least 2; expected ones, where the client runs DP-SGD."""
    iterations: int = 4500
    """Batches that the client sends, at least 1."""
    client_rate: float = 3e-4
    """Learning rate of f (Adam), above 0. Narrow networks need larger rates than the paper's."""
    pilot_rate: float = 2e-3
    """Learning rate of f~ and its decoder (Adam), above 0."""
    critic_rate: float = 1e-3
    """Learning rate of D (Adam), above 0."""
    momentum: float = 0.5
    """Adam's first decay rate for f and D, in [0, 1); 0.9 in the paper."""
    last_rate: float = 0.02
    """All learning rates fall linearly to this share, in (0, 1]; the paper's 1 does not settle."""
    blur: float = 0.2
    """Noise on f~(x_pub) when its decoder learns, as a share of their spread, 0 or more; 0 in the
    paper. The decoder then tolerates that f imitates f~ imperfectly."""
    hold: float = 0.05
    """Weight of (spread of f~(x_pub) - 1)^2 beside the autoencoder's error, 0 or more; 0 in the
    paper. Without it the spread drifts from what the critic's slopes of 1 suit."""
    penalty: float = 500.0
    """lambda, 0 or more."""
    slopes: Slopes = "channel"
    scored: int = 500
    """Private samples, always the same ones, whose reconstructions are scored; at most all."""
    score_every: int = 200
    """Iterations between two points of the curve, at least 1."""
    save_every: int = 200
    """Iterations between two states on disk, at least 1."""
    epsilon: float = math.inf
    """Of the client's DP-SGD over all iterations; infinity for a client without."""
    delta: float = 1e-5
    """Of the same, in (0, 1)."""
    clip: float = 1.0
    """C of the same, above 0."""

    def __post_init__(self) -> None:
        for name in ("width", "critic_width", "client_rate", "pilot_rate", "critic_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"expected {name} above 0, got {getattr(self, name)}; raise it")
        least = {"batch_size": 2, "critic_blocks": 0, "blur": 0, "hold": 0, "penalty": 0}
        counts = ("iterations", "critic_steps", "scored", "score_every", "save_every")
        for name, low in (least | dict.fromkeys(counts, 1)).items():
            if not low <= getattr(self, name) < math.inf:
                raise BadInput(f"expected {name} >= {low}, got {getattr(self, name)}; raise it")
        if not 0 <= self.momentum < 1:
            raise BadInput(f"expected momentum in [0, 1), got {self.momentum}; try 0.5")
        if not 0 < self.last_rate <= 1:
            raise BadInput(f"expected last_rate in (0, 1], got {self.last_rate}; try 0.1")
        Budget(self.epsilon, self.delta)


@runtime_checkable
class Server(Protocol):
    """The other side of the wire."""

    def answer(self, z: Float[Tensor, "b k u v"]) -> Float[Tensor, "b k u v"]:
        """One gradient a sample with respect to its smashed features; b may be 0 and vary."""


def noise_for(budget: Budget, q: float, iterations: int) -> float:
    """The least sigma at which DP-SGD fits the budget.

    Args:
        budget: finite.
        q: sampling rate, in (0, 1].
        iterations: steps of the whole training, at least 1.
    """
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

    Privacy: `send` and `receive` are all that a server may be given. Other members belong to the
    client's own side, and to the simulation that holds the truth.

    Args:
        private: its n samples, images.
        config: B, width of f and rates.
        defence: DP-SGD on f, of expected batches of min(B, n); None: batches of B, without noise.
        rng: draws the weights of f, and batches without a defence.
        noise: draws the defence's batches and noise.
        device: where f is trained.
    """

    def __init__(
        self,
        private: Samples,
        config: FSHAConfig,
        *,
        defence: ClipAndNoise | None,
        rng: np.random.Generator,
        noise: NoiseSource,
        device: torch.device,
    ) -> None:
        check_images(private, config.batch_size, "private")
        self._private, self._batch_size, self._device = private, config.batch_size, device
        self._rng, self._noise, self._defence = rng, noise, defence
        self.network = ResidualNetwork(private.shape[0], config.width)
        draw(self.network, torch_generator(rng))
        self.network.to(device)
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=config.client_rate, betas=(config.momentum, 0.999)
        )
        self._gradient = PrivateGradient(self.network, _pulled_back)
        self._pending: tuple[Tensor, Tensor] | None = None

    def send(self) -> Float[Tensor, "b k u v"]:
        """Smashed features of the next batch: numbers alone, with no graph behind them."""
        n, size = len(self._private), self._batch_size
        batch: Indices
        if self._defence is None:
            batch = self._rng.choice(n, size, replace=False, shuffle=False)
        else:
            batch = poisson_batch(n, min(1.0, size / n), self._noise)
        x = self._private.inputs(batch).to(self._device)
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


def _pulled_back(z: Float[Tensor, "b k u v"], g: Float[Tensor, "b k u v"]) -> Float[Tensor, "b"]:
    """z_i . g_i, whose gradient in the weights of f is g_i pulled back through f."""
    return (z * g).flatten(1).sum(1)


def exchange(client: SplitClient, server: Server) -> None:
    """One iteration of the protocol: features up, gradients down."""
    client.receive(server.answer(client.send()))


def check_images(samples: Samples, batch_size: int, whose: str) -> None:
    """Refuse samples that are fewer than a batch, or no numbers in [-1, 1].

    Args:
        samples: float or byte images.
        batch_size: fewest that there may be.
        whose: name of the samples in the message.
    """
    if not 1 <= batch_size <= len(samples):
        raise BadInput(
            f"expected at least a batch of {batch_size} {whose} samples, got {len(samples)}; "
            "give more samples or a smaller batch_size, of 1 or more"
        )
    if samples.x.is_floating_point() and not bool((samples.x.abs() <= 1).all()):
        raise BadInput(
            f"expected {whose} samples in [-1, 1], got others or NaN; scale or clean the data"
        )


def gradient_penalty(
    network: nn.Module, z: Float[Tensor, "b k u v"], slopes: Slopes
) -> Float[Tensor, ""]:
    """Mean of (|gradient of D at z_i| - 1)^2, differentiable in the weights of D.

    Args:
        network: D, of features to one number a sample.
        z: features at which the gradient is taken; nothing flows back into them.
        slopes: "channel" takes a norm for each channel, else one a sample.
    """
    at = z.detach().requires_grad_()
    (slope,) = torch.autograd.grad(network(at).sum(), at, create_graph=True)
    norms = slope.flatten(2 if slopes == "channel" else 1).norm(dim=-1)
    return (norms - 1).square().mean()


class Hijacker:
    """The malicious server: public samples, three networks, and gradients for the one who sends z.

    Args:
        public: samples of the client's domain, at least a batch, none of them the client's.
        config: widths, rates and the penalty.
        rng: of weights and batches.
        device: where it computes.
    """

    def __init__(
        self, public: Samples, config: FSHAConfig, *, rng: np.random.Generator, device: torch.device
    ) -> None:
        check_images(public, config.batch_size, "public")
        self._public, self._config, self._rng, self._device = public, config, rng, device
        c, h, w = public.shape
        z_shape = (channels(config.width)[2], -(-h // 8), -(-w // 8))
        self._pilot, self._decoder = pilot(c, config.width), decoder((c, h, w), config.width)
        self._critic = critic(z_shape, config.critic_width, config.critic_blocks)
        self.networks = nn.ModuleDict(
            {"pilot": self._pilot, "decoder": self._decoder, "critic": self._critic}
        )
        draw(self.networks, torch_generator(rng))
        self.networks.to(device)
        adam, betas = torch.optim.Adam, (config.momentum, 0.999)
        autoencoder = [*self._pilot.parameters(), *self._decoder.parameters()]
        self.optimisers = {
            "autoencoder": adam(autoencoder, lr=config.pilot_rate),
            "critic": adam(self._critic.parameters(), lr=config.critic_rate, betas=betas),
        }

    def answer(self, z: Float[Tensor, "b k u v"]) -> Float[Tensor, "b k u v"]:
        """Learn from a batch of smashed features; the gradients of D(z_i) for the client."""
        chosen = self._rng.choice(len(self._public), self._config.batch_size, replace=False)
        x = self._public.inputs(chosen).to(self._device)
        own = self._pilot(x)
        # The spread is part of the graph: else f~ would drown the noise by growing.
        spread = own.std()
        noise = torch.from_numpy(self._rng.standard_normal(own.shape)).to(own)
        error = (self._decoder(own + self._config.blur * spread * noise) - x).square().mean()
        _step(self.optimisers["autoencoder"], error + self._config.hold * (spread - 1).square())
        return self._judge(z, own.detach()) if len(z) else torch.zeros_like(z)

    def _judge(self, z: Tensor, own: Tensor) -> Tensor:
        at = z.detach().requires_grad_()
        for _ in range(self._config.critic_steps):
            at.grad = None
            judged = self._critic(torch.cat([at, own]))
            gap = judged[: len(z)].mean() - judged[len(z) :].mean()
            partner = torch.from_numpy(self._rng.integers(len(own), size=len(z))).to(z.device)
            share = torch.from_numpy(self._rng.random((len(z), 1, 1, 1))).to(z)
            between = share * z + (1 - share) * own[partner]
            bound = gradient_penalty(self._critic, between, self._config.slopes)
            _step(self.optimisers["critic"], self._config.penalty * bound - gap)
        assert at.grad is not None
        # The critic descends minus the mean of D(z_i); the client is to descend D(z_i) itself.
        return -len(z) * at.grad

    @torch.no_grad()
    def reconstruct(self, z: Float[Tensor, "m k u v"]) -> Float[Tensor, "m c h w"]:
        """Images of smashed features, in [-1, 1]."""
        return torch.cat([self._decoder(part) for part in z.split(512)])

    @torch.no_grad()
    def rehearse(self, x: Float[Tensor, "m c h w"]) -> Float[Tensor, "m c h w"]:
        """Images through pilot and decoder: the attack's result if f imitated f~ perfectly."""
        return torch.cat([self._decoder(self._pilot(part)) for part in x.split(512)])


def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
