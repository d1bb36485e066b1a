"""DP-FNAS's tables in form, and what per-sample gradients of an architecture cost.

    python -m benchmarks.dp_fnas [--dataset digits] [--limit 600] [--parties 1,2,4,8] [--seeds 1]
        [--rounds 60] [--variances 0.5,1,2,5,8,10] [--set KEY=VALUE ...] [--keep DIR] [--json]

Table 1: test error of the searched network by number of parties, who share out the same samples:
"FNAS" without noise, "DP-FNAS" as published (variance 1 in the search, none in the training of the
last network, so that epsilon is infinite as a whole; that of the search stands beside it, exactly
and by theorem 3.1), and "sound", everything within --epsilon. Table 2: error of four parties by the
variance of the noise, as published. Gradients: seconds of CPU for those of W and A of one batch, a
sample at a time by the privacy engine and by a loop, and for the plain gradient of W.

Small by default; the publication's sizes are options of a run:
--set cells=8 --set channels=16 --set nodes=4 --set evaluation_cells=20 --set evaluation_channels=36
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from baselines import dp_fnas
from baselines.networks.cnns import initialise
from baselines.networks.darts import DartsSpace, SuperNetwork
from baselines.networks.searched import alphas_of, weights_but_alphas
from benchmarks.kept import kept
from benchmarks.runs import finished
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.paths import ledger_file, read_sites, server_folder
from dprbft.server.records import read_rounds
from panas.privacy.gradients.per_sample import PerSample, cross_entropy
from panas.privacy.ledger.ledger import Ledger

FREE = {"privacy": {"epsilon": math.inf, "allow_unprotected": True}}
PUBLISHED = dict(dp_fnas.COLUMNS["paper"])
SMALL = {
    **{"search_share": 0.4, "batch_size": 32, "evaluation_cells": 2, "measure_every": 1000},
    "operations": ["max_pool_3x3", "skip_connect", "sep_conv_3x3", "dil_conv_3x3", "none"],
}
Task = tuple[str, int, float, int]
"""Method, parties, variance of the noise (0: as the budget says, or none), seed."""


def settings_for(given: argparse.Namespace, task: Task) -> RunConfig:
    """One run."""
    method, parties, variance, seed = task
    options = {**SMALL, **given.options}
    base: Mapping[str, Any] = {"privacy": {"epsilon": given.epsilon}}
    if method == "FNAS":
        base, options = FREE, {"learning_rate": 0.1, **options}
    elif method == "DP-FNAS":
        published = dict(PUBLISHED["federation"]["options"])
        base = {"privacy": PUBLISHED["privacy"]}
        options = {**SMALL, **published, "evaluation_rate": 0.3, **given.options}
        options["noise_multiplier"] = variance**0.5
    federation = {"method": "dp_fnas", "clients": parties, "rounds": given.rounds}
    federation |= {"partition": "iid", "baselines": False, "options": options}
    data = {"dataset": given.dataset, "limit": given.limit, "public_fraction": 0.05}
    return build_config(dict(base), {"seed": seed, "data": data, "federation": federation})


def measured(given: argparse.Namespace, task: Task) -> dict[str, Any]:
    """What a run gives a row of a table."""
    config = settings_for(given, task)
    with finished(config, 1) as (run, summary):
        sites = read_sites(run)
        accounts = [Ledger(ledger_file(p.folder), p.run).account() for p in sites]
        records = read_rounds(server_folder(run))
    about = [site["setting"]["about"] for site in summary["clients"]]
    searching = dp_fnas.search_rounds(config)
    limits = [row.get("epsilon", 0.0) for a in about for row in _limits(a["theorem_3_1"])]
    kinds = about[0]["genotype"]
    return {
        "error": 100 * (1 - summary["accuracy"]["mean"]),
        "parameters": summary["clients"][0]["parameters"],
        "search_seconds": sum(r.seconds for r in records[:searching]),
        "search_passes": sum(a["search_passes"] for a in about),
        "operations": sorted({o for kind in kinds.values() for node in kind for o, _ in node}),
        "epsilon": _number(max(a.spent() for a in accounts)),
        "epsilon_noised": max(a.spent_protected() for a in accounts),
        "epsilon_limit": max(limits, default=0.0),
    }


def _limits(theorem: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for part in theorem.values() if isinstance(part, Mapping)]


def _number(x: float) -> float | str:
    return x if math.isfinite(x) else "infinity"


def row_of(task: Task, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean over seeds, and the error's standard deviation."""
    errors = [run["error"] for run in runs]
    return {
        "method": task[0],
        "parties": task[1],
        "variance": task[2] or None,
        "error_percent": statistics.mean(errors),
        "error_std": statistics.stdev(errors) if len(errors) > 1 else None,
        "parameters": statistics.mean(run["parameters"] for run in runs),
        "search_seconds": statistics.mean(run["search_seconds"] for run in runs),
        "search_passes": statistics.mean(run["search_passes"] for run in runs),
        "operations": runs[0]["operations"],
        **{key: runs[0][key] for key in ("epsilon", "epsilon_noised", "epsilon_limit")},
    }


def seconds_of(work: Callable[[], object], times: int = 5) -> float:
    """The least CPU time of a few."""
    work()
    results = []
    for _ in range(times):
        began = time.process_time()
        work()
        results.append(time.process_time() - began)
    return min(results)


def gradient_costs(batch: int = 64, channels: int = 4, side: int = 8) -> dict[str, float]:
    """Seconds of CPU for one batch's gradients, on one thread."""
    torch.set_num_threads(1)
    shape = (1, side, side)
    space = DartsSpace(shape=shape, classes=10, cells=2, channels=channels, nodes=2)
    generator = torch.Generator().manual_seed(0)
    model = initialise(SuperNetwork(space), generator)
    x = torch.randn(batch, *shape, generator=generator)
    y = torch.randint(10, (batch,), generator=generator)

    def plain(parameters: list[nn.Parameter]) -> object:
        return torch.autograd.grad(cross_entropy(model(x), y).mean(), parameters)

    def loop(parameters: list[nn.Parameter]) -> object:
        pairs = zip(x.split(1), y.split(1), strict=True)
        return [torch.autograd.grad(cross_entropy(model(a), b), parameters) for a, b in pairs]

    results = dict[str, float]()
    for name, own in (("W", weights_but_alphas(model)), ("A", alphas_of(model))):
        for p in model.parameters():
            p.requires_grad_(False)
        for p in own:
            p.requires_grad_(True)
        engine = PerSample(model, cross_entropy)
        results[f"plain_{name}"] = seconds_of(lambda own=own: plain(own))  # type: ignore[misc]
        results[f"per_sample_{name}"] = seconds_of(lambda engine=engine: engine(x, y))  # type: ignore[misc]
        results[f"loop_{name}"] = seconds_of(lambda own=own: loop(own), 2)  # type: ignore[misc]
    return results


def tables(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rows."""
    kinds = (("FNAS", 0.0), ("DP-FNAS", 1.0), ("sound", 0.0))
    first = [(method, k, variance) for method, variance in kinds for k in given.parties]
    second = [("DP-FNAS", given.of, v) for v in given.variances]
    rows = list(dict.fromkeys([*first, *second]))
    tasks: list[Task] = [(*row, seed) for row in rows for seed in range(given.seeds)]
    decided = {k: vars(given)[k] for k in ("dataset", "limit", "rounds", "epsilon", "options")}
    runs = kept(folder, "dp-fnas", decided, measured, given, tasks, workers=1)
    by_row = {
        row: row_of((*row, 0), [r for t, r in zip(tasks, runs, strict=True) if t[:3] == row])
        for row in rows
    }
    return {
        "table_1": [by_row[row] for row in first],
        "table_2": [by_row[row] for row in second],
        "gradients": gradient_costs(),
    }


def _option(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _line(row: Mapping[str, Any]) -> str:
    spread = "" if row["error_std"] is None else f" +- {row['error_std']:.1f}"
    variance = "" if row["variance"] is None else f" variance {row['variance']:g}"
    return (
        f"{row['method']:8}{row['parties']:>2} parties{variance:14} "
        f"error {row['error_percent']:.1f}{spread} %, {row['parameters']:.0f} parameters, "
        f"search {row['search_seconds']:.1f} s, "
        f"epsilon {row['epsilon']} (noised steps {row['epsilon_noised']:.3g}, theorem 3.1 about "
        f"{row['epsilon_limit']:.3g})"
    )


def main() -> None:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    numbers = lambda kind: lambda text: [kind(x) for x in text.split(",")]  # noqa: E731
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--parties", type=numbers(int), default=[1, 2, 4, 8])
    parser.add_argument("--of", type=int, default=4, help="parties of table 2")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--variances", type=numbers(float), default=[0.5, 1, 2, 5, 8, 10])
    parser.add_argument("--set", dest="options", type=_option, action="append", default=[])
    parser.add_argument("--keep", type=Path, help="folder of finished runs, to go on from")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.options = dict(given.options)
    with TemporaryDirectory() as folder:
        record = tables(given, given.keep or Path(folder))
    if given.json:
        print(json.dumps(record, indent=1))
        return
    for name in ("table_1", "table_2"):
        print(name, *map(_line, record[name]), sep="\n")
    for name, seconds in record["gradients"].items():
        print(f"{name:14} {1e3 * seconds:.1f} ms")


if __name__ == "__main__":
    main()
