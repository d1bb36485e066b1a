"""How good is the common representation? A linear head on the pooled moments of a feature map.

    python -m benchmarks.features DATA [DATA ...] [--data-root DIR] [--public N ...] [--train N ...]
        [--width D ...] [--seeds 3] [--first-seed 10] [--unlabelled] [--drop COLUMN ...] [--json]

DATA is a set's name or the path of an archive or table. For each seed, samples are drawn apart:
public ones, which fit the map, training ones and 5,000 (at most a third) to test on. The head is a
class-balanced ridge regression; public labels have no part in it. Columns:

| column | moments of the training samples |
|---|---|
| exact | as they are: nothing is private |
| secure | with the noise of one release at 90 % of epsilon 8 (delta 1e-5), as a secure sum gives |
| joined | with the noise of ten such releases |

A score is the area under the ROC curve of two classes, else the accuracy, evenly over classes. The
speed is of one thread.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor

from panas.data.facts import fit, infer
from panas.data.files.raw import Raw
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.features.map import fit_map
from panas.privacy.budget import Budget
from panas.privacy.calibration import release_multiplier
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kinds import moments
from panas.runtime.seeds import one_thread, stream

BUDGET, SHARE = Budget(8.0, 1e-5), 0.9
SITES = 10
MOST_TESTED, TESTED_SHARE = 5000, 3
FLOOR = 0.9  # of the ridge
SMOOTHED = 100.0  # samples that are added to each class before it is weighed


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One map on one draw of a data set."""

    data: str
    public: int  # samples
    train: int  # samples, all sites together
    width: int  # coordinates of the map
    macs: int
    numbers: int
    exact: float
    secure: float
    joined: float
    speed: float  # samples a second


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Which samples are used, and how."""

    public: int
    train: int
    width: int
    labelled: bool
    seed: int


def head(
    z: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int, scale: float, seed: int
) -> Float[Tensor, "classes d"]:
    """Ridge regression on moments with noise of this standard deviation."""
    noise = ReproducibleNoise(stream(seed, "benchmark", "noise"))
    result = moments.estimate(moments.run(Rows(z, y), classes, scale, noise), classes, scale)
    counts = torch.bincount(y, minlength=classes)
    weights = (len(y) / classes + SMOOTHED) / (counts + SMOOTHED)
    values, vectors = torch.linalg.eigh(result.A)
    ridge = max(scale * math.sqrt(z.shape[1]), FLOOR)
    inverse = vectors @ torch.diag(1 / (values.clamp(min=0) + ridge)) @ vectors.T
    weight = weights[:, None] * result.B @ inverse
    return weight - weight.mean(0)


def score(logits: Float[Tensor, "n classes"], y: Int[Tensor, "n"]) -> float:
    """The area under the ROC curve of two classes, else the accuracy, evenly over classes."""
    if logits.shape[1] == 2:
        return float(roc_auc_score(y.numpy(), (logits[:, 1] - logits[:, 0]).numpy()))
    return float(balanced_accuracy_score(y.numpy(), logits.argmax(1).numpy()))


def one(raw: Raw, name: str, draw: Draw) -> Cell:
    """All columns of one draw."""
    order = stream(draw.seed, "benchmark", "draw").permutation(len(raw.y))
    tested = min(MOST_TESTED, len(order) // TESTED_SHARE)
    test, public, train = np.split(order[: tested + draw.public + draw.train], _cuts(tested, draw))
    seen = raw.take(public)
    facts = infer(raw, public=seen if draw.public else None)
    own, held = fit(raw.take(train), facts), fit(raw.take(test), facts)
    shared: Samples = fit(seen, facts) if draw.public else facts.no_samples()
    feature_map = fit_map(facts, shared, draw.width, labelled=draw.labelled)
    began = time.perf_counter()
    z, tests = feature_map(own.inputs()), feature_map(held.inputs()).double()
    speed = (len(own) + len(held)) / (time.perf_counter() - began)
    s = math.sqrt(2) * release_multiplier(BUDGET, 1, SHARE)
    scores = [
        score(tests @ head(z, own.y, facts.classes, scale, draw.seed).T, held.y)
        for scale in (0.0, s, s * math.sqrt(SITES))
    ]
    return Cell(
        data=name,
        public=draw.public,
        train=len(own),
        width=feature_map.width,
        macs=feature_map.cost.macs,
        numbers=sum(a.numel() for a in feature_map.arrays().values()),
        exact=scores[0],
        secure=scores[1],
        joined=scores[2],
        speed=speed,
    )


def _cuts(tested: int, draw: Draw) -> list[int]:
    return [tested, tested + draw.public]


def row(cells: Sequence[Cell]) -> str:
    """Mean and spread of one line of the table."""
    first = cells[0]
    results = [f"{first.data:24s}{first.public:>7d}{first.train:>7d}{first.width:>5d}"]
    for column in ("exact", "secure", "joined"):
        values = [getattr(cell, column) for cell in cells]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        results.append(f"{statistics.fmean(values):>8.3f} +- {spread:.3f}")
    results.append(f"{first.macs:>10,d}{first.numbers:>10,d}")
    results.append(f"{statistics.median(cell.speed for cell in cells):>10,.0f}/s")
    return "".join(results)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--data-root")
    parser.add_argument("--public", type=int, nargs="+", default=[2000])
    parser.add_argument("--train", type=int, nargs="+", default=[1500])
    parser.add_argument("--width", type=int, nargs="+", default=[128])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--unlabelled", action="store_true", help="public labels are not public")
    parser.add_argument("--drop", nargs="+", default=[], help="columns of tables to leave out")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    cells: list[Cell] = []
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in a.data:
            raw = _without(read(name, Reading(data_root=a.data_root)), a.drop)
            for public, train, width in (
                (p, t, d) for p in a.public for t in a.train for d in a.width
            ):
                seeds = range(a.first_seed, a.first_seed + a.seeds)
                draws = [
                    Draw(public=public, train=train, width=width, labelled=not a.unlabelled, seed=s)
                    for s in seeds
                ]
                results = [one(raw, Path(name).stem, draw) for draw in draws]
                cells += results
                if not a.json:
                    print(row(results), flush=True)
    if a.json:
        print(json.dumps([asdict(cell) for cell in cells]))


def _without(raw: Raw, columns: Sequence[str]) -> Raw:
    kept = [i for i, name in enumerate(raw.columns) if name not in columns]
    if len(kept) == len(raw.columns):
        return raw
    names = tuple(raw.columns[i] for i in kept)
    return Raw(raw.x[:, kept], raw.y, raw.class_names, names, kinds=raw.kinds, texts=raw.texts)


if __name__ == "__main__":
    main()
