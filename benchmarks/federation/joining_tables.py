"""Does joining pay on tables? With 50, 200 and 1,000 public rows, beside forests.

    python -m benchmarks.joining_tables --data-root DIR [--seeds 5] [--json]

The rows of a table are dealt out at random: to test on, public ones with their labels, and to sites
(n training and V validation samples each). Public rows give scale, categories and the common map.
Where a table is short, there are as few sites as rows are left. Methods are those of
`benchmarks.joining`; each spends the same epsilon (delta 1e-5). "Alone", "joined" and "secure sum"
have the public forest and logistic regression as further candidates of their averages.

| table | rows | what it is |
|---|---|---|
| card fraud | 1,722 | `creditcard*.csv` in DIR, without the column that numbers its rows |
| breast cancer, digits | 569, 1,797 | scikit-learn's; digits as 64 columns |
| generated | 20,000 | 12 classes of scikit-learn's `make_classification`: no real data |
| linear | 20,000 | 5 classes, linear in 20 columns but for noise: no real data |

Figures are means over sites and seeds, on the same test rows; differences to the models of public
rows and to "alone" are paired by seed, with their standard error.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets

from benchmarks.joining import FIRST_SEED, METHODS
from benchmarks.joining_methods import in_sum, known_of, predictions
from benchmarks.joining_world import DELTA, Shares, World, world
from benchmarks.kept import kept
from panas.data.facts import fit, infer
from panas.data.files.raw import Raw
from panas.data.sources import Reading, read
from panas.features.map import WIDTH, fit_map
from panas.privacy.budget import Budget
from panas.runtime.seeds import stream
from panas.training.linear.rules import Pooling, map_width
from panas.training.metrics import measure

FIGURES = ("auroc", "balanced_accuracy", "accuracy")
PUBLIC = (50, 200, 1000)
EPSILONS = (3.0, 8.0)
OTHERS = ("forest on public", "logistic on public", "alone")
CARD_FRAUD = "creditcard*.csv"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How a table is dealt out."""

    n: int  # training samples of a site
    validation: int
    sites: int  # at most
    test: int


TABLES = {
    "card fraud": Sizes(n=100, validation=30, sites=5, test=300),
    "breast cancer": Sizes(n=50, validation=20, sites=5, test=150),
    "digits": Sizes(n=100, validation=30, sites=10, test=400),
    "generated": Sizes(n=375, validation=30, sites=10, test=5000),
    "linear": Sizes(n=100, validation=30, sites=10, test=5000),
}


@dataclass(frozen=True)
class Setting:
    """What one federation is like."""

    table: str
    public: int
    epsilon: float


def main() -> None:
    """Run what the folder lacks, and print tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True, help=f"folder of {CARD_FRAUD}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-joining")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    root = str(args.data_root)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    settings = [
        s for s in grid() if s.table != "card fraud" or list(args.data_root.glob(CARD_FRAUD))
    ]
    tasks = [(*astuple(s), seed) for s in settings for seed in seeds]
    results = kept(
        args.work, "joining tables", {"delta": DELTA}, one, root, tasks, workers=args.workers
    )
    result = dict(zip(tasks, results, strict=True))
    rows = [row(s, [result[*astuple(s), seed] for seed in seeds]) for s in settings]
    print(json.dumps({"settings": rows}) if args.json else "\n".join(map(table, rows)))


def grid() -> list[Setting]:
    """All settings in which at least two sites have samples."""
    few = {"breast cancer": 1000}  # public rows that it has not got
    return [Setting(t, p, e) for t in TABLES for p in PUBLIC if p != few.get(t) for e in EPSILONS]


def one(root: str, task: tuple[Any, ...]) -> dict[str, Any]:
    """Each method's figures of every site of one seed."""
    *fields, seed = task
    setting, raw = Setting(*fields), rows_of(fields[0], root)
    federation, summed = (draw(setting, raw, seed, secure=secure) for secure in (False, True))
    known, of_sum = known_of(federation), known_of(summed)
    record: dict[str, Any] = {"share": known.joined.share, "sites": len(federation.sites)}
    for at in range(len(federation.sites)):
        said = predictions(federation, at, known) | in_sum(summed, at, of_sum)
        for method, scores in said.items():
            measured = measure(scores, federation.test.y)
            record.setdefault(method, []).append([getattr(measured, f) for f in FIGURES])
    return record


def rows_of(name: str, root: str) -> Raw:
    """A table by name."""
    if name == "card fraud":
        return read(str(next(Path(root).glob(CARD_FRAUD))), Reading())
    if name == "generated":
        x, y = sklearn.datasets.make_classification(
            n_samples=20_000,
            n_features=30,
            n_informative=12,
            n_redundant=6,
            n_classes=12,
            class_sep=1.5,
            random_state=0,
        )
    elif name == "linear":
        x, y = linear(np.random.default_rng(0), 20_000, 20, 5)
    else:
        load = {"breast cancer": "load_breast_cancer", "digits": "load_digits"}[name]
        x, y = getattr(sklearn.datasets, load)(return_X_y=True)
    names = tuple(f"column {i}" for i in range(x.shape[1]))
    classes = tuple(str(c) for c in np.unique(y))
    return Raw(x.astype(np.float64), y.astype(np.int64), classes, names, from_file=False)


def linear(
    rng: np.random.Generator, n: int, columns: int, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of columns of unlike scale, and the class of the largest noised linear score."""
    u, scale = rng.standard_normal((n, columns)), np.exp(rng.standard_normal(columns))
    scores = u @ rng.standard_normal((columns, classes)) + 0.7 * rng.gumbel(size=(n, classes))
    return u * scale, scores.argmax(1)


def draw(setting: Setting, raw: Raw, seed: int, *, secure: bool) -> World:
    """A table dealt out to test, public and sites, on a map as wide as the budget allows."""
    sizes = TABLES[setting.table]
    order = stream(seed, "joining", setting.table).permutation(len(raw.y))
    test, public, rest = np.split(order, [sizes.test, sizes.test + setting.public])
    facts = infer(raw, public=raw.take(public))
    shown, held = fit(raw.take(public), facts), fit(raw.take(test), facts)
    each, sites = sizes.n + sizes.validation, []
    for k in range(min(sizes.sites, len(rest) // each)):
        own = fit(raw.take(rest[k * each : (k + 1) * each]), facts)
        train, kept_back = own.take(range(sizes.n)), own.take(range(sizes.n, each))
        sites.append((train, kept_back, held.histogram() / len(held)))
    pooling = Pooling(
        sites=len(sites),
        samples=sizes.n,
        classes=shown.classes,
        budget=Budget(setting.epsilon, DELTA),
        secure_sum=secure,
    )
    phi = fit_map(facts, shown, map_width(pooling, setting.public, WIDTH))
    return world(Shares(shown, held, tuple(sites), table=True), phi, setting.epsilon, seed)


def row(setting: Setting, seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over sites and seeds, and differences to `OTHERS`."""
    sizes = asdict(TABLES[setting.table]) | {"sites": seeds[0]["sites"]}
    joined = statistics.fmean(seed["share"] > 0 for seed in seeds)
    record: dict[str, Any] = {"setting": asdict(setting) | sizes, "joined": joined, "methods": {}}

    def means(method: str, at: int) -> np.ndarray:
        return np.array([np.mean([site[at] for site in seed[method]]) for seed in seeds])

    for method in (m for m in METHODS if all(m in seed for seed in seeds)):
        record["methods"][method] = {
            figure: {"mean": float(means(method, at).mean())}
            | {
                f"over {other}": _mean_and_error(means(method, at) - means(other, at))
                for other in OTHERS
            }
            for at, figure in enumerate(FIGURES)
        }
    return record


def _mean_and_error(differences: np.ndarray) -> list[float | None]:
    n = len(differences)
    return [float(differences.mean()), float(differences.std(ddof=1) / n**0.5) if n > 1 else None]


def table(found: Mapping[str, Any]) -> str:
    """One setting as lines of text; differences in points, of AUROC and balanced accuracy."""
    lines = ["", ", ".join(f"{k} {v}" for k, v in found["setting"].items())]
    lines.append(f"joins in {found['joined']:.0%} of seeds")
    lines.append(
        f"{'':24}{'auroc':>7}{'over forest':>15}{'balanced':>10}{'over forest':>15}{'acc':>7}"
    )
    for method, figures in found["methods"].items():
        cells = [f"{method:24}"]
        for figure, width in (("auroc", 7), ("balanced_accuracy", 10)):
            mean, error = figures[figure]["over forest on public"]
            spread = "" if error is None else f" +- {100 * error:.1f}"
            cells.append(f"{figures[figure]['mean']:{width}.3f}{f'{100 * mean:+.1f}{spread}':>15}")
        lines.append("".join(cells) + f"{figures['accuracy']['mean']:7.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
