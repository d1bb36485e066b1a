"""Which search finds the better architecture at the same cost?

    python -m benchmarks.search [--json] [--dataset digits] [--repetitions 51] [--cache-all]
        [--data-root DIR [--live fashion-mnist] [--live-seeds 3]] [--plot FILE]

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
import multiprocessing
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.comparison import compare
from benchmarks.make_tables import DATASETS, HOW, parts, train_one
from benchmarks.rivals import ALGORITHMS, OURS, PLAIN
from benchmarks.tabular import Meter, Problem, Spent, Trace, read_table, table_problem
from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.runtime.store import read_json, write_json

GRID = (5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 210)
"""Budgets at which algorithms are compared, in full trainings; the paper's GA has 210 at most."""
LIVE_BUDGET = 60


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


def part(tasks: list[Task], workers: int, say: Callable[[str], None]) -> dict[str, list]:
    """Run all tasks; for each algorithm its runs, in the order of their seeds."""
    runs: dict[str, list[tuple[int, Trace]]] = {name: [] for name in ALGORITHMS}
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for k, (task, result) in enumerate(zip(tasks, pool.imap(run, tasks), strict=True), 1):
            runs[task.algorithm].append(result)
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
    parser.add_argument("--live", help="data set to train on, or none; fashion-mnist by default")
    parser.add_argument("--live-seeds", type=int, default=3)
    parser.add_argument("--live-budget", type=int, default=LIVE_BUDGET, help="in full trainings")
    parser.add_argument("--data-root", help="folder of the live data set; without, tables alone")
    parser.add_argument("--work", default="build/live", help="keeps live trainings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    a = parser.parse_args()
    a.live = a.live or ("fashion-mnist" if a.data_root else "none")
    if a.live not in ("none", "digits") and not a.data_root:
        parser.error(f"expected --data-root, the folder of {a.live}, got none; or give --live none")

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    records: dict[str, dict[str, Any]] = {}
    for name in [a.dataset] if a.dataset else DATASETS:
        tasks = [
            Task(name, algorithm, seed, GRID[-1], a.cache_all)
            for seed in range(a.repetitions)
            for algorithm in ALGORITHMS
        ]
        problem = problem_of(name, 0, None, None)
        runs = part(tasks, a.workers, say)
        records[f"{name} table"] = compare(runs, GRID, problem.full, 1 / problem.classes)
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
        records[f"{a.live} live"] = compare(runs, grid, problem.full, 1 / problem.classes)
    if a.plot:
        draw(records, a.plot)
    ratios = [f["cost_ratio"]["larger"] for f in records.values()]
    worse = sorted({name for f in records.values() for name in f["significantly_worse"]})
    if a.json:
        head = {
            "cost_ratio_to_plain_ga": None if None in ratios else max(ratios),
            "significantly_worse_than": worse,
            "cache_for_all": a.cache_all,
        }
        print(json.dumps(head | {"parts": records}))
        return
    print("\n\n".join(report(name, f) for name, f in records.items()))


if __name__ == "__main__":
    main()
