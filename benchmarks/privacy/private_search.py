"""What does each way to search cost, in accuracy and in epsilon?

    python -m benchmarks.private_search [--dataset digits --data-root DIR] [--seeds 5] [--json]

Every mode sees the same sites, public samples and budget. `unaccounted` holds a search split back
from training; that is part of its price. "search epsilon" is what the ledger holds for the search
and tuning, the largest of all sites: for `public-proxy` out of the same budget as training.
"first" is data-free, of one genome: no search at all.
"""

import argparse
import json
import math
import statistics
import time
from typing import Any

from benchmarks.runs import finished
from dprbft.config.files import build_config
from dprbft.paths import home
from dprbft.site.results.records import SearchRecord, TuningRecord

MODES: dict[str, dict[str, Any]] = {
    "first": {
        "privacy": {"search": "data-free"},
        "search": {"population": 1, "generations": 0},
    },
    "public-proxy": {"privacy": {"search": "public-proxy"}},
    "data-free": {"privacy": {"search": "data-free"}},
    "unaccounted": {"privacy": {"search": "unaccounted", "allow_unprotected": True}},
}
SMALL: dict[str, Any] = {
    "search": {"population": 4, "generations": 2, "epochs": 4, "max_blocks": 5},
    "tuning": {"trials": 4, "initial": 3},
    "training": {"warm_epochs": 15},
    "federation": {"method": "dprbft", "clients": 4, "rounds": 2},
}
SIZES: dict[str, dict[str, Any]] = {
    "digits": {},
    "fashion-mnist": {
        "data": {"limit": 2000, "public_limit": 500},
        "search": {"epochs": 3, "generations": 1},
        "training": {"warm_epochs": 10},
        "federation": {"clients": 2},
    },
}


def one(mode: str, seed: int, base: dict[str, Any], workers: int) -> dict[str, Any]:
    """Search, tune and train one mode at one seed; returns what it came to over its sites."""
    began = time.perf_counter()
    config = build_config(base, MODES[mode], {"seed": seed})
    with finished(config, workers) as (run, summary):
        ids = range(config.federation.clients)
        results = [SearchRecord.read(home(run, i)).result.evaluations for i in ids]
        trials = [len(TuningRecord.read(home(run, i)).trials) for i in ids]
    clients = summary["clients"]
    return {
        "mode": mode,
        "seed": seed,
        "accuracy": summary["accuracy"]["mean"],
        "search_epsilon": max(float(c["epsilon"]["search"]) for c in clients),
        "epsilon": max(float(c["epsilon"]["spent"]) for c in clients),
        "evaluations": statistics.fmean(results),
        "trials": statistics.fmean(trials),
        "train_samples": statistics.fmean(c["samples"]["train"] for c in clients),
        "search_samples": statistics.fmean(c["samples"]["search"] for c in clients),
        "seconds": time.perf_counter() - began,
    }


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per mode: mean over seeds, with the standard deviation of the accuracy."""
    results = {}
    for mode in dict.fromkeys(r["mode"] for r in rows):
        mine = [r for r in rows if r["mode"] == mode]
        reached = [r["accuracy"] for r in mine]
        results[mode] = {
            "mean": statistics.fmean(reached),
            "std": statistics.stdev(reached) if len(reached) > 1 else 0.0,
            "accuracies": reached,
            "search_epsilon": _number(max(r["search_epsilon"] for r in mine)),
            "epsilon": _number(max(r["epsilon"] for r in mine)),
            "evaluations": statistics.fmean(r["evaluations"] for r in mine),
            "trials": statistics.fmean(r["trials"] for r in mine),
            "train_samples": statistics.fmean(r["train_samples"] for r in mine),
            "search_samples": statistics.fmean(r["search_samples"] for r in mine),
            "seconds": statistics.fmean(r["seconds"] for r in mine),
        }
    return results


def _number(x: float) -> float | str:
    return x if math.isfinite(x) else "infinity"


def _merged(*layers: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for layer in layers:
        for section, values in layer.items():
            merged[section] = merged.get(section, {}) | values
    return merged


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=SIZES, default="digits")
    parser.add_argument("--data-root")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    base = _merged(
        SMALL,
        SIZES[a.dataset],
        {"data": {"dataset": a.dataset, "data_root": a.data_root}},
        {"privacy": {"epsilon": a.epsilon}},
    )
    seeds, modes = range(a.start, a.start + a.seeds), a.modes.split(",")
    rows = [one(mode, seed, base, a.workers) for seed in seeds for mode in modes]
    record = table(rows)
    if a.json:
        print(json.dumps({a.dataset: record, "runs": [r | _finite(r) for r in rows]}))
        return
    print(f"{a.dataset}, epsilon {a.epsilon:g}, {a.seeds} seeds")
    for mode, f in record.items():
        print(
            f"{mode:12s} accuracy {f['mean']:.3f} +- {f['std']:.3f}  search epsilon "
            f"{_text(f['search_epsilon'])}, of all {_text(f['epsilon'])}  "
            f"{f['evaluations']:.0f} genomes, "
            f"{f['trials']:.0f} settings, {f['train_samples']:.0f} training samples "
            f"({f['seconds']:.0f} s)"
        )


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {k: _number(row[k]) for k in ("search_epsilon", "epsilon")}


def _text(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:.2f}"


if __name__ == "__main__":
    main()
