"""DP-SGD settings are tried by rehearsing a site's training on data that may be looked at.

A rehearsal has the deployment's noise, clip, rate and number of steps, and computes on one thread:
a trial comes to the same value in any worker process. `TrainingObjective` rehearses a network's
training (source: DPFNAS, section III-A3), `ResidualObjective` a residual's, on public samples that
stand for sites.

Privacy: the noise repeats itself, and protects nobody.
"""

import copy
import statistics
from dataclasses import asdict, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.splits import SearchData
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan, TrainingSchedule
from panas.privacy.release.estimate import Rows
from panas.runtime.seeds import one_thread, stream
from panas.training.any_model import fit_private
from panas.training.evaluate import accuracy
from panas.training.linear.residual import fit_residual, zero_residual
from panas.training.sgd import OptimizerConfig
from panas.training.warm_start import WarmStart
from panas.tuning.space import DPSGDSettings


@dataclass(frozen=True)
class TrainingObjective:
    """Validation accuracy after a whole training on `data`; seed and site name the noise."""

    data: SearchData
    bottom: Bottom
    head: Head
    schedule: TrainingSchedule
    optimizer: OptimizerConfig
    seed: int
    site: int

    @property
    def validation_samples(self) -> int:
        """How many samples an accuracy is the share of."""
        return len(self.data.validation)

    def __call__(self, settings: DPSGDSettings) -> float:
        """Train with some settings, and score."""
        bottom, head = copy.deepcopy(self.bottom), copy.deepcopy(self.head)
        rng = stream(self.seed, "client", self.site, "trial", f"Setting({_named(settings)})")
        noise = ReproducibleNoise(rng)
        plan = self._plan(settings)
        optimizer = replace(self.optimizer, learning_rate=settings.learning_rate)
        with one_thread():
            for _ in range(plan.rounds):
                fit_private(bottom, head, self.data.train, plan=plan, config=optimizer, noise=noise)
            return accuracy(bottom, head, self.data.validation)

    def _plan(self, settings: DPSGDSettings) -> Plan:
        """For `data.train`, at the rate, steps and noise of the site's own samples."""
        n, rate = len(self.data.train), min(1.0, settings.batch_size / self.schedule.samples)
        return Plan(
            samples=n,
            batch_size=max(1, round(rate * n)),
            clip=settings.clip,
            noise_multiplier=settings.noise_multiplier,
            epochs=settings.epochs or self.schedule.epochs,
            rounds=self.schedule.rounds,
        )


def training_objective(
    data: SearchData,
    start: WarmStart,
    schedule: TrainingSchedule,
    *,
    momentum: float,
    seed: int,
    site: int,
) -> TrainingObjective:
    """The objective whose trials start from a network that `data.warm` has warmed up.

    Args:
        data: public or proxy samples: `warm` warms the network up, the rest trains and validates
            it.
        start: genome, spec, warm start and device.
        schedule: samples, epochs and rounds of the private training that a trial rehearses.
        momentum: of SGD, in [0, 1).
        seed: of the run, 0 or more.
        site: number of the site, from 0; with the seed it decides weights and batches.
    """
    rng = stream(seed, "client", site, "rehearsal")
    bottom, head = start.spec.network(start.genome, rng, start.device)
    with one_thread():
        start.fit(bottom, head, data.warm, rng)
    optimizer = OptimizerConfig(momentum=momentum, train_head=start.spec.head_moves)
    return TrainingObjective(data, bottom, head, schedule, optimizer, seed, site)


@dataclass(frozen=True)
class SimulatedSite:
    """Public samples that stand for a site; noise repeats by name."""

    train: Rows
    validation: Rows
    offset: Float[Tensor, "n classes"]  # of `train`
    start: Float[Tensor, "v classes"]  # of `validation`
    seed: int
    number: int

    @property
    def nothing(self) -> float:
        """Accuracy without a residual."""
        return float((self.start.argmax(1) == self.validation.y).double().mean())

    def __call__(self, settings: DPSGDSettings) -> float:
        """Validation accuracy of a residual with some settings."""
        rng = stream(self.seed, "rehearsal", self.number, _named(settings))
        plan = Plan(
            samples=len(self.train.y),
            batch_size=settings.batch_size,
            clip=settings.clip,
            noise_multiplier=settings.noise_multiplier,
            epochs=settings.epochs or 1,
            rounds=1,
        )
        residual = zero_residual(self.train.z.shape[1], self.offset.shape[1])
        with one_thread():
            fit_residual(
                residual,
                self.train,
                self.offset,
                plan=plan,
                learning_rate=settings.learning_rate,
                noise=ReproducibleNoise(rng),
            )
            with torch.no_grad():
                logits = self.start + residual(self.validation.z)
        return float((logits.argmax(1) == self.validation.y).double().mean())


@dataclass(frozen=True)
class ResidualObjective:
    """Mean accuracy of a residual's settings at simulated sites."""

    sites: tuple[SimulatedSite, ...]

    @property
    def validation_samples(self) -> int:
        """How many samples an accuracy is the share of."""
        return sum(len(site.validation.y) for site in self.sites)

    def __call__(self, settings: DPSGDSettings) -> float:
        """Train at every site, and score."""
        return statistics.fmean(site(settings) for site in self.sites)


def _named(settings: DPSGDSettings) -> str:
    """Settings by their values, so that a renamed class repeats the draws."""
    return ", ".join(f"{k}={v!r}" for k, v in asdict(settings).items())
