"""Does the first run pay? Sites that join, against the best that they reach without, by seed.

    python -m benchmarks.first_run [--seeds 10] [--start 1000] [--workers 2] [--json]

Whole runs of `panas run`, which differ in their seed; `--set section.key=JSON` changes a setting.
Of each run: mean test accuracies over sites (`dprbft.run.outcome`), without joining and with it.
Gains are paired by seed, with their standard errors over seeds.

| row | what it is |
|---|---|
| majority | the most frequent class of a site |
| each site alone | the best that a site reaches by itself, at the same epsilon |
| a head, a forest, a regression | of public samples |
| best without joining | the best of these in the mean of a run |
| own, not private | the better of a forest and a regression of a site's and public samples |
| joined, network | what a site predicts with, and its own network by itself |
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.runs import finished
from dprbft.config.files import build_config, first_run, merge
from dprbft.run.outcome import outcome

POINTS = 0.03
"""The gain that a seed should have."""
SHARE = 0.9
"""Of a predictor's accuracy that the network should have."""


def one(seed: int, changes: dict[str, Any], workers: int) -> dict[str, float]:
    """A whole run at one seed: means over its sites, by row."""
    began = time.perf_counter()
    config = build_config(merge(first_run({}), changes, {"seed": seed}))
    with finished(config, workers) as (_, summary):
        result = outcome(summary)
    assert result.best is not None
    rows = dict(result.means) | {"best without joining": result.best[1]}
    own: dict[str, list[float]] = {}
    for c in summary["clients"]:
        for rival in c["baselines"]["rivals"]:
            if rival["reads"] != "public":
                own.setdefault(rival["model"], []).append(rival["accuracy"])
    rows["own, not private"] = max(map(statistics.fmean, own.values()))
    return rows | {"epsilon": result.epsilon, "seconds": time.perf_counter() - began}


def table(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """By row: mean and standard deviation over seeds, and what joining gains over it."""
    results = {}
    for row in runs[0]:
        values = [run[row] for run in runs]
        gains = [run["joined"] - run[row] for run in runs]
        error = _deviation(gains) / len(gains) ** 0.5
        results[row] = {"mean": statistics.fmean(values), "std": _deviation(values)}
        results[row] |= {"gain": statistics.fmean(gains), "error": error}
    return results


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--start", type=int, default=1000, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=JSON")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    changes: dict[str, Any] = {}
    for item in a.set:
        key, _, value = item.partition("=")
        section, _, name = key.partition(".")
        changes.setdefault(section, {})[name] = json.loads(value)
    runs = [one(seed, changes, a.workers) for seed in range(a.start, a.start + a.seeds)]
    record = table(runs)
    if a.json:
        print(json.dumps({"rows": record, "runs": runs}))
        return
    for row, f in record.items():
        text = f"{row:30} {f['mean']:8.3f} +- {f['std']:.3f}"
        if row not in ("joined", "epsilon", "seconds"):
            text += f"  joined {100 * f['gain']:+.1f} +- {100 * f['error']:.1f} points"
        print(text)
    ahead = sum(r["joined"] - r["best without joining"] >= POINTS for r in runs)
    near = sum(r["network"] >= SHARE * r["joined"] for r in runs)
    print(f"ahead by {100 * POINTS:.0f} points or more: {ahead} of {len(runs)} seeds")
    print(f"network at {SHARE:.0%} of what sites predict with or more: {near} of {len(runs)} seeds")


if __name__ == "__main__":
    main()
