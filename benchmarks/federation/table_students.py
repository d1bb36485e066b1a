"""Do students of tables hold? At each site: majority class, what it predicts with, its network.

    python -m benchmarks.table_students --data-root DIR [--seeds 5] [--start 2000] [--workers 2]
        [--json]

Whole runs of `panas run --preset demo`: four sites (Dirichlet 2), epsilon 4, with 40 and 400 public
rows. A network holds if it is within 3 points of what its site predicts with.

| table | rows | what it is |
|---|---|---|
| card fraud | 1,722 | `creditcard*.csv` in DIR, without the column that numbers its rows |
| messages | 5,574 | `sms.tsv` in DIR: 128 hashed parts of words; spam or not |
| digits | 1,797 | scikit-learn's, as 64 columns; 10 classes |
"""

import argparse
import csv
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sklearn.datasets
from sklearn.feature_extraction.text import HashingVectorizer

from benchmarks.joining_tables import CARD_FRAUD
from benchmarks.runs import finished
from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.run.outcome import outcome

TABLES = ("card fraud", "messages", "digits")
PUBLIC = (40, 400)
SITES, ALPHA, EPSILON = 4, 2.0, 4.0
OPEN, TESTED = 0.25, 0.4  # shares of a table that may be public, and of a site's rows to test on
NEAR = 0.03
MESSAGES, PARTS = "sms.tsv", 128
CHANGES: dict[str, Any] = {}
"""Of settings, beside those of a task."""


def main() -> None:
    """Run, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=2000, help="the first seed")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--public", nargs="+", type=int, default=PUBLIC)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in a.tables:
            path = Path(folder) / f"{name.replace(' ', '-')}.csv"
            if not write(path, name, a.data_root):
                continue
            for public in a.public:
                seeds = range(a.start, a.start + a.seeds)
                runs = [one(path, public, seed, a.workers) for seed in seeds]
                rows.append(row(name, public, runs))
                if not a.json:
                    print(line(rows[-1]), flush=True)
    if a.json:
        print(json.dumps({"settings": rows}))


def one(path: Path, public: int, seed: int, workers: int) -> dict[str, Any]:
    """A whole run: figures of its sites.

    Args:
        path: of the table.
        public: rows that are public, with labels.
        seed: of the run.
        workers: processes.
    """
    began, config = time.perf_counter(), config_of(path, public, seed)
    with finished(config, workers) as (_, summary):
        sites, clients = outcome(summary).sites, summary["clients"]
    return {
        "seed": seed,
        "seconds": time.perf_counter() - began,
        "sites": [
            {
                "majority": site.majority,
                "predictor": site.joined,
                "network": site.network,
                "tests": site.tests,
                "bytes": client["bytes"],
                "genome": client["genome"],
                "candidates": client["candidates"],
            }
            for site, client in zip(sites, clients, strict=True)
        ],
    }


def config_of(path: Path, public: int, seed: int) -> RunConfig:
    """A run's settings.

    Args:
        path: of the table.
        public: rows that are public, with labels.
        seed: of the run.
    """
    changes: dict[str, Any] = {
        "preset": "demo",
        "seed": seed,
        "data": {
            "dataset": str(path),
            "public_fraction": OPEN,
            "public_limit": public,
            "test_fraction": TESTED,
        },
        "federation": {"clients": SITES, "alpha": ALPHA},
        "privacy": {"epsilon": EPSILON},
    }
    for section, values in CHANGES.items():
        changes.setdefault(section, {}).update(values)
    return build_config(changes)


def write(path: Path, name: str, root: Path) -> bool:
    """Write a table as a file with a column "class"; False where its data are not there.

    Args:
        path: of the file.
        name: one of `TABLES`.
        root: folder of the data.
    """
    if name == "card fraud":
        found = next(iter(sorted(root.glob(CARD_FRAUD))), None)
        if found is None:
            return False
        with found.open(newline="") as file:
            names, *rows = csv.reader(file)
        _write(path, [*names[1:-1], "class"], (cells[1:] for cells in rows))
        return True
    if name == "messages":
        if not (root / MESSAGES).is_file():
            return False
        lines = (root / MESSAGES).read_text(encoding="utf-8").splitlines()[1:]
        labels, texts = zip(*(text.split("\t", 1) for text in lines), strict=True)
        x = HashingVectorizer(n_features=PARTS, analyzer="char_wb", ngram_range=(2, 4))
        cells = x.transform(texts).toarray().round(4)
    else:
        cells, labels = sklearn.datasets.load_digits(return_X_y=True)
    names = [f"column {i}" for i in range(cells.shape[1])]
    labelled = zip(cells.tolist(), labels, strict=True)
    _write(path, [*names, "class"], ([*row, label] for row, label in labelled))
    return True


def _write(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def row(name: str, public: int, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the sites of all runs, and how many networks hold.

    Args:
        name: of the table.
        public: rows that were public.
        runs: as `one` returns them.
    """
    sites = [site for run in runs for site in run["sites"]]
    behind = [s["predictor"] - s["network"] for s in sites]
    figures = ("majority", "predictor", "network")
    return {
        "table": name,
        "public": public,
        "sites": len(sites),
        **{key: statistics.fmean(s[key] for s in sites) for key in figures},
        "near": sum(b <= NEAR + 1e-9 for b in behind),
        "below majority": sum(s["network"] < s["majority"] for s in sites),
        "furthest": max(behind),
        "bytes": max(s["bytes"] for s in sites),
        "seconds": statistics.fmean(run["seconds"] for run in runs),
        "runs": list(runs),
    }


def line(found: dict[str, Any]) -> str:
    """A row of figures as text."""
    f = found
    return (
        f"{f['table']:11} {f['public']:4} public: majority {f['majority']:.3f}, predictor "
        f"{f['predictor']:.3f}, network {f['network']:.3f}; within 3 points {f['near']} of "
        f"{f['sites']}, below majority {f['below majority']}, furthest {f['furthest']:.3f}; "
        f"at most {f['bytes'] / 1e3:.0f} kB, {f['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
