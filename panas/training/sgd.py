"""Fit one network, a bottom and a head, without privacy."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.memory import keep_freed_memory
from panas.runtime.store import under
from panas.runtime.typed import check_fields
from panas.training.channels_last import LAST, channels_last

CHUNK_BYTES = 32 << 20  # activations of one pass: beyond it allocation costs most

RISE = 0.2  # share of the steps over which the rate of "one-cycle" rises

Batches = Callable[[Int[Tensor, "b"], int], tuple[Tensor, Tensor]]
"""Inputs (b, c, h, w) of the samples at some places, for a step of the training, and what a network
should answer: classes (b,), or probabilities (b, classes). Equal arguments give equal batches."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How weights move; under DP a `Plan` says the batches and epochs."""

    learning_rate: float = 0.01  # above 0
    optimiser: Literal["sgd", "adam"] = "sgd"  # "sgd" is the paper's
    momentum: float = 0.0  # of SGD, in [0, 1)
    batch_size: int = 64  # samples a step, at least 1
    epochs: int = 1  # passes over the data, 0 or more
    decay: Literal["none", "cosine", "one-cycle"] = "none"
    """Over all steps of a `fit`: "cosine" falls to 0, "one-cycle" rises over the first fifth, then
    falls so (Smith and Topin 2018)."""
    weight_decay: float = 0.0  # 0 or more; of "adam" it is decoupled, as in AdamW
    train_head: bool = True
    """Fixed, as in DPRBFT's sound preset, it makes all clients' representations point one way."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.learning_rate < math.inf or not 0 <= self.momentum < 1:
            raise BadInput(
                "expected learning_rate finite and above 0 and momentum in [0, 1), got "
                f"{self.learning_rate} and {self.momentum}; fix them"
            )
        if self.batch_size < 1 or self.epochs < 0:
            raise BadInput(
                "expected batch_size of at least 1 and epochs of at least 0, got "
                f"{self.batch_size} and {self.epochs}; raise them"
            )


SHORT = OptimizerConfig(
    optimiser="adam", learning_rate=0.005, decay="cosine", batch_size=32, epochs=8
)
"""The training that gives a genome its fitness."""

WARM = replace(SHORT, epochs=30)
"""The training on public samples that comes before a private one."""


def make_optimizer(params: list[nn.Parameter], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Torch's optimiser of these parameters."""
    rate, shrink = config.learning_rate, config.weight_decay
    fused = all(p.device.type in ("cpu", "cuda") for p in params)
    if config.optimiser == "adam":
        if shrink:
            return torch.optim.AdamW(params, lr=rate, weight_decay=shrink, fused=fused)
        return torch.optim.Adam(params, lr=rate, fused=fused)
    return torch.optim.SGD(params, lr=rate, momentum=config.momentum, weight_decay=shrink)


def steps_of(config: OptimizerConfig, samples: int) -> int:
    """Steps of a training, over which a learning rate decays."""
    return max(1, config.epochs * math.ceil(samples / config.batch_size))


def batches_of(order: Int[Tensor, "n"], size: int) -> Iterator[Int[Tensor, "b"]]:
    """Batches of an epoch, without a last one of one sample, which BatchNorm cannot normalise."""
    alone = len(order) > 1 and size > 1
    return (batch for batch in order.split(size) if not (alone and len(batch) == 1))


def set_rate(
    optimizer: torch.optim.Optimizer, config: OptimizerConfig, step: int, steps: int
) -> None:
    """Set the learning rate of one step.

    Args:
        optimizer: all its groups get the same rate.
        config: the highest learning rate, and its decay.
        step: from 0.
        steps: of the whole training, as `steps_of` counts them.
    """
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * _share_of_rate(config.decay, step, steps)


def _share_of_rate(decay: str, step: int, steps: int) -> float:
    if decay == "none":
        return 1.0
    rise = int(RISE * steps) if decay == "one-cycle" else 0
    if step < rise:
        return (step + 1) / (rise + 1)
    return (1 + math.cos(math.pi * (step - rise) / (steps - rise))) / 2


def set_trainable(
    bottom: Bottom, head: Head, train_head: bool
) -> tuple[nn.Module, list[nn.Parameter]]:
    """Bottom and head as one model in training mode, and those of its parameters that move.

    Args:
        bottom: all of it trains.
        head: on the bottom's device.
        train_head: whether the head moves; else its gradients are off.
    """
    model = nn.Sequential(bottom, head)
    bottom.requires_grad_(True)
    head.requires_grad_(train_head)
    return model.train(), [p for p in model.parameters() if p.requires_grad]


class Trainer:
    """Training without privacy that can stop after any epoch and go on later, elsewhere.

    Shuffled mini-batches, cross-entropy. BadInput if there are no samples.

    Args:
        bottom: moves in place.
        head: moves in place if `config.train_head`.
        samples: n >= 1 of them.
        config: how weights move; its epochs are those over which a learning rate decays.
        rng: orders the samples; nothing else may draw from it until the last epoch.
        batches: what to learn at a step; None: the samples and their labels.
    """

    def __init__(
        self,
        bottom: Bottom,
        head: Head,
        samples: Samples,
        *,
        config: OptimizerConfig,
        rng: np.random.Generator,
        batches: Batches | None = None,
    ) -> None:
        if not len(samples):
            raise BadInput("expected at least one training sample, got none; give the site data")
        self._model, self._parameters = set_trainable(bottom, head, config.train_head)
        self._blocks = bottom.blocks
        self._optimizer = make_optimizer(self._parameters, config)
        self._samples, self._config, self._rng = samples, config, rng
        self._batches = batches or (lambda at, _: (samples.inputs(at), samples.y[at]))
        self._steps, self._step = steps_of(config, len(samples)), 0
        self._chunk: int | None = None
        self.epochs = 0

    def run(self, epochs: int) -> int:
        """Train until `epochs` epochs are through; returns the sample-passes taken."""
        passes = 0
        keep_freed_memory()
        with channels_last(self._model, self._blocks):
            while self.epochs < epochs:
                self._model.train()
                for batch in batches_of(self._order(), self._config.batch_size):
                    set_rate(self._optimizer, self._config, self._step, self._steps)
                    self._descend(batch)
                    self._step += 1
                    passes += len(batch)
                self.epochs += 1
        return passes

    def state(self) -> dict[str, Tensor]:
        """Weights and the optimiser's memory: all that `resume` needs."""
        results = {f"model.{name}": t for name, t in self._model.state_dict().items()}
        for i, slots in self._optimizer.state_dict()["state"].items():
            results |= {f"memory.{i}.{name}": t for name, t in slots.items() if t is not None}
        return results | {"epochs": torch.tensor(self.epochs), "step": torch.tensor(self._step)}

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Go on where another training of the same network, samples and seed has stopped."""
        self._model.load_state_dict(under(state, "model."))
        memory: dict[int, dict[str, Tensor]] = {}
        for key, t in under(state, "memory.").items():
            i, _, name = key.partition(".")
            memory.setdefault(int(i), {})[name] = t
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": memory, "param_groups": groups})
        for _ in range(int(state["epochs"]) - self.epochs):
            self._order()
        self.epochs, self._step = int(state["epochs"]), int(state["step"])

    def _order(self) -> Tensor:
        return torch.from_numpy(self._rng.permutation(len(self._samples)))

    def _descend(self, batch: Tensor) -> None:
        device = self._parameters[0].device
        x, y = (t.to(device) for t in self._batches(batch, self._step))
        if self._chunk is None:
            self._chunk = _chunk(self._model, x[:1]) if len(x) > 1 else None
        self._optimizer.zero_grad(set_to_none=True)
        size, x = self._chunk or len(x), x.clone(memory_format=LAST)
        for part, labels in zip(x.split(size), y.split(size), strict=True):
            loss = F.cross_entropy(self._model(part), labels, reduction="sum") / len(x)
            loss.backward()
        self._optimizer.step()


def fit(
    bottom: Bottom,
    head: Head,
    samples: Samples,
    *,
    config: OptimizerConfig,
    rng: np.random.Generator,
    batches: Batches | None = None,
) -> None:
    """Train in place without privacy, from the first epoch to the last; see `Trainer`.

    Args:
        bottom: moves in place.
        head: moves in place if `config.train_head`.
        samples: n >= 1 of them.
        config: how weights move.
        rng: orders the samples, once an epoch.
        batches: what to learn at a step; None: the samples and their labels.
    """
    Trainer(bottom, head, samples, config=config, rng=rng, batches=batches).run(config.epochs)


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
