"""What fewer bits a number cost a shared head: the same releases, with the same noise.

    python -m benchmarks.compression [--data-root DIR] [--seeds 5] [--json]

Ten sites with samples of all classes alike, as in `benchmarks.secure_sum_accuracy`; the server sees
each release. Differences are paired. Fashion-MNIST is left out without --data-root.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.joining_methods import all_released
from benchmarks.secure_sum_accuracy import shared_out
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.compression import COMPRESSIONS, encode, rounded
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.kinds import moments
from panas.runtime.seeds import stream
from panas.training.linear.ridge import logits, shared_head

SITES, FIRST_SEED, EPSILONS = 10, 3000, (1.0, 8.0)
SAMPLES = {"digits": (100,), "fashion-mnist": (150, 1500, 4500)}
"""Of a site."""


def one(dataset: str, root: str, n: int, seed: int) -> list[dict[str, Any]]:
    """The accuracy of the shared head, and the bytes of a release, of one seed."""
    sites, test, classes = shared_out(dataset, root, SITES, seed, n)
    counts = torch.bincount(torch.cat([rows.y for rows in sites]), minlength=classes).float()
    results = []
    for epsilon in EPSILONS:
        noise = ReproducibleNoise(stream(seed, "compression", dataset, n, str(epsilon)))
        s = moments.SENSITIVITY * all_released(n, epsilon)
        sent = [moments.run(rows, classes, s, noise) for rows in sites]
        for form in COMPRESSIONS:
            pooled = _pooled([rounded(arrays, form) for arrays in sent], classes, s)
            results.append(
                {
                    "dataset": dataset,
                    "n": n,
                    "epsilon": epsilon,
                    "compression": form,
                    "bytes": sum(a.nbytes for a in encode(sent[0], form).values()),
                    "accuracy": _accuracy(shared_head(replace(pooled, counts=counts)), test),
                }
            )
    return results


def _pooled(sent: Sequence[dict[str, Tensor]], classes: int, s: float) -> Moments:
    each = [moments.estimate(arrays, classes, s) for arrays in sent]
    A, B = (torch.stack(parts).sum(0) for parts in zip(*((m.A, m.B) for m in each), strict=True))
    return Moments(A, B, len(each) * s**2)


def _accuracy(head: Tensor, test: Rows) -> float:
    return float((logits(head, test.z).argmax(1) == test.y).double().mean())


def summary(results: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Means over seeds, and points lost against no compression with their standard errors."""
    rows = []
    for at, row in enumerate(results[0]):
        plain = at - COMPRESSIONS.index(row["compression"])
        scores = [r[at]["accuracy"] for r in results]
        lost = [100 * (r[at]["accuracy"] - r[plain]["accuracy"]) for r in results]
        error = statistics.stdev(lost) / len(lost) ** 0.5 if len(lost) > 1 else None
        about = {"accuracy": statistics.fmean(scores), "points": statistics.fmean(lost)}
        rows.append(row | about | {"error": error, "seeds": len(results)})
    return rows


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", help="folder of FashionMNIST")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    a = parser.parse_args()
    rows = []
    for dataset in (d for d in SAMPLES if d == "digits" or a.data_root):
        for n in SAMPLES[dataset]:
            seeds = range(FIRST_SEED, FIRST_SEED + a.seeds)
            rows += summary([one(dataset, a.data_root or "", n, seed) for seed in seeds])
    if a.json:
        print(json.dumps({"sites": SITES, "rows": rows}))
        return
    print("| data, samples of a site | epsilon | numbers as | kB | accuracy | points |")
    print("|---|---|---|---|---|---|")
    for r in rows:
        error = "" if r["error"] is None else f" +- {r['error']:.2f}"
        print(
            f"| {r['dataset']}, {r['n']} | {r['epsilon']:g} | {r['compression']} | "
            f"{r['bytes'] / 1000:.1f} | {r['accuracy']:.3f} | {r['points']:+.2f}{error} |"
        )


if __name__ == "__main__":
    main()
