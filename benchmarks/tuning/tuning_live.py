"""The live part of the tuning benchmark: every trial is a real training.

Fashion-MNIST averaged to 14 x 14, 1000 samples train, 500 validate, 2000 test, at epsilon 3. Batch
sizes and passes are ranges, which hold all the fixed configurations that the budget lets train. A
choice, and a fixed configuration, is judged by the mean of `JUDGES` new trainings; regret is to the
best of them all at that seed.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from benchmarks.affordable_steps import affordable_steps
from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from benchmarks.make_tuning_table import DELTA, count, trained
from benchmarks.tuners import PROPOSERS, Task
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.load import DataSettings, load
from panas.data.samples import Samples
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate, epsilon_of
from panas.privacy.plan import Plan, TrainingSchedule
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream
from panas.tuning.space import DPSGDSettings, TuningSpace

LIVE_EPSILON = 3.0
LIVE_GENOME = "c16k3-max-c32k3-max-c32k3"
LIVE_SPACE = TuningSpace(
    learning_rate=(0.01, 8.0),
    clip=(0.1, 10.0),
    noise_factor=(1.0, 1.0),
    batch_sizes=range(16, 513),
    epochs=range(2, 33),
)
JUDGES = 8
"""New trainings by which a choice is judged: one alone is off by 0.035 (standard deviation)."""

FIXED = {f"fixed {name}": configuration for name, configuration in FIXED_CONFIGURATIONS.items()}


def decided() -> dict[str, Any]:
    """What decides a live run, apart from its task, the data and the number of trials."""
    return {
        "epsilon": LIVE_EPSILON,
        "delta": DELTA,
        "genome": LIVE_GENOME,
        "space": repr(LIVE_SPACE),
        "judges": JUDGES,
    }


@cache
def fashion(root: str, seed: int) -> tuple[Samples, Samples, Samples]:
    """Training, validation and test samples of one seed, 14 x 14."""
    pool = load(
        DataSettings(dataset="fashion-mnist", data_root=root, public_fraction=0.0, limit=3500),
        stream(seed, "live data"),
    ).private
    n, c, h, w = pool.x.shape
    means = pool.x.reshape(n, c, h // 2, 2, w // 2, 2).float().mean(dim=(3, 5))
    pool = Samples(means.round().to(torch.uint8), pool.y, pool.classes)
    return pool.take(range(1000)), pool.take(range(1000, 1500)), pool.take(range(1500, 3500))


@dataclass(frozen=True)
class Ground:
    """Where proposers meet: a budget, and the samples of one seed."""

    budget: Budget
    seed: int
    train: Samples
    validation: Samples
    test: Samples

    def plan(self, batch: int, clip: float, sigma: float, epochs: int) -> Plan:
        """All that a training does."""
        return Plan(
            samples=len(self.train),
            batch_size=batch,
            clip=clip,
            noise_multiplier=sigma,
            epochs=epochs,
            rounds=1,
        )

    def plan_of(self, s: DPSGDSettings) -> Plan:
        """The training of a setting."""
        return self.plan(s.batch_size, s.clip, s.noise_multiplier, s.epochs or 1)

    def right(self, plan: Plan, steps: int, rate: float, samples: Samples, key: str) -> float:
        """Train with the noise that `key` names; the share of samples that come out right."""
        shape, classes = self.train.shape, self.train.classes
        networks = trained(
            self.train,
            NetworkSpec(shape=shape, classes=classes, width=64),
            Genome.parse(LIVE_GENOME),
            plan,
            steps,
            rate,
            self.seed,
            key,
        )
        return count(*networks, samples) / len(samples)

    def reached(self, s: DPSGDSettings, samples: Samples, key: str) -> float:
        """The same for a setting."""
        plan = self.plan_of(s)
        return self.right(plan, plan.steps, s.learning_rate, samples, key)

    def affordable(self, s: DPSGDSettings) -> bool:
        """Whether the accountant lets a setting train."""
        return epsilon_of(self.plan_of(s).events(), self.budget) <= self.budget.epsilon

    def task(self) -> Task:
        """What a proposer is asked."""

        @cache
        def least(batch: int, epochs: int | None) -> float | None:
            assert epochs is not None
            schedule = TrainingSchedule(samples=len(self.train), epochs=epochs)
            try:
                plan = calibrate(self.budget, schedule, batch_size=batch, clip=1.0)
            except BudgetExhausted:
                return None
            return plan.noise_multiplier

        return Task(
            lambda s: self.reached(s, self.validation, repr(s)),
            least,
            self.affordable,
            LIVE_SPACE,
            len(self.validation),
        )


def live(work: tuple[str, int], task: tuple[int, str]) -> dict[str, Any]:
    """One proposer, or one fixed configuration, on real trainings.

    Args:
        work: the folder of the data, and how many trials.
        task: the seed, and who.

    """
    (root, trials), (seed, name) = work, task
    torch.set_num_threads(1)
    ground = Ground(Budget(LIVE_EPSILON, DELTA), seed, *fashion(root, seed))
    if name in FIXED:
        return _fixed(ground, name)
    results = PROPOSERS[name](ground.task(), trials, seed)
    again = [
        ground.reached(results.best, ground.test, f"judge {k} {results.best}")
        for k in range(JUDGES)
    ]
    return {
        "proposer": name,
        "seed": seed,
        "best": results.best.to_json(),
        "accuracy": statistics.fmean(again),
        "over": sum(not ground.affordable(s) for s in results.settings),
        "seconds": results.seconds,
    }


def _fixed(ground: Ground, name: str) -> dict[str, Any]:
    """A configuration of Table VI, for as many steps as the budget affords at its noise."""
    f, n = FIXED[name], len(ground.train)
    plan = ground.plan(round(f.rate * n), f.clip, f.noise_multiplier, 1)
    steps = affordable_steps(ground.budget, plan.rate, f.noise_multiplier)
    again = [
        ground.right(plan, steps, f.learning_rate, ground.test, f"judge {k} {name}")
        for k in range(JUDGES)
    ]
    return {
        "proposer": name,
        "seed": ground.seed,
        "accuracy": statistics.fmean(again),
        "steps": steps,
    }


def with_regret(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of all runs, each with what it lacks of the best at its seed."""
    best: dict[int, float] = {}
    for row in rows:
        best[row["seed"]] = max(row["accuracy"], best.get(row["seed"], 0.0))
    return [row | {"regret": best[row["seed"]] - row["accuracy"]} for row in rows]
