"""Do vectors of a public encoder join? Whole runs, against a regression of all data in one place.

    python -m benchmarks.vectors --dataset FILE.npz [--seeds 5] [--start 1000] [--epsilon 2]
        [--clients 4] [--alpha 0.5] [--public 0.1] [--labelled 40] [--workers 2] [--json]

FILE has vectors x (n, e) and labels y: texts, pictures or sounds as an encoder gives them. A share
of them is public, a few with a label. "Pooled" is a logistic regression, without privacy, of the
vectors of all sites and all labelled public ones; its penalty is cross-validated. All accuracies
are means over sites on their test samples, paired by seed, with standard errors over seeds.
"""

import argparse
import json
import statistics
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV

from benchmarks.runs import finished
from dprbft.config.files import build_config
from dprbft.run.outcome import outcome
from dprbft.run.view import RunView
from panas.data.samples import Samples, concat

PENALTIES, FOLDS, STEPS = np.logspace(-1, 3, 5), 5, 3000
POINTS = 2.0
"""Points below the pooled regression that a run may be."""


def pooled(view: RunView) -> float:
    """Accuracy of the regression of all vectors, in the mean of the sites' test samples."""
    sites = [view.site(i) for i in range(len(view.sites))]
    parts = [part for site in sites for part in (site.train, site.validation)]
    x, y = _arrays(concat([*parts, view.public] if len(view.public) else parts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegressionCV(
            Cs=PENALTIES, cv=FOLDS, max_iter=STEPS, scoring="neg_log_loss"
        ).fit(x, y)
    tests = [_arrays(site.test) for site in sites]
    return statistics.fmean(float((model.predict(x) == y).mean()) for x, y in tests)


def _arrays(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    return samples.inputs().flatten(1).numpy(), samples.y.numpy()


def one(a: argparse.Namespace, seed: int) -> dict[str, float]:
    """A whole run at one seed."""
    config = build_config(
        {
            "preset": "demo",
            "seed": seed,
            "data": {
                "dataset": a.dataset,
                "public_fraction": a.public,
                "public_labels": a.labelled,
                "public_limit": 2000,
            },
            "federation": {"clients": a.clients, "alpha": a.alpha},
            "privacy": {"epsilon": a.epsilon},
        }
    )
    with finished(config, a.workers) as (run, summary):
        rows: dict[str, float] = dict(outcome(summary).means)
        return rows | {"pooled": pooled(RunView(run, config))}


def table(runs: list[dict[str, float]]) -> dict[str, Any]:
    """By row: the mean over seeds, and how far joined is above it."""
    results = {}
    for row in runs[0]:
        gains = [100 * (run["joined"] - run[row]) for run in runs]
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        mean = statistics.fmean(run[row] for run in runs)
        results[row] = {"mean": mean, "joined above": statistics.fmean(gains), "error": error}
    return results


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", required=True, help="an .npz of vectors x and labels y")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=1000, help="the first seed")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.5, help="of the Dirichlet partition")
    parser.add_argument("--public", type=float, default=0.1, help="share of the data")
    parser.add_argument("--labelled", type=int, default=40, help="of the public vectors")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    runs = [one(a, seed) for seed in range(a.start, a.start + a.seeds)]
    record = table(runs)
    if a.json:
        print(json.dumps({"rows": record, "runs": runs}))
        return
    for row, f in record.items():
        print(
            f"{row:30} {f['mean']:.3f}  joined {f['joined above']:+.1f} +- {f['error']:.1f} points"
        )
    near = sum(100 * (run["pooled"] - run["joined"]) <= POINTS for run in runs)
    print(f"within {POINTS:g} points of the pooled regression: {near} of {len(runs)} seeds")


if __name__ == "__main__":
    main()
