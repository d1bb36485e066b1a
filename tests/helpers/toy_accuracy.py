"""An accuracy that needs no training, and a search for its peak."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from panas.runtime.execution import Execution
from panas.runtime.journal import Journal
from panas.tuning.bayesian import tune
from panas.tuning.space import BudgetedSpace, DPSGDSettings, TuningSpace
from panas.tuning.trial import TrialRecord, TuningConfig, TuningResult

SPACE = TuningSpace()
LEAST = {16: 0.7, 32: 1.1, 64: 1.7}


def least(batch_size: int, epochs: int | None) -> float | None:
    return LEAST.get(batch_size)


def smooth(setting: DPSGDSettings) -> float:
    """An accuracy with one peak, at learning rate 0.1, clip 1 and as little noise as can be."""
    x = (
        math.log10(setting.learning_rate) + 1,
        math.log10(setting.clip),
        0.4 * math.log(setting.noise_multiplier),
        0.2 * math.log2(setting.batch_size / 64),
    )
    return math.exp(-sum(v * v for v in x))


@dataclass(frozen=True)
class Accuracy:
    """A function as an objective."""

    function: Callable[[DPSGDSettings], float]
    validation_samples: int | None = None

    def __call__(self, settings: DPSGDSettings) -> float:
        return self.function(settings)


@dataclass(frozen=True)
class Constraint:
    """Functions as a constraint."""

    noise: Callable[[int, int | None], float | None]
    affordable: Callable[[DPSGDSettings], bool]

    def least_noise(self, batch_size: int, epochs: int | None) -> float | None:
        return self.noise(batch_size, epochs)

    def allows(self, settings: DPSGDSettings) -> bool:
        return self.affordable(settings)


def budgeted(
    space: TuningSpace = SPACE,
    minimum_noise: Callable[[int, int | None], float | None] = least,
    is_affordable: Callable[[DPSGDSettings], bool] = lambda _: True,
) -> BudgetedSpace:
    return BudgetedSpace(space, Constraint(minimum_noise, is_affordable))


def search(
    objective: Callable[[DPSGDSettings], float] = smooth,
    *,
    seed: int = 0,
    trials: int = 9,
    initial: int = 4,
    space: TuningSpace = SPACE,
    minimum_noise: Callable[[int, int | None], float | None] = least,
    is_affordable: Callable[[DPSGDSettings], bool] = lambda _: True,
    on_trial: Callable[[TrialRecord], None] | None = None,
    parallel: int = 1,
    validation_samples: int | None = None,
    journal: Journal | None = None,
    workers: int = 1,
) -> TuningResult:
    return tune(
        Accuracy(objective, validation_samples),
        budgeted(space, minimum_noise, is_affordable),
        TuningConfig(initial=initial, trials=trials, parallel=parallel),
        rng=np.random.default_rng(seed),
        execution=Execution(workers=workers, journal=journal, on_progress=on_trial),
    )
