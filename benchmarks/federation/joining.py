"""Does joining pay? One release of a common representation, against the best a site does alone.

    python -m benchmarks.joining --data-root DIR [--cifar-root DIR] [--vectors FILE] [--grid FILE]

The grid has the settings: benchmarks/federation/joining.toml, which takes about half an hour on two
cores, or joining-wide.toml beside it, all of them, or joining-budget.toml, or one's own. FILE
has vectors of samples, say of an encoder: those are data set "vectors".

Each of K sites has n private samples, classes by a Dirichlet draw, and V validation samples. All
share the map phi of `panas.features`, fitted on 2,000 public images, of which P have labels. Every
row spends the same epsilon (delta 1e-5), a tenth of it on the label histogram.

| row | predictor of a site |
|---|---|
| forest on public | a random forest of the raw values of the labelled public samples, epsilon 0 |
| logistic on public | a logistic regression of the same |
| forest on public and own | the same with the site's own, which is not private |
| public | the ridge head of the labelled public samples, with the site's noised log prior |
| own release | the head of the site's own noised moments, at all of the budget |
| alone | DP-SGD of a linear residual over public head and prior, averaged with the public head |
| alone again | the same with other noise: what chance alone does to gains and losses |
| shared | the head of all sites' noised moments, with the site's prior |
| joined | a release, the rest for DP-SGD over the shared head; averaged with all heads |
| secure sum | the same where the server sees the noised sum alone, of the noise of one site |
| pooled | the head of all sites' exact moments, averaged: what no release can beat with this map |
| map of the sum | the same on the map of the secure sum, which bears more coordinates |

Averages are stacked on the site's validation samples. "Own" is accuracy under the site's class mix,
"uniform" under all classes alike. Gains are over "alone", paired by seed, with their standard
error; "lose" is the share of sites that are more than a point below "alone": of "alone again" it is
what noise does by itself, for two runs of one method differ too. What the release gets is
`panas.training.linear.rules.release_share`; where that is nothing, "joined" is "alone" to the bit.
All settings were chosen on seeds 100 to 102.
"""

import argparse
import json
import statistics
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.joining_methods import in_sum, known_of, predictions
from benchmarks.joining_world import DELTA, VECTORS, Setting, World, draw, width_of
from benchmarks.kept import kept
from panas.runtime.errors import BadInput

FIRST_SEED = 1000
OF_FILE = "vectors"
GRID = Path(__file__).with_suffix(".toml")
USUAL = Setting("fashion-mnist", 150, 0, 8.0, 10, 0.3)
METHODS = (
    *("forest on public", "logistic on public", "forest on public and own"),
    *("public", "own release", "alone"),
    *("alone again", "shared", "joined", "pooled"),
    *("alone, map of the sum", "secure sum", "pooled, map of the sum"),
)


def main() -> None:
    """Run what the folder lacks, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", required=True, help="folder of FashionMNIST")
    parser.add_argument("--cifar-root", help="folder of cifar-10-batches-py")
    parser.add_argument("--vectors", type=Path, help=f"{VECTORS} of x and y: data set {OF_FILE!r}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--grid", type=Path, default=GRID, help="file of the settings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-joining")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    roots = {"fashion-mnist": args.data_root} | (
        {"cifar10": args.cifar_root} if args.cifar_root else {}
    )
    if args.vectors:
        roots[OF_FILE] = str(args.vectors)
    settings = [s for s in grid(args.grid) if s.dataset in roots]
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    tasks = [(*astuple(s), seed) for s in settings for seed in seeds]
    results = kept(args.work, "joining", {"delta": DELTA}, one, roots, tasks, workers=args.workers)
    result = dict(zip(tasks, results, strict=True))
    rows = [row(s, [result[*astuple(s), seed] for seed in seeds]) for s in settings]
    if args.json:
        print(json.dumps({"settings": rows}))
        return
    for r in rows:
        print(table(r))


def grid(file: Path) -> list[Setting]:
    """The settings of a file, each once: all combinations of the lists of each [[grid]]."""
    known, result = asdict(USUAL), dict[Setting, None]()
    grids = tomllib.loads(file.read_text()).get("grid")
    if not isinstance(grids, list):
        raise BadInput(f"expected [[grid]] in {file}, got none; see {GRID.name}")
    for lists in grids:
        if unknown := lists.keys() - known.keys():
            raise BadInput(
                f"expected settings of {', '.join(known)} in {file}, got {', '.join(unknown)}"
            )
        for values in product(*lists.values()):
            setting = replace(USUAL, **dict(zip(lists, values, strict=True)))
            result[replace(setting, alpha=None) if setting.alpha == "iid" else setting] = None
    return list(result)


def one(roots: Mapping[str, str], task: tuple[Any, ...]) -> dict[str, Any]:
    """Each method's accuracies, own and uniform, of every site of one seed."""
    *fields, seed = task
    setting = Setting(*fields)
    width = width_of(setting, secure=True)
    return measured(
        draw(setting, roots[setting.dataset], seed),
        draw(setting, roots[setting.dataset], seed, width),
    )


def measured(world: World, summed: World) -> dict[str, Any]:
    """Each method's accuracies, own and uniform, of every site of a federation.

    Args:
        world: on the map of sites whose server sees each release.
        summed: the same samples on the map of a secure sum.
    """
    known, of_sum = known_of(world), known_of(summed)
    record: dict[str, Any] = {"share": known.joined.share, "width": world.test.z.shape[1]}
    record["width of the sum"] = summed.test.z.shape[1]
    for at, site in enumerate(world.sites):
        said = predictions(world, at, known) | in_sum(summed, at, of_sum)
        for method, p in said.items():
            right = (p.argmax(1) == world.test.y).double()
            of_class = torch.zeros(world.classes, dtype=torch.float64)
            of_class.index_add_(0, world.test.y, right)
            of_class /= torch.bincount(world.test.y, minlength=world.classes).clamp(min=1)
            own = float((of_class * site.mix).sum())
            record.setdefault(method, []).append([own, float(of_class.mean())])
    return record


def row(setting: Setting, seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over sites and seeds, and gains over "alone", paired by seed."""
    joined = statistics.fmean(seed["share"] > 0 for seed in seeds)
    record: dict[str, Any] = {"setting": vars(setting), "joined": joined, "methods": {}}
    record |= {name: seeds[0][name] for name in ("width", "width of the sum")}
    for method in (m for m in METHODS if all(m in seed for seed in seeds)):
        own = [np.array(seed[method])[:, 0] for seed in seeds]
        gains = [a - np.array(seed["alone"])[:, 0] for a, seed in zip(own, seeds, strict=True)]
        means = [float(g.mean()) for g in gains]
        record["methods"][method] = {
            "own": float(np.mean([a.mean() for a in own])),
            "uniform": float(np.mean([np.array(seed[method])[:, 1].mean() for seed in seeds])),
            "gain": statistics.fmean(means),
            "error": statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else None,
            "lose_a_point": float(np.mean(np.concatenate(gains) < -0.01)),
        }
    return record


def table(found: Mapping[str, Any]) -> str:
    """One setting as lines of text."""
    lines = ["", ", ".join(f"{k} {v}" for k, v in found["setting"].items())]
    lines.append(
        f"joins in {found['joined']:.0%} of seeds; d = {found['width']}, "
        f"{found['width of the sum']} in a secure sum"
    )
    lines.append(f"{'':20}{'own':>7}{'uniform':>9}{'gain':>8}{'+-':>6}{'lose':>7}")
    for method, m in found["methods"].items():
        error = "" if m["error"] is None else f"{100 * m['error']:.1f}"
        lines.append(
            f"{method:20}{m['own']:7.3f}{m['uniform']:9.3f}{100 * m['gain']:+8.1f}{error:>6}"
            f"{m['lose_a_point']:7.0%}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
