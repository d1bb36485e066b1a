"""Does the whole path pay? Searched, tuned and federated clients against plain local training.

    python -m benchmarks.first_run [--seeds 5] [--workers 2] [--json]

Every arm sees the same clients, splits, public samples and budget; only what a client does with
them differs. "first genome" is the first random genome of the search, trained without any search.

| arm | architecture | settings | training |
|---|---|---|---|
| dprbft | searched | tuned | federated |
| local searched | searched | tuned | local |
| local tuned | first genome | tuned | local |
| local | first genome | the defaults | local |
| local cold | first genome | the defaults | local, from random weights |
"""

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.runs import finished
from dprbft.config.files import build_config

FIRST = {"population": 1, "generations": 0}
LOCAL = {"federation": {"method": "local"}}
ARMS: dict[str, dict[str, Any]] = {
    "dprbft": {},
    "local searched": LOCAL,
    "local tuned": LOCAL | {"search": FIRST},
    "local": LOCAL | {"search": FIRST, "tuning": {"trials": 0}},
    "local cold": {
        "federation": {"method": "local", "warm_start": "none"},
        "search": FIRST,
        "tuning": {"trials": 0},
    },
}


def one(arm: str, seed: int, base: dict[str, Any], workers: int) -> dict[str, Any]:
    """Train one arm at one seed; returns mean accuracies over its clients and the seconds."""
    began = time.perf_counter()
    config = build_config(base, ARMS[arm], {"seed": seed})
    with finished(config, workers) as (_, summary):
        clients = summary["clients"]
    return {
        "arm": arm,
        "seed": seed,
        "kept": summary["accuracy"]["mean"],
        "std_over_clients": summary["accuracy"]["std"],
        "before": summary["accuracy"]["local_last"],
        "after": summary["accuracy"]["global_last"],
        "different_genomes": len({c["genome"] for c in clients}),
        "max_epsilon": max(c["epsilon"]["spent"] for c in clients),
        "seconds": time.perf_counter() - began,
    }


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per arm: mean and standard deviation over seeds, and the paired gain of dprbft."""
    by = {arm: {r["seed"]: r for r in rows if r["arm"] == arm} for arm in ARMS}
    found = {}
    for arm, runs in by.items():
        kept = [r["kept"] for r in runs.values()]
        gains = np.array([by["dprbft"][s]["kept"] - r["kept"] for s, r in runs.items()])
        found[arm] = {
            "kept_mean": statistics.fmean(kept),
            "kept_std": statistics.stdev(kept) if len(kept) > 1 else 0.0,
            "kept": kept,
            "before": statistics.fmean(r["before"] for r in runs.values()),
            "after": statistics.fmean(r["after"] for r in runs.values()),
            "gain_of_dprbft": float(gains.mean()),
            "gain_standard_error": float(gains.std(ddof=1) / len(gains) ** 0.5)
            if len(gains) > 1
            else 0.0,
            "different_genomes": [r["different_genomes"] for r in runs.values()],
            "max_epsilon": max(r["max_epsilon"] for r in runs.values()),
            "seconds": statistics.fmean(r["seconds"] for r in runs.values()),
        }
    return found


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=JSON")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    base: dict[str, Any] = {
        "privacy": {"epsilon": a.epsilon},
        "federation": {"clients": a.clients},
    }
    for item in a.set:
        key, _, value = item.partition("=")
        section, _, name = key.partition(".")
        base.setdefault(section, {})[name] = json.loads(value)
    seeds = range(a.start, a.start + a.seeds)
    rows = [one(arm, seed, base, a.workers) for seed in seeds for arm in ARMS]
    found = table(rows)
    if a.json:
        print(json.dumps({"arms": found, "runs": rows}))
        return
    for arm, f in found.items():
        print(
            f"{arm:15s} kept {f['kept_mean']:.3f} +- {f['kept_std']:.3f}  before {f['before']:.3f}"
            f"  after {f['after']:.3f}  dprbft gains {f['gain_of_dprbft']:+.3f}"
            f" +- {f['gain_standard_error']:.3f}  ({f['seconds']:.0f} s)"
        )


if __name__ == "__main__":
    main()
