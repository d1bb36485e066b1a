"""DP-SGD settings are tried by rehearsing a site's training on data that may be looked at.

A rehearsal has the deployment's noise, clip, rate and number of steps, and computes on one thread:
a trial comes to the same value in any worker process. Source: DPFNAS, section III-A3.
"""

import copy
from dataclasses import asdict, dataclass, replace

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.search_split import SearchData
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan
from panas.privacy.schedule import TrainingSchedule
from panas.runtime.seeds import one_thread, stream, torch_generator
from panas.training.any_model import fit_private
from panas.training.evaluate import accuracy
from panas.training.sgd import OptimizerConfig
from panas.training.warm_start import WarmStart
from panas.tuning.space import DPSGDSettings


@dataclass(frozen=True)
class TrainingObjective:
    """The validation accuracy of settings, by a whole training on data that may be looked at.

    Seed and site name the noise, which repeats: the ledger claims no protection here.
    """

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
        # Its draws are named by values, so that a renamed class repeats them.
        named = ", ".join(f"{k}={v!r}" for k, v in asdict(settings).items())
        rng = stream(self.seed, "client", self.site, "trial", f"Setting({named})")
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
    """The objective whose trials start from a network that `data.warm` has warmed up."""
    rng = stream(seed, "client", site, "rehearsal")
    generator = torch_generator(rng)
    bottom = start.spec.bottom(start.genome, generator).to(start.device)
    head = start.spec.head(generator).to(start.device)
    with one_thread():
        start.fit(bottom, head, data.warm, rng)
    optimizer = OptimizerConfig(momentum=momentum, train_head=start.spec.head_moves)
    return TrainingObjective(data, bottom, head, schedule, optimizer, seed, site)
