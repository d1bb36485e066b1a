"""Fit and evaluate one network, with and without differential privacy.

Here a network is a bottom and a head. `train_head=False` holds the head fixed, as DPRBFT's sound
preset does during a round, so that all clients' representations point the same way.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.network import Bottom, Head
from panas.data.samples import Samples
from panas.privacy.gradients.private import PrivateGradient, poisson_batch
from panas.privacy.noise import NoiseSource
from panas.privacy.plan import Plan
from panas.runtime.errors import BadInput

EVALUATION_BATCH = 512
"""Samples in one forward pass without gradients, at most."""

CHUNK_BYTES = 32 << 20
"""Activations that one pass may hold: beyond it allocation costs most."""

MAPS_HELD = 4
"""Maps that a residual block holds at once in a pass without gradients."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How weights move.

    Attributes:
        learning_rate: above 0.
        optimiser: "sgd" (the paper's) or "adam".
        momentum: of SGD, in [0, 1).
        batch_size: samples a step, at least 1 (without DP; a `Plan` has its own).
        epochs: passes over the data, 0 or more.
        decay: "cosine" lowers the learning rate to 0 over all steps of a `fit`.

    """

    learning_rate: float = 0.01
    optimiser: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.0
    batch_size: int = 64
    epochs: int = 1
    decay: Literal["none", "cosine"] = "none"


def _optimiser(parameters: list[nn.Parameter], optimizer: OptimizerConfig) -> torch.optim.Optimizer:
    if optimizer.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=optimizer.learning_rate)
    return torch.optim.SGD(parameters, lr=optimizer.learning_rate, momentum=optimizer.momentum)


def _trainable(bottom: Bottom, head: Head, train_head: bool) -> tuple[nn.Module, list]:
    model = nn.Sequential(bottom, head)
    bottom.requires_grad_(True)
    head.requires_grad_(train_head)
    return model.train(), [p for p in model.parameters() if p.requires_grad]


class Trainer:
    """Training without privacy that can stop after any epoch and go on later, elsewhere.

    Shuffled mini-batches, cross-entropy. A last batch of a single sample is left out, since
    BatchNorm cannot normalise it. Networks that do not mix samples go through a large batch in
    chunks, which bounds their memory and spares the caches.

    Args:
        bottom: trained in place.
        head: trained in place with `train_head`, else held fixed.
        samples: at least one.
        optimizer: optimiser, learning rate, batch size and epochs.
        rng: order of the samples; used by nobody else until the last epoch.
        train_head: whether the head moves too.

    Raises:
        BadInput: if there are no samples.

    """

    def __init__(
        self,
        bottom: Bottom,
        head: Head,
        samples: Samples,
        *,
        optimizer: OptimizerConfig,
        rng: np.random.Generator,
        train_head: bool = True,
    ) -> None:
        if not len(samples):
            raise BadInput("expected at least one training sample, got none; give the client data")
        self._model, self._parameters = _trainable(bottom, head, train_head)
        self._optimiser = _optimiser(self._parameters, optimizer)
        self._samples, self._optimizer_config, self._rng = samples, optimizer, rng
        self._steps = max(1, optimizer.epochs * math.ceil(len(samples) / optimizer.batch_size))
        self._step = 0
        self._chunk: int | None = None
        self.epochs = 0

    def run(self, epochs: int) -> int:
        """Train until `epochs` epochs are through; returns the sample-passes that took."""
        optimizer, passes = self._optimizer_config, 0
        while self.epochs < epochs:
            self._model.train()
            for batch in self._order().split(optimizer.batch_size):
                if len(batch) == 1 and len(self._samples) > 1 and optimizer.batch_size > 1:
                    continue
                decay = (1 + math.cos(math.pi * self._step / self._steps)) / 2
                for group in self._optimiser.param_groups:
                    group["lr"] = optimizer.learning_rate * (
                        decay if optimizer.decay == "cosine" else 1.0
                    )
                self._descend(batch)
                self._step += 1
                passes += len(batch)
            self.epochs += 1
        return passes

    def state(self) -> dict[str, Tensor]:
        """Weights, and what the optimiser remembers: all that `resume` needs."""
        memory = self._optimiser.state_dict()["state"]
        found = {f"model.{name}": t for name, t in self._model.state_dict().items()}
        for i, slots in memory.items():
            found |= {f"memory.{i}.{name}": t for name, t in slots.items() if t is not None}
        return found | {"epochs": torch.tensor(self.epochs), "step": torch.tensor(self._step)}

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Go on where another fitting of the same network, samples and seed has stopped."""
        weights = {k.removeprefix("model."): t for k, t in state.items() if k.startswith("model.")}
        self._model.load_state_dict(weights)
        memory: dict[int, dict[str, Tensor]] = {}
        for key in state:
            if key.startswith("memory."):
                _, i, name = key.split(".")
                memory.setdefault(int(i), {})[name] = state[key]
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": memory, "param_groups": groups})
        for _ in range(int(state["epochs"]) - self.epochs):
            self._order()
        self.epochs, self._step = int(state["epochs"]), int(state["step"])

    def _order(self) -> Tensor:
        return torch.from_numpy(self._rng.permutation(len(self._samples)))

    def _descend(self, batch: Tensor) -> None:
        device = self._parameters[0].device
        x, y = self._samples.inputs(batch).to(device), self._samples.y[batch].to(device)
        if self._chunk is None:
            self._chunk = _chunk(self._model, x[:1]) if len(x) > 1 else None
        self._optimiser.zero_grad(set_to_none=True)
        size = self._chunk or len(x)
        for part, labels in zip(x.split(size), y.split(size), strict=True):
            loss = F.cross_entropy(self._model(part), labels, reduction="sum") / len(x)
            loss.backward()
        self._optimiser.step()


def fit(
    bottom: Bottom,
    head: Head,
    samples: Samples,
    *,
    optimizer: OptimizerConfig,
    rng: np.random.Generator,
    train_head: bool = True,
    on_epoch: Callable[[int], None] | None = None,
) -> None:
    """Train in place without privacy, from the first epoch to the last; see `Trainer`.

    Raises:
        BadInput: if there are no samples.

    """
    fitting = Trainer(bottom, head, samples, optimizer=optimizer, rng=rng, train_head=train_head)
    for epoch in range(optimizer.epochs):
        fitting.run(epoch + 1)
        if on_epoch:
            on_epoch(epoch)


def _chunk(model: nn.Module, x: Float[Tensor, "1 c h w"]) -> int:
    """How many samples to pass at once so that activations stay within `CHUNK_BYTES`."""
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules()):
        return sys.maxsize
    held: dict[int, int] = {}

    def keep(t: Tensor) -> Tensor:
        held[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        model(x).sum()
    for p in model.parameters():
        held.pop(p.data_ptr(), None)
    return max(1, CHUNK_BYTES // max(1, sum(held.values())))


def fit_private(
    bottom: Bottom,
    head: Head,
    samples: Samples,
    *,
    plan: Plan,
    optimizer: OptimizerConfig,
    noise: NoiseSource,
    train_head: bool = True,
) -> None:
    """Train in place for one round of `plan` by DP-SGD.

    Args:
        bottom: with GroupNorm.
        head: shared head; moved only with `train_head`.
        samples: exactly the plan's n samples.
        plan: rate, steps, clip and noise; `how` gives optimiser and learning rate.
        optimizer: optimiser, learning rate and momentum.
        noise: source of the Poisson batches and of the noise.
        train_head: whether the head moves too.

    Privacy: `plan.training_event`, which the caller has charged to the ledger before.

    """
    if len(samples) != plan.samples:
        raise BadInput(
            f"expected the {plan.samples} samples that the plan was calibrated for, got "
            f"{len(samples)}; calibrate again"
        )
    model, parameters = _trainable(bottom, head, train_head)
    optimiser = _optimiser(parameters, optimizer)
    y, device = samples.y, parameters[0].device
    gradient = PrivateGradient(model)
    for _ in range(plan.steps):
        batch = poisson_batch(plan.samples, plan.rate, noise)
        x = samples.inputs(batch).to(device)
        gradient.step(x, y[batch].to(device), plan, noise)
        optimiser.step()


@torch.no_grad()
def represent(bottom: Bottom, samples: Samples) -> Float[Tensor, "n d"]:
    """Representations of all samples, on the CPU, in evaluation mode."""
    bottom.eval()
    device = bottom.adapt.weight.device
    if not len(samples):
        return torch.zeros(0, bottom.adapt.out_features)
    held = MAPS_HELD * _largest_map(bottom, samples.inputs(torch.arange(1)).to(device))
    batches = torch.arange(len(samples)).split(min(EVALUATION_BATCH, max(1, CHUNK_BYTES // held)))
    return torch.cat([bottom(samples.inputs(b).to(device)).cpu() for b in batches])


def _largest_map(bottom: Bottom, x: Float[Tensor, "1 c h w"]) -> int:
    """Bytes of the largest map that a sample comes by."""
    sizes = [x.numel() * x.element_size()]

    def note(_: nn.Module, __: object, out: object) -> None:
        if isinstance(out, Tensor):
            sizes.append(out.numel() * out.element_size())

    hooks = [module.register_forward_hook(note) for module in bottom.modules()]
    bottom(x)
    for hook in hooks:
        hook.remove()
    return max(sizes)


@torch.no_grad()
def accuracy(bottom: Bottom, head: Head, samples: Samples) -> float:
    """Share of samples whose class has the largest logit; NaN if there are no samples."""
    return head_scores(represent(bottom, samples), samples, head)[0]


@torch.no_grad()
def head_scores(z: Float[Tensor, "n d"], samples: Samples, head: Head) -> tuple[float, float]:
    """Accuracy and mean cross-entropy of a head on representations that are computed already."""
    if not len(samples):
        return float("nan"), float("nan")
    logits = head(z.to(head.linear.weight.device)).cpu()
    right = (logits.argmax(1) == samples.y).double().mean()
    return float(right), float(F.cross_entropy(logits, samples.y))
