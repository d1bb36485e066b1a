"""Which way to look for DP-SGD settings finds the best ones in 30 trials?

    python -m benchmarks.tuning [--json] [--repetitions 50] [--live-seeds 3] [--data-root DIR]

**Table.** Every proposer looks in the same space (learning rate, clip, batch size, passes), where
each of its proposals is snapped to the nearest setting of a stored grid of real trainings on digits
(`benchmarks.make_tuning_table`), at epsilon 1, 3 and 8; sigma is the least that the budget affords.
The objective answers with the validation accuracy of one of the trainings at that setting, drawn
anew at each visit, alike for all proposers. Regret is the mean test accuracy (over all trainings of
a setting) of the grid's best setting less that of the one chosen. Ours chooses by posterior mean,
the others their best observed value, as people do. `sigma_searched` is the same with the paper's
fifth axis: sigma up to twice the least.

**Live.** Fashion-MNIST averaged to 14 x 14, 1000 samples train, 500 validate, 2000 test, at
epsilon 3: every trial is a real training, batch sizes and passes are ranges. A choice is judged by
three new trainings; regret is to the best choice of any proposer at that seed. Needs `--data-root`.

The paper's fixed configurations A to E (Table VI) train for as many steps as the budget affords
at their noise, and no more: under cumulative accounting that is all there is (Figure 6).

`propose_seconds` is the longest that ours took for a proposal, in seconds of one core.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.make_tuning_table import DELTA, count, trained
from panas.data.dataset import Samples
from panas.data.sources import load
from panas.errors import BudgetExhausted
from panas.genome import Genome
from panas.network import Blueprint
from panas.pool import Pool
from panas.privacy.budget import Budget
from panas.privacy.plan import Plan, affordable_steps, calibrate, cost
from panas.seeds import stream
from panas.settings import FIXED_CONFIGURATIONS, Menu
from panas.tuning import Setting, TuningConfig, TuningSpace, tune

TABLE = Path(__file__).parent / "tables" / "tuning-digits.npz"
LIVE_EPSILON = 3.0
LIVE_GENOME = "c16k3-max-c32k3-max-c32k3"
LIVE_SPACE = TuningSpace(
    learning_rate=(0.03, 8.0),
    clip=(0.1, 6.4),
    noise_factor=(1.0, 1.0),
    batch_sizes=range(16, 513),  # of all the fixed configurations but the full batch
    epochs=range(2, 17),
)
JUDGES = 3
"""New trainings of a setting that was chosen live."""


class Task(NamedTuple):
    """A problem to tune: an objective, and what its budget affords."""

    objective: Callable[[Setting], float]
    least: Callable[[int, int | None], float | None]
    affordable: Callable[[Setting], bool]
    space: TuningSpace
    validation: int


class Found(NamedTuple):
    """What a proposer came to."""

    best: Setting
    settings: list[Setting]
    seconds: list[float]
    """Of proposing each trial, training apart."""


def ours(task: Task, trials: int, seed: int) -> Found:
    """`panas.tuning`, as it is."""
    import botorch  # noqa: F401 (its import is no part of a proposal)

    settings: list[Setting] = []
    seconds: list[float] = []
    began = time.process_time()

    def objective(setting: Setting) -> float:
        nonlocal began
        seconds.append(time.process_time() - began)
        settings.append(setting)
        value = task.objective(setting)
        began = time.process_time()
        return value

    result = tune(
        objective,
        space=task.space,
        config=TuningConfig(trials=trials),
        minimum_noise=task.least,
        is_affordable=task.affordable,
        rng=np.random.default_rng(seed),
        validation_samples=task.validation,
    )
    return Found(result.best, settings, seconds)


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
        space, settings, seconds = task.space, list[Setting](), list[float]()
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
                setting = Setting(
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


@dataclass(frozen=True)
class Table:
    """The stored trainings: right answers by epsilon, rate, clip, batch, passes, factor, seed."""

    about: dict[str, Any]
    validation: np.ndarray
    test: np.ndarray
    least_noise: np.ndarray
    fixed_test: np.ndarray
    fixed_steps: np.ndarray

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

    def means(self, e: int) -> np.ndarray:
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

    def cell(self, e: int, s: Setting) -> tuple[int, ...]:
        """The grid's setting that is nearest to `s`."""
        factor = s.noise_multiplier / self.least(e, s.batch_size, s.epochs)
        values = (s.learning_rate, s.clip, s.batch_size, s.epochs or 1, factor)
        names = ("learning_rate", "clip", "batch", "epochs", "noise_factor")
        return tuple(self.nearest(n, v) for n, v in zip(names, values, strict=True))

    def over_budget(self, e: int) -> np.ndarray:
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
            over[i, j, k] = cost(plan.events(), budget) > budget.epsilon
        return over


@cache
def loaded(path: Path) -> tuple[Table, list[np.ndarray]]:
    """A table, and for each of its budgets which trainings are over it."""
    table = Table.read(path)
    return table, [table.over_budget(e) for e in range(len(table.epsilons))]


def replay(work: tuple[Path, int], task: tuple[bool, str, int, int]) -> dict[str, Any]:
    """One search of one proposer on the table; the same trainings answer all proposers."""
    (path, trials), (searched, name, e, repetition) = work, task
    torch.set_num_threads(1)
    table, refused = loaded(path)
    visits = Counter[tuple[int, ...]]()
    over = 0

    def affordable(setting: Setting) -> bool:
        return not refused[e][table.cell(e, setting)[2:]]

    def objective(setting: Setting) -> float:
        nonlocal over
        over += not affordable(setting)
        cell = table.cell(e, setting)
        visits[cell] += 1
        rng = stream(repetition, "training", str(cell), visits[cell])
        trained = table.validation[(e, *cell)]
        right = rng.choice(trained[trained >= 0])
        return float(right / table.about["samples"]["validation"])

    found = PROPOSERS[name](
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
    chosen = means[table.cell(e, found.best)]
    return {
        "proposer": name,
        "searched": searched,
        "epsilon": table.epsilons[e],
        "accuracy": float(chosen),
        "regret": float(means.max() - chosen),
        "over": over,
        "seconds": found.seconds,
        "seen": [float(means[table.cell(e, s)]) for s in found.settings],
    }


def fashion(root: str, seed: int) -> tuple[Samples, Samples, Samples]:
    """Training, validation and test samples of one seed, 14 x 14."""
    pool = load(
        "fashion-mnist",
        data_root=Path(root),
        public_fraction=0.0,
        public_limit=0,
        public_data=None,
        limit=3500,
        label=None,
        rng=stream(seed, "live data"),
    ).private
    n, c, h, w = pool.x.shape
    means = pool.x.reshape(n, c, h // 2, 2, w // 2, 2).float().mean(dim=(3, 5))
    pool = Samples(means.round().to(torch.uint8), pool.y, pool.classes)
    return pool.take(range(1000)), pool.take(range(1000, 1500)), pool.take(range(1500, 3500))


def live(root: str, task: tuple[int, int]) -> list[dict[str, Any]]:
    """All proposers on real trainings, at one seed."""
    seed, trials = task
    torch.set_num_threads(1)
    train, validation, test = fashion(root, seed)
    blueprint = Blueprint(shape=train.shape, classes=train.classes, width=64)
    genome, budget, n = Genome.parse(LIVE_GENOME), Budget(LIVE_EPSILON, DELTA), len(train)

    @cache
    def base(batch: int, epochs: int | None) -> Plan:
        assert epochs is not None
        return calibrate(budget, samples=n, batch_size=batch, clip=1.0, epochs=epochs, rounds=1)

    def plan_of(s: Setting) -> Plan:
        return Plan(
            samples=n,
            batch_size=s.batch_size,
            clip=s.clip,
            noise_multiplier=s.noise_multiplier,
            epochs=s.epochs or 1,
            rounds=1,
        )

    def right(s: Setting, samples: Samples, key: str) -> float:
        plan = plan_of(s)
        networks = trained(train, blueprint, genome, plan, plan.steps, s.learning_rate, seed, key)
        return count(*networks, samples) / len(samples)

    def least(batch: int, epochs: int | None) -> float | None:
        try:
            return base(batch, epochs).noise_multiplier
        except BudgetExhausted:
            return None

    def affordable(s: Setting) -> bool:
        return cost(plan_of(s).events(), budget) <= budget.epsilon

    problem = Task(
        lambda s: right(s, validation, repr(s)), least, affordable, LIVE_SPACE, len(validation)
    )
    rows = []
    for name, search in PROPOSERS.items():
        found = search(problem, trials, seed)
        again = [right(found.best, test, f"judge {k} {found.best}") for k in range(JUDGES)]
        rows.append(
            {
                "proposer": name,
                "seed": seed,
                "best": found.best.as_dict(),
                "accuracy": statistics.fmean(again),
                "over": sum(not affordable(s) for s in found.settings),
                "seconds": found.seconds,
            }
        )
    for name, f in FIXED_CONFIGURATIONS.items():
        plan = Plan(
            samples=n,
            batch_size=round(f.rate * n),
            clip=f.clip,
            noise_multiplier=f.noise_multiplier,
            epochs=1,
            rounds=1,
        )
        steps = affordable_steps(budget, plan.rate, f.noise_multiplier)
        networks = trained(
            train, blueprint, genome, plan, steps, f.learning_rate, seed, f"fixed {name}"
        )
        reached = count(*networks, test) / len(test)
        rows.append(
            {"proposer": f"fixed {name}", "seed": seed, "accuracy": reached, "steps": steps}
        )
    best = max(row["accuracy"] for row in rows)
    return [row | {"regret": best - row["accuracy"]} for row in rows]


def fixed_rows(table: Table) -> list[dict[str, Any]]:
    """The paper's configurations on the table's data, one row an epsilon and seed."""
    rows = []
    for e, epsilon in enumerate(table.epsilons):
        best = table.means(e).max()
        for i, name in enumerate(FIXED_CONFIGURATIONS):
            for right in table.fixed_test[e, i]:
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


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    draws = np.random.default_rng(0).choice(np.asarray(values), (2000, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(low), float(high)


def regrets(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Regret of every proposer, over all budgets and at each."""
    names = list(dict.fromkeys(r["proposer"] for r in rows))
    of = {n: [r for r in rows if r["proposer"] == n] for n in names}
    return {
        "median_regret": {n: statistics.median(r["regret"] for r in of[n]) for n in names},
        "interval": {n: interval([r["regret"] for r in of[n]]) for n in names},
        "mean_regret": {n: statistics.fmean(r["regret"] for r in of[n]) for n in names},
        "median_regret_at": _at(rows, "regret"),
        "accuracy_at": _at(rows, "accuracy"),
    }


def _at(rows: list[dict[str, Any]], key: str) -> dict[str, dict[str, float]]:
    """The median by epsilon and proposer."""
    found: dict[str, dict[str, list[float]]] = {}
    for r in rows:
        found.setdefault(f"{r['epsilon']:g}", {}).setdefault(r["proposer"], []).append(r[key])
    return {
        e: {n: statistics.median(values) for n, values in names.items()}
        for e, names in found.items()
    }


def summary(rows: list[dict[str, Any]], lived: list[dict[str, Any]]) -> dict[str, Any]:
    """What all rows come to."""
    mine = [s for r in (*rows, *lived) if r["proposer"] == "ours" for s in r["seconds"]]
    searched = [r for r in rows if r.get("searched")]
    return {
        **regrets([r for r in rows if not r.get("searched")]),
        "sigma_searched": regrets(searched) if searched else None,
        "over_budget_trials": sum(r.get("over", 0) for r in (*rows, *lived)),
        "propose_seconds": max(mine, default=0.0),
        "propose_seconds_median": statistics.median(mine) if mine else None,
        "live": {
            **(regrets([r | {"epsilon": LIVE_EPSILON} for r in lived]) if lived else {}),
            "rows": [{k: v for k, v in r.items() if k != "seconds"} for r in lived],
        },
    }


def table_six(rows: list[dict[str, Any]], found: dict[str, Any]) -> list[str]:
    """Table VI in form: each configuration, the steps it may take, and how well it does."""
    epsilons = sorted({r["epsilon"] for r in rows})
    head = "".join(f"  eps {e:<3g} steps  acc" for e in epsilons)
    lines = [f"{'':18s}{'eta':>8s}{'sigma':>7s}{'C':>6s}{'B/n':>6s}{head}"]
    for name, f in FIXED_CONFIGURATIONS.items():
        cells = ""
        for e in epsilons:
            mine = [r for r in rows if r["proposer"] == f"fixed {name}" and r["epsilon"] == e]
            reached = found["accuracy_at"][f"{e:g}"][f"fixed {name}"]
            cells += f"  {mine[0]['steps']:13d} {reached:.3f}"
        lines.append(
            f"{'fixed ' + name:18s}{f.learning_rate:8g}{f.noise_multiplier:7g}{f.clip:6g}"
            f"{f.rate:6g}{cells}"
        )
    reached = "".join(f"  {'':13s} {found['accuracy_at'][f'{e:g}']['ours']:.3f}" for e in epsilons)
    return [*lines, f"{'ours':45s}{reached}"]


def draw(found: dict[str, Any], rows: list[dict[str, Any]], file: str) -> None:
    """Figure 6 in form (accuracy against epsilon), and regret against trials beside it."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    epsilons = sorted({r["epsilon"] for r in rows})
    for name in ("ours", *(f"fixed {k}" for k in FIXED_CONFIGURATIONS)):
        reached = [found["accuracy_at"][f"{e:g}"][name] for e in epsilons]
        left.plot(epsilons, reached, "o-" if name == "ours" else "s--", label=name)
    left.set(
        xlabel="epsilon of the whole training",
        ylabel="test accuracy",
        xscale="log",
        xticks=epsilons,
        xticklabels=[f"{e:g}" for e in epsilons],
        title="Figure 6 under cumulative accounting",
    )
    left.minorticks_off()
    names = [n for n in found["median_regret"] if n in PROPOSERS]
    values = [[r["regret"] for r in rows if r["proposer"] == n] for n in names]
    right.boxplot(values, tick_labels=names, showfliers=False)
    right.set(ylabel="regret after all trials", title="Regret on the table, all epsilons")
    left.legend(fontsize="small")
    figure.savefig(file)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--live-seeds", type=int, default=3)
    parser.add_argument("--data-root", help="folder of FashionMNIST; without it nothing is live")
    parser.add_argument("--searched", type=int, default=20, help="repetitions of sigma_searched")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    table = Table.read(a.table)
    tasks = [
        (searched, name, e, r)
        for searched, repetitions in ((False, a.repetitions), (True, a.searched))
        for r in range(repetitions)
        for e in range(len(table.epsilons))
        for name in PROPOSERS
    ]
    with Pool(a.workers, (a.table, a.trials)) as pool:
        rows = [row for _, row in sorted(pool.map(replay, tasks), key=lambda pair: pair[0])]
    rows += fixed_rows(table)
    lived: list[dict[str, Any]] = []
    if a.data_root:
        with Pool(a.workers, a.data_root) as pool:
            seeds = [(seed, a.trials) for seed in range(a.live_seeds)]
            parts = sorted(pool.map(live, seeds), key=lambda pair: pair[0])
            lived = [row for _, part in parts for row in part]
    found = summary(rows, lived)
    if a.plot:
        draw(found, [r for r in rows if not r.get("searched")], a.plot)
    if a.json:
        print(json.dumps(found))
        return
    print("median regret on the table, all epsilons; mean; live")
    for name, regret in found["median_regret"].items():
        low, high = found["interval"][name]
        lively = found["live"].get("median_regret", {}).get(name, math.nan)
        print(
            f"{name:22s} {regret:.4f} [{low:.4f}, {high:.4f}]  {found['mean_regret'][name]:.4f}  "
            f"{lively:.4f}"
        )
    print(
        f"trials over budget: {found['over_budget_trials']}; proposing took "
        f"{found['propose_seconds_median']:.2f} s, at most {found['propose_seconds']:.2f} s"
    )
    print("\n".join(table_six(rows, found)))


if __name__ == "__main__":
    main()
