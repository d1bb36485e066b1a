"""Does joining pay sites with thousands of samples? Beside central training's published figures.

    python -m benchmarks.joining_large --data-root DIR [--cifar-root DIR] [--seeds 3] [--json]

Ten sites of 6,000 Fashion-MNIST or 4,500 CIFAR-10 training samples each, and no public label; rows
and columns are those of `benchmarks.joining`, but the forest reads at most 2,000 of a site's own
samples. Of CIFAR-10 the map has 256 coordinates (`network.features`). "Uniform" is what central
figures measure: epsilon 3 on all of Fashion-MNIST 89.7 % (scattering and a linear head), 88.1 %
(DPNAS); CIFAR-10 69.3 % at epsilon 3 (scattering and a network), 81.4 % at 8 (wide networks).
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from benchmarks.joining import FIRST_SEED, measured, row, table
from benchmarks.joining_world import DELTA, Setting, draw
from benchmarks.kept import kept
from panas.features.map import WIDTH

FEATURES = {"fashion-mnist": WIDTH, "cifar10": 2 * WIDTH}
SETTINGS = (
    *(Setting("fashion-mnist", 6000, 0, epsilon, 10, None) for epsilon in (3.0, 1.0, 8.0)),
    *(Setting("cifar10", 4500, 0, epsilon, 10, None) for epsilon in (3.0, 8.0)),
)


def one(roots: Mapping[str, str], task: tuple[Any, ...]) -> dict[str, Any]:
    """Each method's accuracies, own and uniform, of every site of one seed."""
    *fields, seed = task
    setting = Setting(*fields)
    world = draw(setting, roots[setting.dataset], seed, FEATURES[setting.dataset])
    return measured(world, world)


def main() -> None:
    """Run what the folder lacks, and print tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", required=True, help="folder of FashionMNIST")
    parser.add_argument("--cifar-root", help="folder of cifar-10-batches-py")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-joining")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    roots = {"fashion-mnist": a.data_root} | ({"cifar10": a.cifar_root} if a.cifar_root else {})
    settings = [s for s in SETTINGS if s.dataset in roots]
    seeds = range(FIRST_SEED, FIRST_SEED + a.seeds)
    tasks = [(*astuple(s), seed) for seed in seeds for s in settings]
    decided = {"delta": DELTA, "features": FEATURES}
    results = kept(a.work, "joining large", decided, one, roots, tasks, workers=a.workers)
    result = dict(zip(tasks, results, strict=True))
    rows = [row(s, [result[*astuple(s), seed] for seed in seeds]) for s in settings]
    print(json.dumps({"settings": rows}) if a.json else "\n".join(map(table, rows)))


if __name__ == "__main__":
    main()
