"""What do attacks reconstruct from each release? Table IV of DPFNAS in form, and what is sound.

    python -m benchmarks.attacks [--json] [--data-root DIR] [--cifar-root DIR] [--plot FILE]
        [--workers 2]

On Fashion-MNIST below `--data-root`, and on CIFAR-10 where it lies there or below `--cifar-root`
(a folder of torchvision's, extracted); without either, on the digits, which are embedded. The rows
are described in `benchmarks.attack_table`. Feature-space hijacking has a benchmark of its own
(`benchmarks.attack_fsha`), and so have canaries and membership (`benchmarks.attack_membership`).

What is finished is kept in the folder `--work` and not run again. It is known by the arguments,
the data and the versions, not by the code: remove the folder after a change of code.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.attack_table import (
    BATCH,
    CLIP,
    DECODER_EPOCHS,
    EPOCHS,
    GENOME,
    PRIVATE,
    PUBLIC,
    ROWS,
    WIDTH,
    cell,
    source_of,
    with_ceiling,
)
from benchmarks.kept import kept
from panas.plots.style import png
from panas.runtime.errors import BadInput

CLOSE = 0.1
"""How near the ceiling an attack must come to be said to reach it."""


def found_sets(data_root: str | None, cifar_root: str | None) -> dict[str, str]:
    """The data sets that are there, and their roots; the digits if none is."""
    wanted = {"fashion-mnist": data_root, "cifar10": cifar_root or data_root}
    results = {}
    for name, root in wanted.items():
        if root is None:
            continue
        try:
            source_of(name, root)
        except BadInput as e:
            print(f"{name} is left out: {e}", file=sys.stderr)
            continue
        results[name] = root
    return results or {"digits": ""}


def table(sets: dict[str, str], work: Path, workers: int) -> list[dict[str, Any]]:
    """All rows of all data sets."""
    facts = {
        "genome": str(GENOME),
        "width": WIDTH,
        "samples": [PRIVATE, PUBLIC],
        "training": [EPOCHS, BATCH, CLIP],
        "decoder": DECODER_EPOCHS,
    }
    rows: list[dict[str, Any]] = []
    for dataset, root in sets.items():
        tasks = [(dataset, *what, "inf" if math.isinf(e) else e) for *what, e in ROWS]
        facts |= {"data": str(Path(root).resolve()) if root else ""}
        name = f"attacks-{dataset}"
        rows += kept(work, name, facts, cell, root, tasks, workers=workers, shown=len(tasks))
    return with_ceiling(rows)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether the rows show what they are meant to."""
    paper = [r for r in rows if (r["made_by"], r["release"]) == ("network", "raw_rows")]
    sound = [r for r in rows if r["release"] == "moments" and r["epsilon"] == 8.0]
    return {
        "table4": [{k: v for k, v in r.items() if k != "shown"} for r in rows],
        "paper_release_reaches_ceiling": all(
            r["decoder_r2"] >= r["ceiling_r2"] - CLOSE for r in paper
        ),
        "moments_at_8_beaten": [
            f"{r['dataset']}, {r['made_by']}"
            for r in sound
            if r["verdict"] != "no better than blind"
        ],
    }


def report(rows: list[dict[str, Any]]) -> str:
    """The table as text."""
    head = f"{'data':14s}{'made by':9s}{'release':12s}{'epsilon':>9s}  {'attack':18s}"
    lines = [f"{head}{'R^2':>6s}{'ceiling':>9s}{'class':>7s}{'MSE':>7s}{'of 10':>7s}  verdict"]
    lines += [
        f"{r['dataset']:14s}{r['made_by']:9s}{r['release']:12s}{r['epsilon']!s:>9s}  "
        f"{r['attack']:18s}{r['r2']:6.3f}{r['ceiling_r2']:9.3f}{r['class_mean_r2']:7.3f}"
        f"{r['mse']:7.3f}{r['reidentified']:7.2f}  {r['verdict']}"
        for r in rows
    ]
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Originals over the best reconstruction of each row, one data set beside the other."""
    sets = list(dict.fromkeys(r["dataset"] for r in rows))

    def image(values: list[Any]) -> Any:
        x = torch.tensor(values).permute(1, 2, 0) / 255
        return (x if x.shape[2] == 3 else x[..., 0]).numpy()

    def onto(figure: Any) -> None:
        parts = figure.subfigures(1, len(sets), squeeze=False)[0]
        for part, name in zip(parts, sets, strict=True):
            mine = [r for r in rows if r["dataset"] == name]
            lines = [("original", mine[0]["shown"]["original"])]
            lines += [
                (
                    f"{r['release']} of the {r['made_by']} {r['epsilon']}\n"
                    f"R^2 {r['r2']:.2f}, {r['verdict']}",
                    r["shown"]["best"],
                )
                for r in mine
            ]
            axes = part.subplots(len(lines), len(lines[0][1]), squeeze=False)
            for (label, images), row in zip(lines, axes, strict=True):
                for one, at in zip(images, row, strict=True):
                    at.imshow(image(one), cmap="gray", vmin=0, vmax=1)
                    at.set(xticks=[], yticks=[])
                    at.spines[:].set_visible(False)
                row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=7)
            part.suptitle(name)

    inches = (6.2 * len(sets), 0.6 * (1 + len(ROWS)) + 0.5)
    file.write_bytes(png(onto, inches))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", help="folder of FashionMNIST")
    parser.add_argument("--cifar-root", help="folder of cifar-10-batches-py, if another")
    parser.add_argument("--work", type=Path, default=Path("build/attacks"), help="keeps all")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args(arguments)
    rows = table(found_sets(a.data_root, a.cifar_root), a.work, a.workers)
    record = summary(rows)
    if a.plot:
        draw(rows, a.plot)
    print(json.dumps(record) if a.json else report(rows))


if __name__ == "__main__":
    main()
