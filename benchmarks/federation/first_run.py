"""Does the whole path pay? Sites that join against sites that train alone, and against the paper's.

    python -m benchmarks.first_run [--seeds 5] [--preset demo] [--workers 2] [--json]

All methods see the same sites, splits, public samples and budget: they are whole runs of
`panas run`, which differ in `federation.method`. The ladder of a run of `joined` has what its sites
reach with public samples alone, and the best that each reaches by itself at the same epsilon.
Gains are paired by seed, with their standard errors.

| row | what it is |
|---|---|
| majority, forest on public | need no training: nothing may be below |
| public, alone, joined | the ladder of method joined |
| network | each site's own evolved network by itself, in method joined |
| dprbft | the paper's exchange, made sound |
| local | each site's searched network, trained by DP-SGD by itself |
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.runs import finished
from dprbft.config.files import build_config, merge, without_unread

METHODS = ("joined", "dprbft", "local")
FOREST = ("random forest", "public")


def one(method: str, seed: int, base: dict[str, Any], workers: int) -> dict[str, float]:
    """A whole run at one seed: means over its sites, by row."""
    began = time.perf_counter()
    settings = merge(base, {"federation": {"method": method}, "seed": seed})
    config = build_config(without_unread(settings))
    with finished(config, workers) as (_, summary):
        clients, ladder = summary["clients"], summary["accuracy"]["ladder"]
    results = {method: ladder["joined"], f"seconds {method}": time.perf_counter() - began}
    results[f"epsilon {method}"] = max(c["epsilon"]["spent"] for c in clients)
    if summary["method"] != METHODS[0]:
        return results
    forests = [
        rival["accuracy"]
        for c in clients
        for rival in c["baselines"]["rivals"]
        if (rival["model"], rival["reads"]) == FOREST
    ]
    steps = ("majority", "public", "alone")
    results |= {step: ladder[step] for step in steps if ladder[step] is not None}
    networks = [c["accuracy"]["network"] for c in clients]
    if None not in networks and forests:  # without public samples there is neither
        results["network"] = statistics.fmean(networks)
        results["forest on public"] = statistics.fmean(forests)
    return results


def table(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """By row: mean and standard deviation over seeds; what joining gains over it, if it was run."""
    results = {}
    for row in runs[0]:
        values = [run[row] for run in runs]
        results[row] = {"mean": statistics.fmean(values), "std": _deviation(values)}
        if METHODS[0] in runs[0]:
            gains = [run[METHODS[0]] - run[row] for run in runs]
            error = _deviation(gains) / len(gains) ** 0.5
            results[row] |= {"gain": statistics.fmean(gains), "error": error}
    return results


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=1000, help="the first seed")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=JSON")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    base: dict[str, Any] = {"preset": a.preset}
    for item in a.set:
        key, _, value = item.partition("=")
        section, _, name = key.partition(".")
        base.setdefault(section, {})[name] = json.loads(value)
    runs = []
    for seed in range(a.start, a.start + a.seeds):
        run: dict[str, float] = {}
        for method in a.methods.split(","):
            run |= one(method, seed, base, a.workers)
        runs.append(run)
    record = table(runs)
    if a.json:
        print(json.dumps({"rows": record, "runs": runs}))
        return
    for row, f in record.items():
        text = f"{row:18} {f['mean']:8.3f} +- {f['std']:.3f}"
        if "gain" in f and not row.startswith(("seconds", "epsilon")):
            text += f"  joining gains {100 * f['gain']:+.1f} +- {100 * f['error']:.1f} points"
        print(text)


if __name__ == "__main__":
    main()
