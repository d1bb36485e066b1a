"""The stored trainings of `benchmarks.make_tuning_table`, and one search that they answer.

Each setting that a proposer asks for is snapped to the nearest one of the grid. The answer is the
validation accuracy of one of the trainings there, drawn anew at each visit: a repetition's draw
depends on setting and visit alone, so that all proposers see the same. Regret is the mean test
accuracy (over all trainings of a setting) of the grid's best setting less that of the one chosen.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int16, Int32

from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from benchmarks.tuners import PROPOSERS, Task
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.plan import Plan
from panas.runtime.seeds import stream
from panas.tuning.space import DPSGDSettings, TuningSpace

TABLE = Path(__file__).parents[1] / "tables" / "tuning-digits.npz"


@dataclass(frozen=True)
class Table:
    """Right answers by epsilon, rate, clip, batch, passes, factor, seed; -1 if not trained."""

    about: dict[str, Any]
    validation: Int16[np.ndarray, "e r c b p f s"]
    test: Int16[np.ndarray, "e r c b p f s"]
    least_noise: Float[np.ndarray, "e b p"]
    fixed_test: Int16[np.ndarray, "e k s"]
    """Of the k configurations of Table VI."""
    fixed_steps: Int32[np.ndarray, "e k"]

    @staticmethod
    def read(path: Path = TABLE) -> "Table":
        """Load it, without pickle."""
        with np.load(path, allow_pickle=False) as f:
            names = ("validation", "test", "least_noise", "fixed_test", "fixed_steps")
            return Table(json.loads(str(f["about"])), *(f[name] for name in names))

    @property
    def epsilons(self) -> list[float]:
        """The budgets' epsilons."""
        return list(self.about["axes"]["epsilon"])

    def means(self, e: int) -> Float[np.ndarray, "r c b p f"]:
        """Mean test accuracy of every setting under budget `e`, over seeds."""
        right = np.where(self.test[e] < 0, np.nan, self.test[e])
        return np.nanmean(right, axis=-1) / self.about["samples"]["test"]

    def space(self, searched: bool) -> TuningSpace:
        """What the grid fills, with sigma searched or derived from the budget."""
        axes = self.about["axes"]
        low, high = ({k: pick(v) for k, v in axes.items()} for pick in (min, max))
        return TuningSpace(
            learning_rate=(low["learning_rate"], high["learning_rate"]),
            clip=(low["clip"], high["clip"]),
            noise_factor=(1.0, high["noise_factor"] if searched else 1.0),
            batch_sizes=tuple(axes["batch"]),
            epochs=tuple(axes["epochs"]),
        )

    def nearest(self, axis: str, value: float) -> int:
        """Which level of an axis is nearest, on a log scale."""
        logs = np.log(self.about["axes"][axis]) - math.log(value)
        return int(np.abs(logs).argmin())

    def least(self, e: int, batch: int, epochs: int | None) -> float:
        """The least noise of the nearest batch size and passes."""
        i, j = self.nearest("batch", batch), self.nearest("epochs", epochs or 1)
        return float(self.least_noise[e, i, j])

    def cell(self, e: int, s: DPSGDSettings) -> tuple[int, ...]:
        """The grid's setting that is nearest to `s`."""
        factor = s.noise_multiplier / self.least(e, s.batch_size, s.epochs)
        values = (s.learning_rate, s.clip, s.batch_size, s.epochs or 1, factor)
        names = ("learning_rate", "clip", "batch", "epochs", "noise_factor")
        return tuple(self.nearest(n, v) for n, v in zip(names, values, strict=True))

    def over_budget(self, e: int) -> Bool[np.ndarray, "b p f"]:
        """Which trainings cost more than budget `e` allows: batch by passes by noise factor."""
        axes, budget = self.about["axes"], Budget(self.epsilons[e], self.about["delta"])
        over = np.zeros([len(axes[k]) for k in ("batch", "epochs", "noise_factor")], dtype=bool)
        for i, j, k in np.ndindex(over.shape):
            plan = Plan(
                samples=self.about["samples"]["train"],
                batch_size=axes["batch"][i],
                clip=1.0,
                noise_multiplier=float(self.least_noise[e, i, j]) * axes["noise_factor"][k],
                epochs=axes["epochs"][j],
                rounds=1,
            )
            over[i, j, k] = epsilon_of(plan.events(), budget) > budget.epsilon
        return over


@cache
def loaded(path: Path) -> tuple[Table, list[Bool[np.ndarray, "b p f"]]]:
    """A table, and for each of its budgets which trainings are over it."""
    table = Table.read(path)
    return table, [table.over_budget(e) for e in range(len(table.epsilons))]


def replay(work: tuple[Path, int], task: tuple[bool, str, int, int]) -> dict[str, Any]:
    """One search of one proposer on the table; the same trainings answer all proposers.

    Args:
        work: the table's file, and how many trials.
        task: whether sigma is searched, the proposer, the budget's place, the repetition.

    """
    (path, trials), (searched, name, e, repetition) = work, task
    torch.set_num_threads(1)
    table, refused = loaded(path)
    visits = Counter[tuple[int, ...]]()
    over = 0

    def affordable(setting: DPSGDSettings) -> bool:
        # A noise below the least would be snapped up to it; 1e-9 is for rounding.
        least = table.least(e, setting.batch_size, setting.epochs)
        enough = setting.noise_multiplier >= (1 - 1e-9) * least
        return enough and not refused[e][table.cell(e, setting)[2:]]

    def objective(setting: DPSGDSettings) -> float:
        nonlocal over
        over += not affordable(setting)
        cell = table.cell(e, setting)
        visits[cell] += 1
        rng = stream(repetition, "training", str(cell), visits[cell])
        trained = table.validation[(e, *cell)]
        right = rng.choice(trained[trained >= 0])
        return float(right / table.about["samples"]["validation"])

    results = PROPOSERS[name](
        Task(
            objective,
            lambda batch, epochs: table.least(e, batch, epochs),
            affordable,
            table.space(searched),
            table.about["samples"]["validation"],
        ),
        trials,
        repetition,
    )
    means = table.means(e)
    within = means if searched else means[..., :1]  # what the proposer could come to
    chosen = means[table.cell(e, results.best)]
    return {
        "proposer": name,
        "searched": searched,
        "epsilon": table.epsilons[e],
        "accuracy": float(chosen),
        "regret": float(within.max() - chosen),
        "over": over,
        "seconds": results.seconds,
        "seen": [float(means[table.cell(e, s)]) for s in results.settings],
    }


def fixed_rows(table: Table) -> list[dict[str, Any]]:
    """The paper's configurations on the table's data, one row an epsilon and trained seed."""
    rows = []
    for e, epsilon in enumerate(table.epsilons):
        best = table.means(e)[..., :1].max()
        for i, name in enumerate(FIXED_CONFIGURATIONS):
            for right in table.fixed_test[e, i][table.fixed_test[e, i] >= 0]:
                reached = float(right / table.about["samples"]["test"])
                rows.append(
                    {
                        "proposer": f"fixed {name}",
                        "epsilon": epsilon,
                        "accuracy": reached,
                        "regret": float(best - reached),
                        "steps": int(table.fixed_steps[e, i]),
                    }
                )
    return rows
