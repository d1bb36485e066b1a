"""The fitness of a genome: any function, validation accuracy after a short training, or `score`.

`TrainingFitness` trains without privacy, seeded by the genome: the result does not depend on when,
where and in which order genomes are trained. It can stop after any epoch and go on later.

Privacy: the fitness, and what is chosen by it, tell of the samples that it reads.

**Agreement** is the fitness of a student's genome: its network learns the teacher's answers to
public samples and is asked about others, held out. No label is needed.

| symbol | meaning |
|---|---|
| f, t | logits of the student, and log probabilities of the teacher, of a held-out sample |
| h | frequencies of the classes in the site's noised label histogram |
| c | the class that the teacher answers, argmax t, and n_c: how many samples have it |

    fitness = sum_i (h_c / n_c) [argmax(f_i + log h) = argmax(t_i + log h)] / sum_i (h_c / n_c)

so that the held-out samples count as if their classes were as frequent as the site's. f does not
depend on the site: with a common `cache` a genome is trained once, and serves every site.

Privacy: a site's data are seen through its noised histogram and a protected teacher alone.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.network import Bottom, NetworkSpec
from panas.data.samples import Samples
from panas.evolution.records import EvolutionResult
from panas.runtime.seeds import one_thread, stream, torch_generator
from panas.runtime.store import (
    Busy,
    exclusive,
    pack_tensors,
    read_tensors,
    under,
    unpack_tensors,
    write_tensors,
)
from panas.training.distillation import Change, SoftSamples, fingerprint, student_trainer
from panas.training.evaluate import accuracy, represent
from panas.training.linear.averaging import log_prior
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

    Args:
        genome: its bottom is built anew.
        spec: shape, width and head; noise has at most as many classes as it has.
        rng: draws weights and noise.

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

    @property
    def keeps(self) -> bool:
        """Whether what one search has trained is kept for the others."""

    def attempt(self, job: TrainingJob) -> Outcome | None:
        """As `advance`; None, at once, while another process is at the job."""


Fitness = Callable[[Genome], float] | ResumableFitness

DIVERGED = "its training diverged"


def continue_training(trainer: Trainer, job: TrainingJob, optimizer: OptimizerConfig) -> int:
    """Train from `job.state` up to whole epochs, at least one; returns the sample-passes.

    Args:
        trainer: of the job's genome, at its beginning.
        job: what share of the training to reach, and from which state; None: from the beginning.
        optimizer: its epochs are the whole training.
    """
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


LEAST = 1e-12  # a teacher's probability counts at least as this


@dataclass(frozen=True, kw_only=True)
class AgreementFitness:
    """Agreement on `held_out` after learning from `taught`."""

    taught: SoftSamples
    held_out: SoftSamples
    histogram: Float[Tensor, "classes"]  # the site's, noised
    spec: NetworkSpec
    optimizer: OptimizerConfig
    seed: int  # of the run, the same for all sites
    site: int  # number of the site
    cache: Path | None = None  # a folder for what any site has trained; None keeps nothing
    device: str = "cpu"
    changed: Change | None = None  # how inputs are shown in training

    @property
    def keeps(self) -> bool:
        """Whether there is a folder for what has been trained."""
        return self.cache is not None

    def __call__(self, genome: Genome) -> float:
        """Agreement after the full training."""
        return self.advance(TrainingJob(genome)).fitness

    def advance(self, job: TrainingJob) -> Outcome:
        """Train up to a share of the epochs, or read what another search has trained."""
        return self._done(job, wait=True)

    def attempt(self, job: TrainingJob) -> Outcome | None:
        """The same; None while another process is at it."""
        try:
            return self._done(job, wait=False)
        except Busy:
            return None

    def weights_of(self, genome: Genome) -> dict[str, Tensor]:
        """Weights of bottom ("0.") and head ("1.") after the full training; {} if it diverged.

        They are read where a search has kept them, and trained anew where none has.
        """
        trained = self._kept(TrainingJob(genome), wait=True)
        return {} if trained.logits is None else under(trained.state, "model.")

    def _done(self, job: TrainingJob, *, wait: bool) -> Outcome:
        return self._outcome(self._kept(job, wait=wait), job)

    def _kept(self, job: TrainingJob, *, wait: bool) -> "_Trained":
        """What a training leaves, from the common folder if there is one."""
        if self.cache is None:
            return self._train(job)
        path = self.cache / f"{self._key(job)}.safetensors"
        with exclusive(path, wait=wait):  # whoever comes meanwhile waits, and reads
            if not path.is_file():
                self._train(job).write(path)
            return _Trained.read(path)

    def agreement(self, logits: Float[Tensor, "m classes"]) -> float:
        """The fitness of a student by its logits of the held-out samples; NaN if there are none."""
        wrong = self._wrong(logits)
        return max(0.0, 1 - float(self.weights[wrong].sum())) if len(wrong) else math.nan

    def as_good(self, genome: Genome, best: Genome, errors: float = 1.0) -> bool:
        """Whether a genome agrees as well as another one.

        Args:
            genome: trained to the end, without a failure.
            best: so, too.
            errors: standard errors of the difference, that it may be behind.
        """
        ours, theirs = (self._kept(TrainingJob(g), wait=True).logits for g in (genome, best))
        if ours is None or theirs is None:
            return False
        worse = self._wrong(ours).double() - self._wrong(theirs).double()
        mean = self.weights @ worse
        return bool(mean <= errors * (self.weights * (worse - mean)).norm())

    def _wrong(self, logits: Float[Tensor, "m classes"]) -> Bool[Tensor, "m"]:
        """Where a student's answer to a held-out sample is not the teacher's."""
        prior = log_prior(self.histogram)
        teacher = self.held_out.targets.clamp(min=LEAST).log()
        return (logits + prior).argmax(1) != (teacher + prior).argmax(1)

    @cached_property
    def weights(self) -> Float[Tensor, "m"]:
        """How much each held-out sample counts; they sum to 1."""
        answers = self.held_out.targets.argmax(1)
        count = torch.bincount(answers, minlength=self.spec.classes)
        weights = (log_prior(self.histogram).double().exp() / count)[answers]
        return weights / weights.sum()

    def _train(self, job: TrainingJob) -> "_Trained":
        rng = stream(self.seed, "student", str(job.genome))
        bottom, head = self.spec.network(job.genome, rng, self.device)
        config = replace(self.optimizer, train_head=self.spec.head_moves)
        trainer = student_trainer(
            *(bottom, head, self.taught),
            config=config,
            rng=rng,
            changed=self.changed and (self.changed, self.seed),
        )
        passes = continue_training(trainer, job, self.optimizer)
        if not is_finite(bottom, head):
            return _Trained(None, passes, self.site, {})
        z = represent(bottom, self.held_out.samples).to(self.device)
        with torch.no_grad():
            logits = head(z).cpu()
        state = trainer.state()
        if job.share == 1:  # nothing goes on but a student, from its weights
            state = {name: t for name, t in state.items() if name.startswith("model.")}
        return _Trained(logits, passes, self.site, state)

    def _outcome(self, trained: "_Trained", job: TrainingJob) -> Outcome:
        passes = trained.passes if trained.site == self.site else 0
        if trained.logits is None:
            return Outcome(math.nan, passes, error=DIVERGED)
        state = pack_tensors(trained.state, {}) if job.share < 1 else None
        return Outcome(self.agreement(trained.logits), passes, state)

    def _key(self, job: TrainingJob) -> str:
        """Stands for all that decides a training and what is kept of it."""
        epochs = max(1, round(job.share * self.optimizer.epochs))
        decided = {"genome": str(job.genome), "epochs": epochs, "goes on": job.share < 1}
        decided["keeps"] = "weights"
        decided |= self.common
        return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:32]

    @cached_property
    def common(self) -> dict[str, str]:
        """What decides the training of any genome; nothing of it is the site's."""
        return {
            "taught": self.taught.digest,
            "held out": fingerprint(self.held_out.samples.x),
            "spec": repr(self.spec),
            "optimizer": repr(self.optimizer),
            "training": f"{self.seed}, {self.device}, {self.changed}",
        }


def chosen_for(
    search: EvolutionResult, fitness: AgreementFitness, plain: Genome | None = None
) -> EvolutionResult:
    """The same search, with winner and front by a site's own class frequencies.

    The winner has the fewest multiply-accumulates of all that agree as well as the best, up to a
    standard error (the rule of one, Breiman et al. 1984), in the site's frequencies and with all
    classes alike. Where few classes count, almost any network seems as good as another.

    Args:
        search: whose candidates are looked at.
        fitness: in the site's frequencies.
        plain: wins unless another agrees better by more than `SURELY` standard errors, with all
            classes alike; it is trained to the end if the search has not. None: no such genome.
    """
    trained = [e for e in search.history if e.trained]
    scores = {e.genome: fitness(e.genome) for e in trained}
    ranked = sorted(trained, key=lambda e: -scores[e.genome])
    if not ranked:
        return search
    alike = replace(fitness, histogram=torch.ones_like(fitness.histogram))
    overall = {g: alike(g) for g in scores}
    if plain is not None:
        scores[plain], first = fitness(plain), max(overall, key=lambda g: overall[g])
        failed = math.isnan(scores[plain])
        plain = None if failed or not alike.as_good(plain, first, SURELY) else plain
    good = _as_good({g: scores[g] for g in overall}, fitness) & _as_good(overall, alike)
    good = good or {ranked[0].genome}
    best = plain or min((g for g in overall if g in good), key=lambda g: cost(g, fitness.spec).macs)
    front = list[tuple[Genome, float, float]]()
    for e in ranked:  # from the fittest on, what is smaller than all before
        if not front or (e.size < front[-1][2]):
            front.append((e.genome, scores[e.genome], e.size))
    several = len({e.size for e in trained}) > 1
    return replace(
        search,
        best=best,
        fitness=scores[best],
        front=front[::-1] if several else front[:1],
    )


SURELY = 2.0  # standard errors by which a plain genome must be beaten


def _as_good(scores: Mapping[Genome, float], fitness: AgreementFitness) -> set[Genome]:
    """Those that agree as well as the best of them, up to a standard error."""
    best = max(scores, key=lambda g: scores[g])
    return {best, *(g for g in scores if fitness.as_good(g, best))}


@dataclass(frozen=True)
class _Trained:
    """What a training leaves for all sites."""

    logits: Float[Tensor, "m classes"] | None  # of the held-out samples; None if it diverged
    passes: int
    site: int  # the site that took the passes
    state: Mapping[str, Tensor]  # to go on with; at the end the weights alone

    def write(self, path: Path) -> None:
        """Keep it."""
        tensors = {f"state.{name}": t for name, t in self.state.items()}
        if self.logits is not None:
            tensors["logits"] = self.logits
        write_tensors(path, tensors, {"passes": str(self.passes), "client": str(self.site)})

    @staticmethod
    def read(path: Path) -> "_Trained":
        """What `write` kept; BadInput if the file is damaged."""
        tensors, notes = read_tensors(path)
        of = int(notes["passes"]), int(notes["client"])
        return _Trained(tensors.get("logits"), *of, under(tensors, "state."))
