"""Local rounds that move weights and architecture in turn, each on samples of its own.

    a <- a - eta_a grad_a L_architecture(w*, a)
    w <- w - eta_w grad_w L_weights(w, a)

step by step, where w* is w (first order) or, with a look ahead, w after a step of its own on
samples for the weights. Under DP every gradient is clipped by sample and noised. Privacy: that of
the plans' training events, which the caller has charged; a look ahead is an event by itself.

Source: DARTS (Liu et al. 2018), algorithm 1; FEATHERS, algorithms 2 and 4.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from panas.data.samples import Samples
from panas.privacy.gradients.per_sample import Loss
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import SystemNoise
from panas.privacy.plan import Plan
from panas.training.sgd import OptimizerConfig, make_optimizer


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How some parameters move in a round."""

    samples: Samples
    plan: Plan | None  # None: without privacy
    optimizer: OptimizerConfig  # without privacy also batches and epochs
    loss: Loss
    rng: np.random.Generator  # orders the samples where there is no privacy


class Steps:
    """The steps of a round for some parameters of a model; all others stay."""

    def __init__(self, model: nn.Module, moving: Sequence[nn.Parameter], how: Descent) -> None:
        self._model, self._moving, self._how = model, list(moving), how
        self._optimizer = make_optimizer(self._moving, how.optimizer)
        self._noise, self._gradient = SystemNoise(), None
        if how.plan is not None:
            with _only(model, self._moving):
                self._gradient = PrivateGradient(model, how.loss)
            self.left = how.plan.steps
            self._batches = how.plan.batches(self._noise, len(how.samples), how.samples.groups)
        else:
            o = how.optimizer
            self.left = o.epochs * math.ceil(len(how.samples) / o.batch_size)
            self._batches = _shuffled(len(how.samples), o, how.rng)

    def take(self) -> None:
        """The next step, of the `left` ones."""
        self.left -= 1
        how, batch, device = self._how, next(self._batches), self._moving[0].device
        x, y = how.samples.inputs(batch).to(device), how.samples.y[batch].to(device)
        with _only(self._model, self._moving):
            if self._gradient is None or how.plan is None:
                self._optimizer.zero_grad(set_to_none=True)
                how.loss(self._model(x), y).mean().backward()
            else:
                groups = None if how.samples.groups is None else how.samples.groups[batch]
                self._gradient.step(x, y, how.plan.clip_and_noise, self._noise, groups)
            self._optimizer.step()


def alternate(weights: Steps, alphas: Steps | None = None, ahead: Steps | None = None) -> None:
    """All steps of a round; a step of `alphas` comes before one of `weights`."""
    while weights.left or (alphas and alphas.left):
        if alphas and alphas.left:
            with _back(ahead):
                if ahead and ahead.left:
                    ahead.take()
                alphas.take()
        if weights.left:
            weights.take()


@contextmanager
def _back(ahead: Steps | None) -> Iterator[None]:
    """Undo what moves within it by a look ahead."""
    kept = [p.detach().clone() for p in ahead._moving] if ahead else []
    yield
    with torch.no_grad():
        for p, old in zip(ahead._moving if ahead else [], kept, strict=True):
            p.copy_(old)


@contextmanager
def _only(model: nn.Module, moving: Sequence[nn.Parameter]) -> Iterator[None]:
    """Within it, no other parameter of a model has a gradient."""
    before = [(p, p.requires_grad) for p in model.parameters()]
    try:
        model.requires_grad_(False)
        for p in moving:
            p.requires_grad_(True)
        yield
    finally:
        for p, moves in before:
            p.requires_grad_(moves)


def _shuffled(samples: int, o: OptimizerConfig, rng: np.random.Generator) -> Iterator[Tensor]:
    for _ in range(o.epochs):
        yield from torch.from_numpy(rng.permutation(samples)).split(o.batch_size)
