"""How good is the common representation? A linear head on the pooled moments of a feature map.

    python -m benchmarks.features DATA [DATA ...] [--data-root DIR] [--public N ...] [--train N ...]
        [--width D ...] [--seeds 3] [--first-seed 10] [--unlabelled] [--drop COLUMN ...] [--json]
        [--encoder FILE]

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

With an encoder each draw has three lines: the built-in map; the encoder's vectors on their axes;
and both on common axes, each with a total variance of 1 over the public samples. The last two also
have how far they are above the first, in points, paired by seed, with its standard error.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor

from panas.data.facts import Facts, fit, infer
from panas.data.files.raw import Raw
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.features.axes import fit_axes
from panas.features.encoders.encoder import Encoder
from panas.features.encoders.files import load_encoder
from panas.features.gabor import Bank, bank_of, features_of, gabor_filters
from panas.features.images import FEWEST_MIRRORED, SYMMETRIC, asymmetry, mirrored
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
COLUMNS = ("exact", "secure", "joined")
FLOOR = 0.9  # of the ridge
SMOOTHED = 100.0  # samples that are added to each class before it is weighed


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One map on one draw of a data set."""

    data: str
    map: str
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


RowsOf = Callable[[Samples], Tensor]
"""A fitted map: rows (n, d) of samples."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A map of one draw, and what it costs."""

    name: str
    width: int
    macs: int  # without an encoder's
    numbers: int
    rows: RowsOf


def fitted(facts: Facts, shared: Samples, draw: Draw, encoder: Encoder | None) -> Iterator[Fitted]:
    """The maps of a draw: the built-in one, and where there is an encoder two more.

    Args:
        facts: of the samples, without the encoder.
        shared: public samples, with embeddings if there is an encoder.
        draw: d, and whether labels are public.
        encoder: None: the built-in map alone.
    """
    for name, known in (("built-in", None), ("encoder", encoder)):
        if known is None and name == "encoder":
            return
        told = replace(facts, encoder=known.facts if known else None)
        phi = fit_map(told, shared, draw.width, labelled=draw.labelled)
        numbers = sum(a.numel() for a in phi.arrays().values())
        yield Fitted(name=name, width=phi.width, macs=phi.cost.macs, numbers=numbers, rows=phi.of)
    yield _both(facts, shared, draw.width)


def _both(facts: Facts, shared: Samples, d: int) -> Fitted:
    """Embeddings and Gabor features on common axes."""
    bank = bank_of(facts.shape)
    seen = _gabor(shared, bank)
    alike = len(seen) >= FEWEST_MIRRORED and asymmetry(seen, bank) <= SYMMETRIC

    def parts(samples: Samples) -> tuple[Tensor, Tensor]:
        assert samples.embeddings is not None
        features = _gabor(samples, bank)
        if alike:  # as the built-in map does
            features = (features + features[:, mirrored(bank)]) / 2
        return samples.embeddings, features

    scales = [1 / part.var(0).sum().sqrt() for part in parts(shared)]

    def vectors(samples: Samples) -> Tensor:
        return torch.cat([a * s for a, s in zip(parts(samples), scales, strict=True)], dim=1)

    phi = fit_axes(vectors(shared), d)
    numbers = sum(a.numel() for a in phi.arrays().values())
    return Fitted(
        name="both",
        width=phi.width,
        macs=bank.macs + phi.cost.macs,
        numbers=numbers,
        rows=lambda samples: phi(vectors(samples)),
    )


def _gabor(samples: Samples, bank: Bank) -> Tensor:
    filters = gabor_filters(bank.side)
    return torch.cat([features_of(x, bank, filters) for x in samples.inputs().split(256)])


def drawn(raw: Raw, draw: Draw, encoder: Encoder | None) -> tuple[Facts, list[Samples]]:
    """Facts, and public, training and test samples, with embeddings if there is an encoder.

    Args:
        raw: all samples.
        draw: how many of them.
        encoder: None for none.
    """
    order = stream(draw.seed, "benchmark", "draw").permutation(len(raw.y))
    tested = min(MOST_TESTED, len(order) // TESTED_SHARE)
    test, public, train = np.split(order[: tested + draw.public + draw.train], _cuts(tested, draw))
    seen = raw.take(public)
    facts = infer(raw, public=seen if draw.public else None)
    shared: Samples = fit(seen, facts) if draw.public else facts.no_samples()
    parts = [shared, fit(raw.take(train), facts), fit(raw.take(test), facts)]
    if encoder is not None:
        parts = [replace(part, embeddings=encoder.of(part)) for part in parts]
    return facts, parts


def one(raw: Raw, name: str, draw: Draw, encoder: Encoder | None = None) -> list[Cell]:
    """All columns of one draw, for each map.

    Args:
        raw: all samples.
        name: of the data.
        draw: which of them are used.
        encoder: None: the built-in map alone.
    """
    facts, (shared, own, held) = drawn(raw, draw, encoder)
    return [_cell(phi, name, draw, (own, held)) for phi in fitted(facts, shared, draw, encoder)]


def _cell(phi: Fitted, name: str, draw: Draw, parts: tuple[Samples, Samples]) -> Cell:
    own, held = parts
    began = time.perf_counter()
    z, tests = phi.rows(own), phi.rows(held).double()
    speed = (len(own) + len(held)) / (time.perf_counter() - began)
    s = math.sqrt(2) * release_multiplier(BUDGET, 1, SHARE)
    scores = [
        score(tests @ head(z, own.y, own.classes, scale, draw.seed).T, held.y)
        for scale in (0.0, s, s * math.sqrt(SITES))
    ]
    return Cell(
        data=name,
        map=phi.name,
        public=draw.public,
        train=len(own),
        width=phi.width,
        macs=phi.macs,
        numbers=phi.numbers,
        exact=scores[0],
        secure=scores[1],
        joined=scores[2],
        speed=speed,
    )


def _cuts(tested: int, draw: Draw) -> list[int]:
    return [tested, tested + draw.public]


def gains(cells: Sequence[Cell], before: Sequence[Cell]) -> str:
    """How far a map is above another one, in points, paired by seed.

    Args:
        cells: of the map, one a seed.
        before: of the other one, in the same order.
    """
    results = []
    for column in COLUMNS:
        pairs = zip(cells, before, strict=True)
        points = [100 * (getattr(a, column) - getattr(b, column)) for a, b in pairs]
        error = statistics.stdev(points) / math.sqrt(len(points)) if len(points) > 1 else 0.0
        results.append(f"{statistics.fmean(points):>+8.1f} +- {error:.1f}  ")
    return f"{'':35s}{'above built-in':>12s}" + "".join(results)


def row(cells: Sequence[Cell]) -> str:
    """Mean and spread of one line of the table."""
    first = cells[0]
    results = [
        f"{first.data:20s}{first.map:9s}{first.public:>6d}{first.train:>7d}{first.width:>5d}"
    ]
    for column in COLUMNS:
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
    parser.add_argument("--encoder", help="a frozen encoder's file, beside the built-in map")
    a = parser.parse_args()
    encoder = load_encoder(a.encoder) if a.encoder else None
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
                by_seed = [one(raw, Path(name).stem, draw, encoder) for draw in draws]
                by_map = list(zip(*by_seed, strict=True))
                cells += [cell for results in by_map for cell in results]
                for results in () if a.json else by_map:
                    print(row(results), flush=True)
                    if results is not by_map[0]:
                        print(gains(results, by_map[0]), flush=True)
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
