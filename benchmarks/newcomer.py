"""A newcomer's path, timed: an empty machine, the first run, own data of four kinds, and its use.

    python -m benchmarks.newcomer [--skip-install] [--json]

In an empty directory and with a new virtual environment (`pip install` of this checkout; without it
under `--skip-install`), each command as README and the how-to guides show it. The own data are two
sites' shares of scikit-learn's sets: digits as an archive and as a folder of pictures, breast
cancer as `.csv` and `.parquet`. Stops at the first command that fails.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits

ROOT = Path(__file__).resolve().parents[1]
BUDGET = "--epsilon 10 --delta 1e-4"
RUN = "--epsilon 4 --preset demo"


def main() -> None:
    """Walk the path, and print a line a step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-install", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for step, line in (*_install(folder, arguments.skip_install), *_path(folder)):
            began = time.perf_counter()
            words = shlex.split(line)
            if words[0] == "panas" and arguments.skip_install:
                words[:1] = [sys.executable, "-m", "panas_cli"]
            else:
                words[0] = str(folder / "venv" / "bin" / words[0]) if step != "venv" else words[0]
            where = {**os.environ, "PYTHONPATH": str(ROOT)} if arguments.skip_install else None
            done = subprocess.run(words, cwd=folder, env=where, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{line}: exit code {done.returncode}\n{done.stderr[-3000:]}")
            seconds[line] = time.perf_counter() - began
            if not arguments.json:
                print(f"{seconds[line]:7.1f} s  {line}", flush=True)
    total = sum(seconds.values())
    if arguments.json:
        print(json.dumps({"seconds": seconds, "total": total}))
    else:
        print(f"{total:7.1f} s  in all")


def _install(folder: Path, skip: bool) -> Iterator[tuple[str, str]]:
    if not skip:
        yield "venv", f"{sys.executable} -m venv {folder / 'venv'}"
        yield "install", f"pip install --quiet {shlex.quote(f'{ROOT}[export,parquet]')}"


def _path(folder: Path) -> Iterator[tuple[str, str]]:
    _write_data(folder)
    yield "first run", "panas run --out runs/first"
    yield "report", "panas report runs/first"
    yield "predict", "panas predict runs/first --site client-000 --input new.npz"
    yield "export", "panas export runs/first --site client-000 --format onnx"
    kinds = {
        "archive": ("{}.npz", "--public-data open.npz"),
        "pictures": ("{}-pictures", "--public-data open.npz"),
        "csv": ("{}.csv --label class", "--public-data open.csv --label class"),
        "parquet": ("{}.parquet --label class", "--public-data open.csv --label class"),
    }
    for kind, (data, public) in kinds.items():
        sites = [f"{kind}-{site}" for site in ("north", "east")]
        for site in sites:
            own = data.format(site.rpartition("-")[2])
            yield "site", f"panas site init {site} --data {own} {BUDGET}"
        run = f"runs/{kind}"
        yield "run", f"panas run --sites {' '.join(sites)} {public} {RUN} --out {run}"
        yield "audit", f"panas audit {run}"
        yield "report", f"panas report {run}"
        new = "new.npz" if kind in ("archive", "pictures") else "new.csv"
        yield "predict", f"panas predict {run} --site {sites[0]} --input {new}"
        yield "export", f"panas export {run} --site {sites[0]} --format onnx"


def _write_data(folder: Path) -> None:
    """Shares of digits and of breast cancer: 400 and 200 samples a site, and 300 and 100 public."""
    rng = np.random.default_rng(0)
    images, y = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    order = rng.permutation(len(y))
    shares = dict(
        zip(("north", "east", "open", "new"), np.split(order, [400, 800, 1100]), strict=True)
    )
    for name, rows in shares.items():
        if name == "new":
            np.savez(folder / "new.npz", x=images[rows[:20]])
            continue
        np.savez(folder / f"{name}.npz", train_images=images[rows], train_labels=y[rows])
        for k in rows if name != "open" else ():
            picture = folder / f"{name}-pictures" / str(y[k]) / f"{k}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[k]).save(picture)
    _write_tables(folder, rng)


def _write_tables(folder: Path, rng: np.random.Generator) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = load_breast_cancer()
    order = rng.permutation(len(table.target))
    shares = np.split(order, [200, 400, 500])
    for name, rows in zip(("north", "east", "open", "new"), shares, strict=True):
        columns = {c: table.data[rows, k] for k, c in enumerate(table.feature_names)}
        if name != "new":
            columns["class"] = table.target_names[table.target[rows]]
        content = pa.table(columns)
        pa.csv.write_csv(content, folder / f"{name}.csv")
        pa.parquet.write_table(content, folder / f"{name}.parquet")


if __name__ == "__main__":
    main()
