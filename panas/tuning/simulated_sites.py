"""Public samples that stand for a site, on which settings of a residual's DP-SGD are rehearsed.

Privacy: reads public samples alone. The noise repeats itself: it protects nobody.
"""

import statistics
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.runtime.seeds import one_thread, stream
from panas.training.linear.residual import fit_residual, zero_residual
from panas.tuning.space import DPSGDSettings


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
        named = ", ".join(f"{k}={v!r}" for k, v in asdict(settings).items())
        rng = stream(self.seed, "rehearsal", self.number, named)
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
                result = self.start + residual(self.validation.z)
        return float((result.argmax(1) == self.validation.y).double().mean())


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
