"""Which way to look for DP-SGD settings finds the best ones in 30 trials?

    python -m benchmarks.tuning [--json] [--repetitions 50] [--live-seeds 3] [--data-root DIR]
        [--plot FILE]

Ours and Optuna's samplers (`benchmarks.tuners`) look in the same space: learning rate, clip, batch
size, passes; sigma is the least that the budget affords. `sigma_searched` is the same with the
paper's fifth axis: sigma up to twice the least. On a stored grid of real trainings on digits
(`benchmarks.tuning_table`) they do so at epsilon 1, 3 and 8; with `--data-root` also live
(`benchmarks.tuning_live`), where every trial is a real training on Fashion-MNIST.

The paper's fixed configurations A to E (Table VI) train for as many steps as the budget affords
at their noise, and no more: under cumulative accounting that is all there is (Figure 6).

`propose_seconds` is the longest that ours took for a proposal, in seconds of one core.

What is finished is kept in the folder `--work` and not run again. It is known by the arguments,
the table and the versions, not by the code: remove the folder after a change of code.
"""

import argparse
import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fixed_configurations import FIXED_CONFIGURATIONS
from benchmarks.kept import kept
from benchmarks.tuners import PROPOSERS
from benchmarks.tuning_live import FIXED, LIVE_EPSILON, decided, live, with_regret
from benchmarks.tuning_table import TABLE, Table, fixed_rows, replay


def replayed(
    path: Path, work: Path, *, repetitions: int, searched: int, trials: int, workers: int
) -> list[dict[str, Any]]:
    """One row a search on the table, then one a fixed configuration, epsilon and seed."""
    table = Table.read(path)
    tasks = [
        (free, name, e, r)
        for free, count in ((False, repetitions), (True, searched))
        for r in range(count)
        for e in range(len(table.epsilons))
        for name in PROPOSERS
    ]
    facts = {"table": hashlib.sha256(path.read_bytes()).hexdigest(), "trials": trials}
    rows = kept(work, "table", facts, replay, (path, trials), tasks, workers=workers)
    return rows + fixed_rows(table)


def lived(root: str, work: Path, *, seeds: int, trials: int, workers: int) -> list[dict[str, Any]]:
    """One row a proposer or fixed configuration and seed, by real trainings."""
    tasks = [*product(range(seeds), (*PROPOSERS, *FIXED))]
    facts = {"data": str(Path(root).resolve()), "trials": trials, **decided()}
    rows = kept(work, "live", facts, live, (root, trials), tasks, workers=workers, shown=len(tasks))
    return with_regret(rows)


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
    result: dict[str, dict[str, list[float]]] = {}
    for r in rows:
        result.setdefault(f"{r['epsilon']:g}", {}).setdefault(r["proposer"], []).append(r[key])
    return {
        e: {n: statistics.median(values) for n, values in names.items()}
        for e, names in result.items()
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
    head = "".join(f"  eps {e:<3g} steps   acc" for e in epsilons)
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
    """Figure 6 in form (accuracy against epsilon), and each proposer's regrets beside it."""
    from matplotlib.figure import Figure  # here: importing it takes a second

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
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


def report(found: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """What all rows come to, as text."""
    lines = ["median regret on the table, all epsilons; mean; live"]
    for name, regret in found["median_regret"].items():
        low, high = found["interval"][name]
        lively = found["live"].get("median_regret", {}).get(name, math.nan)
        lines.append(
            f"{name:22s} {regret:.4f} [{low:.4f}, {high:.4f}]  {found['mean_regret'][name]:.4f}  "
            f"{lively:.4f}"
        )
    lines.append(
        f"trials over budget: {found['over_budget_trials']}; proposing took "
        f"{found['propose_seconds_median']:.2f} s, at most {found['propose_seconds']:.2f} s"
    )
    return "\n".join([*lines, *table_six(rows, found)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--live-seeds", type=int, default=3)
    parser.add_argument("--data-root", help="folder of FashionMNIST; without it nothing is live")
    parser.add_argument("--searched", type=int, default=20, help="repetitions of sigma_searched")
    parser.add_argument("--work", type=Path, default=Path("build/tuning"), help="keeps all runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args(arguments)
    optimizer = {"trials": a.trials, "workers": a.workers}
    rows = replayed(a.table, a.work, repetitions=a.repetitions, searched=a.searched, **optimizer)
    real = lived(a.data_root, a.work, seeds=a.live_seeds, **optimizer) if a.data_root else []
    record = summary(rows, real)
    if a.plot:
        draw(record, [r for r in rows if not r.get("searched")], a.plot)
    print(json.dumps(record) if a.json else report(record, rows))


if __name__ == "__main__":
    main()
