"""Who looks for DP-SGD settings in the benchmark: ours, and the samplers of Optuna.

Ours chooses by posterior mean, the others their best observed value, as people do.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from panas.tuning.bayesian import tune
from panas.tuning.space import BudgetedSpace, DPSGDSettings, Menu, TuningSpace
from panas.tuning.trial import TuningConfig


class Task(NamedTuple):
    """A problem to tune: an objective, and what its budget affords."""

    objective: Callable[[DPSGDSettings], float]
    least: Callable[[int, int | None], float | None]
    affordable: Callable[[DPSGDSettings], bool]
    space: TuningSpace
    validation: int


class Found(NamedTuple):
    """What a proposer came to."""

    best: DPSGDSettings
    settings: list[DPSGDSettings]
    seconds: list[float]
    """Of proposing each trial, training apart."""


@dataclass(frozen=True)
class _Constraint:
    """What a task's budget affords."""

    task: Task

    def least_noise(self, batch_size: int, epochs: int | None) -> float | None:
        return self.task.least(batch_size, epochs)

    def allows(self, settings: DPSGDSettings) -> bool:
        return self.task.affordable(settings)


class _Timed:
    """A task's objective that notes what it is asked, and the time that passed before."""

    def __init__(self, task: Task) -> None:
        self._task, self.validation_samples = task, task.validation
        self.settings: list[DPSGDSettings] = []
        self.seconds: list[float] = []
        self._began = time.process_time()

    def __call__(self, settings: DPSGDSettings) -> float:
        self.seconds.append(time.process_time() - self._began)
        self.settings.append(settings)
        value = self._task.objective(settings)
        self._began = time.process_time()
        return value


def ours(task: Task, trials: int, seed: int) -> Found:
    """`panas.tuning.bayesian`, as it is."""
    import botorch  # noqa: F401 (its import is no part of a proposal)

    objective = _Timed(task)
    space = BudgetedSpace(task.space, _Constraint(task))
    rng = np.random.default_rng(seed)
    result = tune(objective, space, TuningConfig(trials=trials), rng=rng)
    return Found(result.best, objective.settings, objective.seconds)


def optuna(name: str) -> Callable[[Task, int, int], Found]:
    """A sampler of Optuna with its own defaults, told every value as it is."""

    def search(task: Task, trials: int, seed: int) -> Found:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(seed=seed),
        }
        space, settings, seconds = task.space, list[DPSGDSettings](), list[float]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = optuna.create_study(direction="maximize", sampler=samplers[name]())
            for _ in range(trials):
                began = time.process_time()
                trial = study.ask()
                batch = _integer(trial, "batch", space.batch_sizes)
                epochs = _integer(trial, "epochs", space.epochs)
                least = task.least(batch, epochs)
                assert least is not None
                factor = 1.0
                if space.noise_factor[1] > 1:
                    factor = trial.suggest_float("factor", *space.noise_factor, log=True)
                setting = DPSGDSettings(
                    learning_rate=trial.suggest_float("rate", *space.learning_rate, log=True),
                    noise_multiplier=factor * least,
                    clip=trial.suggest_float("clip", *space.clip, log=True),
                    batch_size=batch,
                    epochs=epochs,
                )
                seconds.append(time.process_time() - began)
                settings.append(setting)
                study.tell(trial, task.objective(setting))
        return Found(settings[study.best_trial.number], settings, seconds)

    return search


def _integer(trial: Any, name: str, menu: Menu) -> int:
    """An integer of a range on a log scale, or of a menu by its place, in ascending order."""
    if isinstance(menu, range):
        return trial.suggest_int(name, min(menu), max(menu), log=True)
    return sorted(menu)[trial.suggest_int(name, 0, len(menu) - 1)]


PROPOSERS: dict[str, Callable[[Task, int, int], Found]] = {
    "ours": ours,
    "random": optuna("random"),
    "optuna tpe": optuna("tpe"),
    "optuna gp": optuna("gp"),
}
