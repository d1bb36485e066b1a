"""What a secure sum costs in time and bytes, what it brings, and what colluding sites learn.

    python -m benchmarks.secure_sum [--parts cost,trust,accuracy,audit] [--sites 4,10,50]
        [--repeats 3] [--datasets digits,fashion-mnist --data-root DIR] [--seeds 5] [--json]

`benchmarks.secure_sum_cost` has the cost of masking, `benchmarks.secure_sum_trust` the epsilon
where the trust does not hold, `benchmarks.secure_sum_accuracy` the accuracy of the shared head,
`benchmarks.secure_sum_audit` what n - 1 sites learn of the last. Fashion-MNIST is left out without
--data-root. What is measured of accuracy is kept in --work.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import benchmarks.secure_sum_accuracy as accuracy
import benchmarks.secure_sum_audit as audit
import benchmarks.secure_sum_cost as cost
import benchmarks.secure_sum_trust as trust
from benchmarks.kept import kept

PARTS = ("cost", "trust", "accuracy", "audit")


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated")
    parser.add_argument("--sites", default=",".join(map(str, cost.SITES)), help="comma-separated")
    parser.add_argument("--repeats", type=int, default=3, help="of the cost")
    parser.add_argument("--datasets", default=",".join(accuracy.SIZES), help="comma-separated")
    parser.add_argument("--data-root", help="folder of FashionMNIST")
    parser.add_argument("--seeds", type=int, default=5, help="of the accuracy")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-sums")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    a = parser.parse_args()
    parts, sites = a.parts.split(","), [int(n) for n in a.sites.split(",")]
    record: dict[str, Any] = {"numbers": cost.NUMBERS}
    if "cost" in parts:
        record["cost"] = cost.costs(sites, a.repeats)
    if "trust" in parts:
        record["trust"] = trust.trusts(sites)
    if "accuracy" in parts:
        record["accuracy"] = accuracies(a, sites)
    if "audit" in parts:
        record["audit"] = audit.audits(sites, accuracy.EPSILONS)
    if a.json:
        print(json.dumps(record))
        return
    titles = {
        "cost": f"Cost of masking {cost.NUMBERS} numbers a site",
        "trust": f"Epsilon where more come together than the sum trusts, at delta {trust.DELTA}",
        "accuracy": "Accuracy of the shared head",
        "audit": f"What n - 1 sites learn of the last, at delta {audit.DELTA}",
    }
    tables = {
        "cost": cost.text,
        "trust": trust.text,
        "accuracy": accuracy.text,
        "audit": audit.text,
    }
    for part in (p for p in PARTS if p in record):
        print(f"{titles[part]}\n\n{tables[part](record[part])}\n")


def accuracies(a: argparse.Namespace, sites: list[int]) -> list[dict[str, Any]]:
    """The rows of accuracy; only what the folder lacks is measured."""
    datasets = [d for d in a.datasets.split(",") if d == "digits" or a.data_root]
    seeds = range(accuracy.FIRST_SEED, accuracy.FIRST_SEED + a.seeds)
    tasks = [(d, k, seed) for d in datasets for k in sites for seed in seeds]
    decided = {
        "delta": accuracy.DELTA,
        "epsilons": list(accuracy.EPSILONS),
        "draws": accuracy.DRAWS,
    }
    root = a.data_root or ""
    results = kept(a.work, "sums", decided, accuracy.one, root, tasks, workers=a.workers)
    return accuracy.summary(tasks, results)


if __name__ == "__main__":
    main()
