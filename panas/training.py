"""Fit and evaluate one network, with and without differential privacy.

Here a network is a bottom and a head. `train_head=False` holds the head fixed, as DPRBFT's sound
preset does during a round, so that all clients' representations point the same way.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.data.dataset import Samples
from panas.errors import BadInput
from panas.network import Bottom, Head
from panas.privacy.gradients import PrivateGradient, poisson_batch
from panas.privacy.plan import Plan
from panas.privacy.randomness import NoiseSource

EVALUATION_BATCH = 512
"""Samples in one forward pass without gradients."""


@dataclass(frozen=True, kw_only=True)
class Optimisation:
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


def _optimiser(parameters: list[nn.Parameter], how: Optimisation) -> torch.optim.Optimizer:
    if how.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=how.learning_rate)
    return torch.optim.SGD(parameters, lr=how.learning_rate, momentum=how.momentum)


def _trainable(bottom: Bottom, head: Head, train_head: bool) -> tuple[nn.Module, list]:
    model = nn.Sequential(bottom, head)
    bottom.requires_grad_(True)
    head.requires_grad_(train_head)
    return model.train(), [p for p in model.parameters() if p.requires_grad]


def fit(
    bottom: Bottom,
    head: Head,
    samples: Samples,
    *,
    how: Optimisation,
    rng: np.random.Generator,
    train_head: bool = True,
    on_epoch: Callable[[int], None] | None = None,
) -> None:
    """Train in place without privacy: shuffled mini-batches, cross-entropy.

    A last batch of a single sample is left out, since BatchNorm cannot normalise it.

    Raises:
        BadInput: if there are no samples.

    """
    if not len(samples):
        raise BadInput("expected at least one training sample, got none; give the client data")
    model, parameters = _trainable(bottom, head, train_head)
    optimiser = _optimiser(parameters, how)
    y, device = samples.y, parameters[0].device
    steps = max(1, how.epochs * math.ceil(len(y) / how.batch_size))
    decay = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda k: (1 + math.cos(math.pi * k / steps)) / 2 if how.decay == "cosine" else 1.0,
    )
    for epoch in range(how.epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for batch in order.split(how.batch_size):
            if len(batch) == 1 and len(y) > 1 and how.batch_size > 1:
                continue
            optimiser.zero_grad(set_to_none=True)
            x = samples.inputs(batch).to(device)
            F.cross_entropy(model(x), y[batch].to(device)).backward()
            optimiser.step()
            decay.step()
        if on_epoch:
            on_epoch(epoch)


def fit_private(
    bottom: Bottom,
    head: Head,
    samples: Samples,
    *,
    plan: Plan,
    how: Optimisation,
    noise: NoiseSource,
    train_head: bool = True,
) -> None:
    """Train in place for one round of `plan` by DP-SGD.

    Args:
        bottom: with GroupNorm.
        head: shared head; moved only with `train_head`.
        samples: exactly the plan's n samples.
        plan: rate, steps, clip and noise; `how` gives optimiser and learning rate.
        how: optimiser, learning rate and momentum.
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
    optimiser = _optimiser(parameters, how)
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
    batches = torch.arange(len(samples)).split(EVALUATION_BATCH) if len(samples) else ()
    parts = [bottom(samples.inputs(b).to(device)).cpu() for b in batches]
    return torch.cat(parts) if parts else torch.zeros(0, bottom.adapt.out_features)


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
