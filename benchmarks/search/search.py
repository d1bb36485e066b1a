"""Which search finds the better architecture at the same cost?

    python -m benchmarks.search [--json] [--dataset digits] [--repetitions 51] [--cache-all]
        [--live fashion-mnist --live-seeds 3 --data-root DIR | --live none] [--plot FILE]

Six algorithms (`benchmarks.rivals`) get the same budget of sample-passes (`benchmarks.tabular`
says what is counted; live, the plain GA goes on to its own end, for the cost ratio alone): on the
tables, where a repetition is a seed of the algorithm on one of the table's seeds in turn, and by
training, in a larger space. What counts is the best candidate by validation accuracy among those
that were trained to the end, and the test accuracy of that one.

| figure | is |
|---|---|
| median, low, high | over repetitions, with the 95 % bootstrap interval of the median |
| cost ratio | sample-passes that ours needs to reach the plain GA's final validation accuracy |
| | over all that the plain GA spent: by medians, and the median of paired repetitions; the |
| | larger counts |
| significantly worse | one-sided Wilcoxon test of paired repetitions, at 5 % after Holm's |
| | correction over rivals x budgets x (validation, test) |

With `--cache-all` no algorithm pays for a genome twice; without, as people use them. In live
training each genome's weights and batches are its own, so what one algorithm trained is kept in
`--work` and read by the next, which is charged for it all the same.
"""

import argparse
import json
import math
import multiprocessing
import statistics
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import wilcoxon

from benchmarks.make_tables import DATASETS, HOW, parts, train_one
from benchmarks.rivals import ALGORITHMS, OURS, PLAIN
from benchmarks.tabular import Meter, Problem, Spent, Trace, at, read_table, table_problem
from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.runtime.seeds import stream
from panas.runtime.store import read_json, write_json

GRID = (5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 210)
"""Budgets at which algorithms are compared, in full trainings; the paper's GA has 210 at most."""
LIVE_BUDGET = 60
LEVEL = 0.05


@dataclass(frozen=True)
class Task:
    """One run of one algorithm; `work` is the folder of live training, None for a table."""

    dataset: str
    algorithm: str
    seed: int
    budget: int
    """In full trainings."""
    cached: bool
    work: str | None = None
    root: str | None = None


@lru_cache(maxsize=8)
def problem_of(dataset: str, seed: int, work: str | None, root: str | None) -> Problem:
    """A table's seed, or live training."""
    if work is not None:
        return live_problem(dataset, seed, Path(work), root)
    table = read_table(dataset)
    return table_problem(table, seed % table.seeds)


def live_problem(dataset: str, seed: int, work: Path, root: str | None) -> Problem:
    """Train for real, as `benchmarks.make_tables` does, in a space too large for a table."""
    data, folder = parts(dataset, root, seed), work / f"{dataset}-{seed}"
    space = SearchSpace(shape=data.train.shape, min_blocks=2, max_blocks=6, widths=(16, 32, 64))

    def kept(genome: Genome, epochs: int) -> dict[str, int]:
        place = folder / f"{genome}-{epochs}.json"
        if not place.exists():
            curve = train_one(genome, data, dataset, seed, [epochs])
            write_json(place, {"validation": curve.validation[0], "test": curve.test})
        return read_json(place)

    return Problem(
        name=dataset,
        space=space,
        classes=data.train.classes,
        samples=len(data.train),
        epochs=HOW.epochs,
        validation=lambda g, n: kept(g, n)["validation"] / len(data.validation),
        test=lambda g: kept(g, HOW.epochs)["test"] / len(data.test),
    )


def run(task: Task) -> tuple[int, Trace]:
    """Search until the budget is spent: the sample-passes spent, and the trace."""
    torch.set_num_threads(1)
    problem = problem_of(task.dataset, task.seed, task.work, task.root)
    meter = Meter(problem, task.budget * problem.full, task.cached)
    with suppress(Spent):
        ALGORITHMS[task.algorithm](meter, task.seed)
    return meter.passes, meter.trace


def compare(
    runs: dict[str, list[tuple[int, Trace]]], grid: tuple[int, ...], full: int, chance: float
) -> dict[str, Any]:
    """Medians, intervals, cost ratio and tests of one part of the benchmark."""
    curves = {
        name: np.array([[at(trace, b * full, chance) for b in grid] for _, trace in found])
        for name, found in runs.items()
    }
    worse, doubtful = worse_than(curves)
    return {
        "budgets": list(grid),
        "repetitions": len(runs[OURS]),
        "algorithms": {
            name: {
                metric: interval(values[:, :, k]) for k, metric in enumerate(("validation", "test"))
            }
            | {"passes": statistics.median(spent for spent, _ in runs[name])}
            for name, values in curves.items()
        },
        "cost_ratio": cost_ratio(runs[OURS], runs[PLAIN]),
        "plain_ga_reaches_its_own_end_at": cost_ratio(runs[PLAIN], runs[PLAIN])["paired"],
        "significantly_worse": worse,
        "worse_before_correction": doubtful,
    }


def interval(values: Float[np.ndarray, "r b"], resamples: int = 2000) -> dict[str, list[float]]:
    """Median over repetitions and its 95 % bootstrap interval, at each budget."""
    rows = stream(0, "bootstrap").integers(len(values), size=(resamples, len(values)))
    medians = np.median(values[rows], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975), axis=0)
    middle = np.median(values, axis=0)
    found = {"median": middle, "low": low, "high": high}
    return {name: [round(float(x), 4) for x in values] for name, values in found.items()}


def cost_ratio(
    ours: list[tuple[int, Trace]], plain: list[tuple[int, Trace]]
) -> dict[str, float | None]:
    """Passes that ours needs to reach the plain GA's final validation, over all the GA's passes.

    Returns:
        By the median curve, by the median of paired repetitions, and the larger; None: not reached.

    """
    finals = [trace[-1][1] for _, trace in plain]
    target, spent = statistics.median(finals), statistics.median(p for p, _ in plain)
    costs = sorted({c for _, trace in ours for c, _, _ in trace})
    at_median = (c for c in costs if statistics.median(at(t, c, 0.0)[0] for _, t in ours) >= target)
    by_median = next(at_median, math.inf) / spent
    paired = statistics.median(
        next((c for c, v, _ in trace if v >= final), math.inf) / p
        for (_, trace), (p, _), final in zip(ours, plain, finals, strict=True)
    )
    found = {"medians": by_median, "paired": paired, "larger": max(by_median, paired)}
    return {k: round(v, 4) if math.isfinite(v) else None for k, v in found.items()}


def worse_than(
    curves: dict[str, Float[np.ndarray, "r b 2"]],
) -> tuple[list[str], dict[str, int]]:
    """Against whom ours is significantly worse at any budget, by validation or by test.

    Returns:
        The names after Holm's correction; and, for each rival, at how many of the comparisons
        the uncorrected test says so.

    """
    ours = curves[OURS]
    p = {name: _p_worse(ours, values) for name, values in curves.items() if name != OURS}
    rejected = holm(np.concatenate([v.ravel() for v in p.values()])).reshape(len(p), -1)
    worse = [name for name, row in zip(p, rejected, strict=True) if row.any()]
    return worse, {name: int((v <= LEVEL).sum()) for name, v in p.items()}


def _p_worse(
    ours: Float[np.ndarray, "r b 2"], rival: Float[np.ndarray, "r b 2"]
) -> Float[np.ndarray, "b 2"]:
    difference = np.round(ours - rival, 9)
    p = np.ones(difference.shape[1:])
    for i in np.ndindex(*p.shape):
        if difference[:, *i].any():
            p[i] = wilcoxon(difference[:, *i], alternative="less", zero_method="zsplit").pvalue
    return p


def holm(p: Float[np.ndarray, "m"], level: float = LEVEL) -> Bool[np.ndarray, "m"]:
    """Which hypotheses fall, at a family-wise level (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    passed = p[order] <= level / np.arange(len(p), 0, -1)
    fallen = np.zeros(len(p), bool)
    fallen[order] = np.logical_and.accumulate(passed)
    return fallen


def part(tasks: list[Task], workers: int, say: Callable[[str], None]) -> dict[str, list]:
    """Run all tasks; for each algorithm its runs, in the order of their seeds."""
    runs: dict[str, list[tuple[int, Trace]]] = {name: [] for name in ALGORITHMS}
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for k, (task, found) in enumerate(zip(tasks, pool.imap(run, tasks), strict=True), 1):
            runs[task.algorithm].append(found)
            if k % 60 == 0 or k == len(tasks) or task.work is not None:
                say(f"{task.dataset}: {k} of {len(tasks)} runs")
    return runs


def report(name: str, found: dict[str, Any]) -> str:
    """One part as text."""
    lines = [f"{name}: median best validation / test accuracy of {found['repetitions']} runs"]
    shown = [i for i, b in enumerate(found["budgets"]) if b in (5, 10, 20, 40, 60, 120, 210)]
    heads = " ".join(f"{found['budgets'][i]:>13d}" for i in shown)
    lines.append(f"  {'budget in full trainings':24s}{heads}")
    for algorithm, f in found["algorithms"].items():
        v, t = f["validation"]["median"], f["test"]["median"]
        cells = " ".join(f"{v[i]:6.3f}/{t[i]:6.3f}" for i in shown)
        lines.append(f"  {algorithm:24s}{cells}")
    ratio = found["cost_ratio"]
    lines.append(
        f"  ours reaches the plain GA's end at {ratio['larger']} of its cost (by medians "
        f"{ratio['medians']}, paired {ratio['paired']}; the GA itself at "
        f"{found['plain_ga_reaches_its_own_end_at']})"
    )
    lines.append(f"  significantly worse than: {', '.join(found['significantly_worse']) or 'none'}")
    return "\n".join(lines)


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Validation and test accuracy against cost, a column for each part."""
    from matplotlib.figure import Figure  # here: importing it takes a second

    figure = Figure(figsize=(5 * len(found), 7), layout="constrained")
    axes = figure.subplots(2, len(found), squeeze=False)
    for column, (name, f) in enumerate(found.items()):
        for row, metric in enumerate(("validation", "test")):
            ax = axes[row, column]
            for algorithm, values in f["algorithms"].items():
                v = values[metric]
                width = 2.5 if algorithm == OURS else 1.2
                (line,) = ax.plot(f["budgets"], v["median"], label=algorithm, lw=width)
                ax.fill_between(
                    f["budgets"], v["low"], v["high"], alpha=0.15, color=line.get_color()
                )
            # What lies far below, at the smallest budgets, would flatten all the rest.
            late = [min(a[metric]["low"][2:]) for a in f["algorithms"].values()]
            ax.set_ylim(bottom=min(late) - 0.01)
            ax.set_xscale("log")
            ax.set_xticks(f["budgets"][::2], [str(b) for b in f["budgets"][::2]])
            ax.minorticks_off()
            ax.set_title(f"{name}, {f['repetitions']} runs")
            ax.set_xlabel("cost, in full trainings")
            ax.set_ylabel(f"{metric} accuracy of the best")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dataset", choices=DATASETS, help="one table; otherwise both")
    parser.add_argument("--repetitions", type=int, default=51)
    parser.add_argument("--cache-all", action="store_true", help="nobody pays for a genome twice")
    parser.add_argument("--live", default="fashion-mnist", help="data set to train on, or none")
    parser.add_argument("--live-seeds", type=int, default=3)
    parser.add_argument("--live-budget", type=int, default=LIVE_BUDGET, help="in full trainings")
    parser.add_argument("--data-root")
    parser.add_argument("--work", default="build/live", help="keeps live trainings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    a = parser.parse_args()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    found: dict[str, dict[str, Any]] = {}
    for name in [a.dataset] if a.dataset else DATASETS:
        tasks = [
            Task(name, algorithm, seed, GRID[-1], a.cache_all)
            for seed in range(a.repetitions)
            for algorithm in ALGORITHMS
        ]
        problem = problem_of(name, 0, None, None)
        runs = part(tasks, a.workers, say)
        found[f"{name} table"] = compare(runs, GRID, problem.full, 1 / problem.classes)
    if a.live != "none":
        # The slow ones one after the other, so that two workers seldom train the same genome.
        tasks = [
            Task(a.live, algorithm, seed, budget, a.cache_all, a.work, a.data_root)
            for algorithm in ALGORITHMS
            # To compare costs, the plain GA goes on to its own end; the curves end with the budget.
            for budget in [GRID[-1] if algorithm == PLAIN else a.live_budget]
            for seed in range(a.live_seeds)
        ]
        runs = part(tasks, a.workers, say)
        problem = problem_of(a.live, 0, a.work, a.data_root)
        grid = tuple(b for b in GRID if b <= a.live_budget)
        found[f"{a.live} live"] = compare(runs, grid, problem.full, 1 / problem.classes)
    if a.plot:
        draw(found, a.plot)
    ratios = [f["cost_ratio"]["larger"] for f in found.values()]
    worse = sorted({name for f in found.values() for name in f["significantly_worse"]})
    if a.json:
        head = {
            "cost_ratio_to_plain_ga": None if None in ratios else max(ratios),
            "significantly_worse_than": worse,
            "cache_for_all": a.cache_all,
        }
        print(json.dumps(head | {"parts": found}))
        return
    print("\n\n".join(report(name, f) for name, f in found.items()))


if __name__ == "__main__":
    main()
