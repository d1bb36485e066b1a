"""FEATHERS on card fraud: F1 against epsilon, with classes alike at all sites and with skew.

    python -m benchmarks.feathers --data-root DIR [--seeds 5] [--json] [--plot FILE.png]

DIR holds `creditcard*.csv`; its first column, which numbers the rows, and equal rows are left out.
Frauds are drawn so that their share is `--positives` (the paper's 5 %; 1 keeps all rows). Sites
share one network: F1 is of the frauds in the test samples of all sites together. A trivial answer
is beside it, "all are frauds", whose F1 is 2 p / (1 + p).

The budget holds for everything that leaves a site: weights, architecture and rewards. The paper's
figure 4 has budgets of their own for weights and architecture, and none for rewards.
"""

import argparse
import csv
import json
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from baselines import feathers
from benchmarks.feathers_picture import ChosenSetting, chosen_settings
from benchmarks.kept import kept
from benchmarks.runs import finished_in
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.paths import read_sites, state_file
from dprbft.site.results.report import SiteReport
from dprbft.site.site import open_site
from dprbft.updates import Bundle
from panas.runtime.seeds import stream
from panas.training.metrics import measure

CARD_FRAUD, LABEL, FRAUD = "creditcard*.csv", "Class", 1
EPSILONS = (0.2, 0.5, 1.0, 2.0, math.inf)
PARTITIONS = ("iid", "dirichlet")
DELTA = 1e-4  # below 1/n of every site
OPTIONS: Mapping[str, Any] = {
    "learning_rates": [1.0, 0.2, 0.05],
    "architecture_rates": [0.5],
    "search_share": 0.33,
    "phase_rounds": 4,
    "exploration": 1.5,
    "temperature": 0.1,
    "batch_size": 10_000,  # all samples: one Gaussian a step
    "epochs": 2,
    "reward_share": 0.5,
    "balance": True,
    "architecture_share": 0.35,
    "blocks": 1,
    "width": 16,
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What all runs share."""

    sites: int
    rounds: int
    positives: float  # share of frauds; 1: all rows
    limit: int | None  # most rows that are not public


def main() -> None:
    """Run what the folder lacks, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True, help=f"folder of {CARD_FRAUD}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=18)
    parser.add_argument("--positives", type=float, default=0.05)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--partitions", nargs="+", choices=PARTITIONS, default=PARTITIONS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-feathers")
    parser.add_argument("--plot", type=Path, help="picture of the first run's hyperparameters")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    sizes = Sizes(sites=args.sites, rounds=args.rounds, positives=args.positives, limit=args.limit)
    source = next(iter(sorted(args.data_root.glob(CARD_FRAUD))), None)
    if source is None:
        parser.error(f"expected {CARD_FRAUD} in {args.data_root}, got none; give its folder")
    epsilons = [f"{e:g}" for e in args.epsilons]
    tasks = [(e, p, s) for p in args.partitions for e in epsilons for s in range(args.seeds)]
    decided = {"sizes": asdict(sizes), "options": dict(OPTIONS), "source": str(source)}
    runs = kept(args.work, "feathers", decided, one, (source, sizes), tasks, workers=args.workers)
    if args.plot:
        rows = [ChosenSetting.from_json(row) for row in runs[0]["hyperparameters"]]
        args.plot.write_bytes(chosen_settings(rows))
    result = summary(tasks, runs)
    print(json.dumps({"sizes": asdict(sizes), "rows": result}) if args.json else table(result))


def one(context: tuple[Path, Sizes], task: tuple[str, str, int]) -> dict[str, Any]:
    """One run: F1 of the frauds, beside what else tells of a rare class."""
    (source, sizes), (_, _, seed) = context, task
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "card-fraud.csv"
        write_rows(source, drawn, sizes.positives, seed)
        config, run = config_of(drawn, sizes, task), Path(folder) / "run"
        finished_in(run, config, 1)
        return measured(run)


def config_of(data: Path, sizes: Sizes, task: tuple[str, str, int]) -> RunConfig:
    """The settings of a run."""
    epsilon, (_, partition, seed) = float(task[0]), task
    return build_config(
        {
            "seed": seed,
            # Public rows give the scale of each column, and how rare frauds are.
            "data": {
                "dataset": str(data),
                "label": LABEL,
                "public_fraction": 0.1,
                "validation_fraction": 0.05,
                "test_fraction": 0.3,
                "limit": sizes.limit,
            },
            "federation": {
                "method": "feathers",
                "clients": sizes.sites,
                "rounds": sizes.rounds,
                "partition": partition,
                "alpha": 0.5,
                "min_samples": 30,
                "baselines": False,
                "options": dict(OPTIONS),
            },
            "privacy": {
                "epsilon": epsilon,
                "delta": DELTA,
                "allow_unprotected": epsilon == math.inf,
            },
        }
    )


def write_rows(source: Path, target: Path, positives: float, seed: int) -> None:
    """The table without its first column and equal rows, with as many frauds as are wanted."""
    with source.open(newline="") as file:
        (_, *names), *rows = list(csv.reader(file))
    unique = list(dict.fromkeys(tuple(row[1:]) for row in rows))
    label = names.index(LABEL)
    frauds = [row for row in unique if float(row[label]) == FRAUD]
    others = [row for row in unique if float(row[label]) != FRAUD]
    if positives < 1:
        size = min(len(frauds), round(positives / (1 - positives) * len(others)))
        chosen = stream(seed, "card fraud").choice(len(frauds), size, replace=False)
        frauds = [frauds[i] for i in sorted(chosen)]
    with target.open("w", newline="") as file:
        csv.writer(file).writerows([names, *frauds, *others])


def measured(run: Path) -> dict[str, Any]:
    """How the network of a run does on all sites' test samples."""
    logits, labels, spent = [], [], []
    for paths in read_sites(run):
        site = open_site(paths)
        memory = Bundle.read(state_file(site.home))
        logits.append(feathers.predictor(site, memory)(site.data.test))
        labels.append(site.data.test.y)
        spent.append(site.account.spent())
    truth = torch.cat(labels)
    result, about = measure(torch.cat(logits), truth), SiteReport.read(site.home).setting["about"]
    share = float((truth == FRAUD).double().mean())
    return {
        "f1": result.f1[FRAUD],
        "macro_f1": result.macro_f1,
        "auroc": result.auroc,
        "all frauds": 2 * share / (1 + share),
        "epsilon": max(spent) if math.isfinite(max(spent)) else None,
        "test frauds": int((truth == FRAUD).sum()),
        "architecture": about["architecture"],
        "hyperparameters": about["hyperparameters"],
    }


def summary(tasks: Sequence[tuple[Any, ...]], runs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Means and standard deviations over seeds."""
    rows = []
    for epsilon, partition in dict.fromkeys(task[:2] for task in tasks):
        mine = [r for t, r in zip(tasks, runs, strict=True) if t[:2] == (epsilon, partition)]
        row: dict[str, Any] = {
            "epsilon": epsilon,
            "partition": partition,
            "seeds": len(mine),
        }
        for figure in ("f1", "macro_f1", "auroc", "all frauds"):
            values = [r[figure] for r in mine if r[figure] is not None]
            row[figure] = [float(np.mean(values)), statistics.pstdev(values)] if values else None
        rows.append(row)
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as lines of text; figures with their standard deviation over seeds."""
    figures = ("f1", "macro_f1", "auroc", "all frauds")
    lines = [f"{'partition':<11}{'epsilon':>9}" + "".join(f"{f:>16}" for f in figures)]
    for row in rows:
        cells = ("-" if row[f] is None else f"{row[f][0]:.3f} +- {row[f][1]:.3f}" for f in figures)
        told = "".join(f"{cell:>16}" for cell in cells)
        lines.append(f"{row['partition']:<11}{row['epsilon']:>9}{told}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
