"""Train every genome of a small search space and store what came of it: `benchmarks/tables/`.

    python -m benchmarks.make_tables [--dataset digits|fashion-mnist] [--data-root DIR]
        [--seeds 3] [--workers 2] [--work build/tables]

A table lets search algorithms be compared in seconds (`benchmarks.tabular` reads it). A genome is
trained as a search trains it: 500 samples, 8 epochs, the sound preset's network. Fashion-MNIST's
images are averaged 2 x 2, down to 14 x 14. A seed draws its own samples and its own weights.

Work is kept line by line in the folder `--work`, so that a run that was killed goes on.
"""

import argparse
import json
import multiprocessing
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.data_free import PROXIES
from panas.architecture.blocks import Block, PoolBlock
from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.load import DataSettings, load
from panas.data.samples import Samples
from panas.data.splits import stratified
from panas.runtime.seeds import stream, torch_generator
from panas.training.evaluate import accuracy
from panas.training.sgd import OptimizerConfig, Trainer

TABLES = Path(__file__).parents[1] / "tables"
DATASETS = ("digits", "fashion-mnist")
HOW = OptimizerConfig(
    optimiser="adam", learning_rate=0.005, decay="cosine", batch_size=32, epochs=8
)
EPOCHS = range(1, HOW.epochs + 1)
TRAIN, VALIDATION, TEST = 500, 500, 2000
WIDTH = 64
"""Width of the representation."""


@dataclass(frozen=True)
class Parts:
    """The disjoint samples of one data set and seed."""

    train: Samples
    validation: Samples
    test: Samples

    @property
    def spec(self) -> NetworkSpec:
        """The networks: the sound preset's, whose simplex head stays where it is."""
        return NetworkSpec(shape=self.train.shape, classes=self.train.classes, width=WIDTH)


@dataclass(frozen=True)
class Curve:
    """Right answers of one network: on validation after some epochs, on test at the end."""

    validation: list[int]
    test: int | None
    """None if training stopped before the end."""


def table_space(shape: tuple[int, int, int]) -> SearchSpace:
    """The space of the tables."""
    return SearchSpace(
        shape=shape, min_blocks=2, max_blocks=4, widths=(16, 32), kernels=(3, 5), pools=("max",)
    )


def all_genomes(space: SearchSpace) -> list[Genome]:
    """Every genome of a space, the short ones first."""
    menu: tuple[Block, ...] = (*space.convs, *(PoolBlock(kind) for kind in space.pools))
    genomes = []
    for length in range(space.min_blocks, space.max_blocks + 1):
        for blocks in product(menu, repeat=length):
            if any(not isinstance(b, PoolBlock) for b in blocks):
                genome = Genome(blocks)
                genomes += [genome] * space.allows(genome)
    return genomes


@lru_cache(maxsize=2)
def parts(dataset: str, root: str | None, seed: int) -> Parts:
    """Draw one seed's samples, by class; of digits the 797 that are left are for the test."""
    pool = load(
        DataSettings(dataset=dataset, data_root=root, public_fraction=0.0),
        stream(seed, "table", "load"),
    ).private
    rng, left, drawn = stream(seed, "table", "split"), np.arange(len(pool)), []
    for size in (TRAIN, VALIDATION, TEST):
        at = stratified(pool.y.numpy()[left], min(size, len(left)), rng)
        drawn.append(_halved(pool.take(left[at])))
        left = np.delete(left, at)
    return Parts(*drawn)


def _halved(samples: Samples) -> Samples:
    """Images of 28 x 28 as 14 x 14; others as they are."""
    if samples.shape[1:] != (28, 28):
        return samples
    x = F.avg_pool2d(samples.x.float(), 2).round().to(torch.uint8)
    return Samples(x, samples.y, samples.classes)


def train_one(
    genome: Genome, data: Parts, name: str, seed: int, epochs: Sequence[int] = EPOCHS
) -> Curve:
    """Train one genome, from weights and batches that are its own, and count what it gets right.

    It is validated after each of `epochs`, counted from 1, and stops after the last of them; what
    it is then, the full training is at that epoch too.
    """
    rng = stream(seed, "table", name, str(genome))
    generator = torch_generator(rng)
    bottom, head = data.spec.bottom(genome, generator), data.spec.head(generator)
    result: list[int] = []

    def right(samples: Samples) -> int:
        return round(accuracy(bottom, head, samples) * len(samples))

    config = replace(HOW, train_head=data.spec.head_moves)
    trainer = Trainer(bottom, head, data.train, config=config, rng=rng)
    for epoch in epochs:
        trainer.run(epoch)
        result.append(right(data.validation))
    if epochs[-1] < HOW.epochs:
        return Curve(result, None)
    return Curve(result, right(data.test))


def _curve(name: str, root: str | None, seed: int, text: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    return {
        "genome": text,
        **asdict(train_one(Genome.parse(text), parts(name, root, seed), name, seed)),
    }


def _scores(name: str, root: str | None, text: str) -> dict[str, Any]:
    """The data-free scores of one genome, on noise of one seed."""
    torch.set_num_threads(1)
    genome, spec = Genome.parse(text), parts(name, root, 0).spec
    results = {p: f(genome, spec, stream(0, "table", p, text)) for p, f in PROXIES.items()}
    return {"genome": text, **results}


def _resume(
    path: Path, texts: list[str], work: Callable[[str], dict[str, Any]], pool: Any
) -> list[dict[str, Any]]:
    """One line for each genome: those that the file holds, then those that are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    done = {r["genome"]: r for r in (json.loads(line) for line in lines if line.endswith("\n"))}
    missing, start = [t for t in texts if t not in done], time.monotonic()
    with path.open("w") as file:
        file.writelines(json.dumps(r) + "\n" for r in done.values())
        for k, record in enumerate(pool.imap(work, missing, chunksize=4), 1):
            file.write(json.dumps(record) + "\n")
            file.flush()
            done[record["genome"]] = record
            if k % 50 == 0 or k == len(missing):
                rest = (time.monotonic() - start) / k * (len(missing) - k)
                line = f"{path.stem}: {len(done)} of {len(texts)}, {rest:.0f} s left"
                print(line, file=sys.stderr, flush=True)
    return [done[t] for t in texts]


def make(name: str, root: str | None, seed: int, work: Path, out: Path, pool: Any) -> None:
    """Train all genomes for one more seed, and write the table of the seeds so far."""
    data = parts(name, root, 0)
    texts = [str(g) for g in all_genomes(table_space(data.train.shape))]
    curves = [
        _resume(work / f"{name}-seed{s}.jsonl", texts, partial(_curve, name, root, s), pool)
        for s in range(seed + 1)
    ]
    scores = _resume(work / f"{name}-scores.jsonl", texts, partial(_scores, name, root), pool)
    shape, classes = data.train.shape, data.train.classes
    spec = NetworkSpec(shape=shape, width=WIDTH, classes=classes)
    costs = [cost(Genome.parse(t), spec) for t in texts]
    facts = {
        "dataset": name,
        "shape": shape,
        "classes": classes,
        "train": len(data.train),
        "validation": len(data.validation),
        "test": len(data.test),
        "optimisation": asdict(HOW),
        "blueprint": asdict(data.spec),
        "space": _menu(table_space(shape)),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "images": "averaged 2 x 2" if name == "fashion-mnist" else "as they are",
        "remake": f"python -m benchmarks.make_tables --dataset {name} --seeds {seed + 1}",
    }
    right = np.array([[r["validation"] for r in curve] for curve in curves], np.uint16)
    out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        out / f"search-{name}.npz",
        genomes=np.array(texts),
        validation=right.swapaxes(0, 1),
        test=np.array([[r["test"] for r in curve] for curve in curves], np.uint16).T,
        parameters=np.array([c.parameters for c in costs], np.uint32),
        macs=np.array([c.macs for c in costs], np.uint32),
        proxies=np.array([[r[p] for p in PROXIES] for r in scores], np.float32),
        proxy_names=np.array(list(PROXIES)),
        metadata=np.array(json.dumps(facts)),
    )


def _menu(space: SearchSpace) -> dict[str, Any]:
    """Bounds and menus of a space, as plain JSON."""
    names = ("shape", "min_blocks", "max_blocks", "widths", "kernels", "pools")
    return {name: getattr(space, name) for name in names}


def main() -> None:
    """Parse, train, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=DATASETS, help="one of them; otherwise both")
    parser.add_argument("--data-root")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("build/tables"))
    parser.add_argument("--out", type=Path, default=TABLES)
    a = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(a.workers) as pool:
        for seed, name in product(range(a.seeds), [a.dataset] if a.dataset else DATASETS):
            make(name, a.data_root, seed, a.work, a.out, pool)


if __name__ == "__main__":
    main()
