"""Train and evaluate any network that maps images to logits, with DP-SGD or without."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.privacy.gradients.apart import samples_apart
from panas.privacy.gradients.per_sample import Loss, cross_entropy
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import NoiseSource
from panas.privacy.plan import Plan
from panas.runtime.errors import BadInput
from panas.training.evaluate import EVALUATION_BATCH
from panas.training.sgd import (
    OptimizerConfig,
    batches_of,
    make_optimizer,
    set_rate,
    set_trainable,
    steps_of,
)

Penalty = Callable[[Sequence[nn.Parameter]], Tensor]
"""A term of parameters that reads no sample, as the distance to weights that were received."""


@dataclass(frozen=True)
class Objective:
    """What training minimises: the mean of a loss over samples, plus a penalty.

    Privacy: the gradient of the penalty is added after clipping and noise, and costs nothing.
    """

    loss: Loss = cross_entropy  # one a sample
    penalty: Penalty | None = None

    def add_penalty(self, parameters: Sequence[nn.Parameter]) -> None:
        """Add the penalty's gradient to the one that the parameters have."""
        if self.penalty is not None:
            self.penalty(parameters).backward()


CROSS_ENTROPY = Objective()


def train_model(
    model: nn.Module,
    samples: Samples,
    *,
    config: OptimizerConfig,
    rng: np.random.Generator,
    objective: Objective = CROSS_ENTROPY,
    most: float | None = None,
) -> None:
    """Train in place without privacy.

    A last batch of one is left out where there are others: BatchNorm cannot normalise it. BadInput
    if there are no samples.

    Args:
        model: any network of images in [-1, 1] to outputs, on one device.
        samples: n >= 1 of them.
        config: all of it but `train_head`: what requires a gradient trains.
        rng: orders the samples, once an epoch.
        objective: one loss a sample, of which a step takes the mean, plus a penalty.
        most: L2 norm to which the loss's gradient is clipped, above 0; None does not clip.
    """
    if not len(samples):
        raise BadInput("expected at least one training sample, got none; give more data")
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer, device = make_optimizer(parameters, config), parameters[0].device
    step, steps = 0, steps_of(config, len(samples))
    for _ in range(config.epochs):
        order = torch.from_numpy(rng.permutation(len(samples)))
        for batch in batches_of(order, config.batch_size):
            set_rate(optimizer, config, step, steps)
            optimizer.zero_grad(set_to_none=True)
            x, y = samples.inputs(batch).to(device), samples.y[batch].to(device)
            objective.loss(model(x), y).mean().backward()
            if most is not None:
                nn.utils.clip_grad_norm_(parameters, most)
            objective.add_penalty(parameters)
            optimizer.step()
            step += 1


def train_model_private(
    model: nn.Module,
    samples: Samples,
    *,
    plan: Plan,
    config: OptimizerConfig,
    noise: NoiseSource,
    objective: Objective = CROSS_ENTROPY,
) -> None:
    """Train in place for one round of a plan by DP-SGD.

    BadInput if the network mixes samples.

    Args:
        model: any network of images in [-1, 1] to outputs, on one device.
        samples: those that the plan is for; their groups are the units, where they have some.
        plan: batches, epochs, clip and sigma.
        config: optimiser, learning rate, momentum and weight decay; the rest is the plan's.
        noise: of batches and gradients; `SystemNoise()`, unless for a test.
        objective: one loss a sample, whose gradient is clipped and noised, plus a penalty.

    Privacy: `plan.training_event`, which the caller has charged to the ledger before, for one
    unit: a sample, or a whole group where the samples have groups.
    """
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(parameters, config)
    gradient = PrivateGradient(model, objective.loss)
    device, groups = parameters[0].device, samples.groups
    for batch in plan.batches(noise, len(samples), groups):
        x, y = samples.inputs(batch).to(device), samples.y[batch].to(device)
        drawn = None if groups is None else groups[batch]
        gradient.step(x, y, plan.clip_and_noise, noise, drawn)
        objective.add_penalty(parameters)
        optimizer.step()


def fit_private(
    bottom: Bottom,
    head: Head,
    samples: Samples,
    *,
    plan: Plan,
    config: OptimizerConfig,
    noise: NoiseSource,
) -> None:
    """Train in place by DP-SGD as `train_model_private`.

    Args:
        bottom: trains.
        head: trains if `config.train_head`.
        samples: those that the plan is for.
        plan: batches, epochs, clip and sigma.
        config: optimiser, learning rate, momentum and weight decay; the rest is the plan's.
        noise: of batches and gradients; `SystemNoise()`, unless for a test.
    """
    model, _ = set_trainable(bottom, head, config.train_head)
    train_model_private(model, samples, plan=plan, config=config, noise=noise)


@torch.no_grad()
def logits_of(model: nn.Module, samples: Samples) -> Float[Tensor, "n classes"]:
    """Logits of all samples, on the CPU, in evaluation mode; a row depends on its sample alone."""
    model.eval()
    device = next(model.parameters()).device
    if not len(samples):
        return torch.zeros(0, samples.classes)
    with samples_apart(model):
        parts = torch.arange(len(samples)).split(EVALUATION_BATCH)
        return torch.cat([model(samples.inputs(at).to(device)).cpu() for at in parts])


def accuracy_of(logits: Float[Tensor, "n classes"], samples: Samples) -> float:
    """Share of samples whose class has the largest logit; NaN if there are none."""
    if not len(samples):
        return float("nan")
    return float((logits.argmax(1) == samples.y).float().mean())
