"""The fitness of a genome: any function, validation accuracy after a short training, or `score`.

`TrainingFitness` trains without privacy, seeded by the genome: the result does not depend on when,
where and in which order genomes are trained. It can stop after any epoch and go on later.

Privacy: the fitness, and what is chosen by it, tell of the samples that it reads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.runtime.seeds import one_thread, stream, torch_generator
from panas.runtime.store import pack_tensors, unpack_tensors
from panas.training.evaluate import accuracy
from panas.training.sgd import OptimizerConfig, Trainer

STEPS, BATCH, RATE = 30, 32, 0.005  # optimiser steps, samples a step, Adam's learning rate
CLASSES = 10  # of the noise task, at most: more would need more steps
LAST = 5  # steps whose loss counts
REPEATS = 2  # tasks and networks that are averaged
SMOOTH = 4  # side of the noise that is stretched to a class's image


def score(genome: Genome, spec: NetworkSpec, rng: np.random.Generator) -> float:
    """How surely a fresh network names classes of noise after a few steps; in (0, 1].

    A class is an image: a few Gaussian numbers, stretched smoothly to the images' size, since
    structure of pixel size would punish every pool. Its samples are that image plus as much white
    noise. The score is exp(-cross-entropy), averaged over the last steps, each on samples not seen
    before: the geometric mean of the right class's probability. It is the same in every process.
    Ours; it ranks genomes more like their accuracy than the proxies of `benchmarks.data_free` do.

    Privacy: reads no data, epsilon 0.
    """
    generator = torch_generator(rng)
    with one_thread():  # sums over threads differ in their last bits, which training would magnify
        losses = [_losses(genome, spec, generator) for _ in range(REPEATS)]
    return float(np.exp(-np.mean(losses)))


def _losses(genome: Genome, spec: NetworkSpec, generator: torch.Generator) -> list[float]:
    """Cross-entropies of the last steps."""
    bottom, head = spec.bottom(genome, generator), spec.head(generator)
    channels, height, width = spec.shape
    classes = min(CLASSES, spec.classes)
    coarse = torch.randn(classes, channels, SMOOTH, SMOOTH, generator=generator)
    images = F.interpolate(coarse, size=(height, width), mode="bilinear")
    images = images / images.square().mean().sqrt()
    y = torch.arange(BATCH) % classes
    parameters = [*bottom.parameters(), *(head.parameters() if spec.head_moves else ())]
    optimiser = torch.optim.Adam(parameters, lr=RATE)
    losses = []
    for _ in range(STEPS):
        x = images[y] + torch.randn(BATCH, channels, height, width, generator=generator)
        loss = F.cross_entropy(head(bottom(x)), y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses[-LAST:]


@dataclass(frozen=True)
class TrainingJob:
    """A part of one candidate's training."""

    genome: Genome
    share: float = 1.0  # of the full training after which to stop, in (0, 1]
    state: bytes | None = None  # what an earlier job of the genome returned; None from the start


@dataclass(frozen=True)
class Outcome:
    """What a job brought."""

    fitness: float  # validation accuracy in [0, 1]; not finite for a failure
    passes: int = 0  # sample-passes that this job took
    state: bytes | None = None  # for the next job of the genome
    error: str | None = None  # why it failed


@runtime_checkable
class ResumableFitness(Protocol):
    """A fitness that can stop after a share of the training and go on later."""

    def advance(self, job: TrainingJob) -> Outcome:
        """Do the job: train from `job.state` up to `job.share`, and validate."""


@runtime_checkable
class SharedFitness(ResumableFitness, Protocol):
    """A fitness of several searches at once, which share out what they all have to train."""

    def attempt(self, job: TrainingJob) -> Outcome | None:
        """As `advance`; None, at once, while another process is at the job."""


Fitness = Callable[[Genome], float] | ResumableFitness

DIVERGED = "its training diverged"


def continue_training(trainer: Trainer, job: TrainingJob, optimizer: OptimizerConfig) -> int:
    """Train from `job.state` up to whole epochs, at least one; returns the sample-passes."""
    if job.state is not None:
        trainer.resume(unpack_tensors(job.state, Path("state"))[0])
    return trainer.run(max(1, round(job.share * optimizer.epochs)))


def is_finite(*modules: nn.Module) -> bool:
    """Whether all weights are finite."""
    return all(bool(p.isfinite().all()) for module in modules for p in module.parameters())


@dataclass(frozen=True)
class TrainingFitness:
    """Accuracy on `validation` after training on `train`."""

    train: Samples
    validation: Samples
    spec: NetworkSpec
    optimizer: OptimizerConfig
    seed: int
    site: int
    device: str = "cpu"

    def __call__(self, genome: Genome) -> float:
        """Accuracy after the full training."""
        return self.advance(TrainingJob(genome)).fitness

    def advance(self, job: TrainingJob) -> Outcome:
        """Train up to a share of the epochs, from scratch or from where an earlier job stopped."""
        bottom, head, trainer = self._begin(job.genome)
        passes = continue_training(trainer, job, self.optimizer)
        if not is_finite(bottom, head):
            return Outcome(math.nan, passes, error=DIVERGED)
        state = pack_tensors(trainer.state(), {}) if job.share < 1 else None
        return Outcome(accuracy(bottom, head, self.validation), passes, state)

    def trained(self, genome: Genome) -> tuple[Bottom, Head]:
        """The genome's network after the full training."""
        bottom, head, trainer = self._begin(genome)
        trainer.run(self.optimizer.epochs)
        return bottom, head

    def _begin(self, genome: Genome) -> tuple[Bottom, Head, Trainer]:
        rng = stream(self.seed, "client", self.site, "fitness", str(genome))
        bottom, head = self.spec.network(genome, rng, self.device)
        config = replace(self.optimizer, train_head=self.spec.head_moves)
        return bottom, head, Trainer(bottom, head, self.train, config=config, rng=rng)


@dataclass(frozen=True)
class DataFreeFitness:
    """The data-free score, the same for everyone with the same seed; epsilon 0."""

    spec: NetworkSpec
    seed: int

    def __call__(self, genome: Genome) -> float:
        """Score on noise, in [0, 1]."""
        return score(genome, self.spec, stream(self.seed, "data-free", str(genome)))
