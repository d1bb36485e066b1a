"""Where networks win: many samples a site, and pictures that a fixed map sees poorly.

    python -m benchmarks.networks --cifar-root DIR [--sites 10] [--json]

Whole runs of method joined on CIFAR-10 at 32x32, shared out evenly over the sites, about 5,000
training samples each, 1,000 labelled public ones, epsilon 8; one run for each `privacy.network`:
"protected" (all that a site trains is under DP) and "stays" (residual and network without noise).
Networks are searched under 1,600,000 multiply-accumulates, about those of the map, which has 256
coordinates. A run that was interrupted goes on: its directory is kept under --work.

| row | test accuracy, in the mean over sites |
|---|---|
| public, alone, joined | the ladder; "alone" has, where nothing leaves, an own network, too |
| the others | each candidate of the site's average by itself, with the site's prior |
| best candidate | at each site the one that is best on its test samples: known afterwards only |

"cells" is the share of sites where the average, "joined", is at least as good as the best candidate
or within a standard error of it, sqrt(e / m), where e is the error of the best and m the number of
test samples: two accuracies on the same samples differ by about that much by chance.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.runs import finished_in
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig

PROMISES = ("protected", "stays")
STEPS = ("public", "alone", "joined")


def config_of(promise: str, root: str, sites: int, seed: int) -> RunConfig:
    """The settings of one run."""
    fixed = {
        "seed": seed,
        "data": {
            "dataset": "cifar10",
            "data_root": root,
            "public_fraction": 0.1,
            "public_limit": 1000,
            "validation_fraction": 0.05,
            "test_fraction": 0.1,
            "limit": 5900 * sites,
        },
        "network": {"features": 256},
        "search": {"max_macs": 1_600_000},
        "federation": {"clients": sites, "partition": "iid"},
        "privacy": {"network": promise},
    }
    return build_config({}, fixed)


def table(clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over sites by row, and how the average stands against the best candidate."""
    record: dict[str, Any] = {
        step: statistics.fmean(c["ladder"][step] for c in clients) for step in STEPS
    }
    for name in sorted(set.intersection(*(set(c["candidates"]) for c in clients))):
        record[name] = statistics.fmean(c["candidates"][name] for c in clients)
    best = [max(c["candidates"].values()) for c in clients]
    ahead = [c["ladder"]["joined"] - b for c, b in zip(clients, best, strict=True)]
    tests = [c["samples"]["test"] for c in clients]
    within = [a >= -(((1 - b) / m) ** 0.5) for a, b, m in zip(ahead, best, tests, strict=True)]
    record["best candidate"] = statistics.fmean(best)
    record["cells at least as good"] = statistics.fmean(a >= 0 for a in ahead)
    record["cells within a standard error"] = statistics.fmean(within)
    gains = [c["ladder"]["joined"] - c["ladder"]["alone"] for c in clients]
    record["joined over alone"] = _mean_and_error(gains)
    return record


def _mean_and_error(values: Sequence[float]) -> list[float]:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return [statistics.fmean(values), error]


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar-root", required=True, help="folder of cifar-10-batches-py")
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-networks")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    results = {}
    for promise in PROMISES:
        config = config_of(promise, a.cifar_root, a.sites, a.seed)
        run = a.work / f"{promise}-{a.sites}-{a.seed}"
        results[promise] = table(finished_in(run, config, a.workers)["clients"])
    if a.json:
        print(json.dumps(results))
        return
    for promise, rows in results.items():
        print(f"\n{promise}")
        for name, value in rows.items():
            shown = (
                f"{value:.3f}" if isinstance(value, float) else "{:+.3f} +- {:.3f}".format(*value)
            )
            print(f"  {name:30} {shown}")


if __name__ == "__main__":
    main()
