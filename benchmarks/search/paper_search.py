"""The paper's search for one site: what it takes plain, and what it takes here.

    python -m benchmarks.paper_search --data-root DIR --out DIR [--search plain|ours] [--epochs 5]

Population 10, 20 generations, 500 / 100 / 100 samples of CIFAR-10 to train, validate and test, the
whole space (3 to 10 blocks of 16 to 256 channels), SGD at 0.01 with batches of 64 (DPFNAS, section
IV; the number of epochs is not stated there, 5 to 10 are usual). With `--training short` candidates
train as this project's own presets do instead. The search can be stopped and gone on with; the
seconds and the peak of memory are those of this process and its workers, since it began.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.load import DataSettings, load
from panas.evolution.fitness import TrainingFitness
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionConfig, GenerationRecord
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal
from panas.runtime.seeds import stream
from panas.training.evaluate import accuracy
from panas.training.sgd import SHORT, OptimizerConfig

TRAIN, VALIDATION, TEST = 500, 100, 100


def main() -> None:
    """Search, and print what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data-root", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--out", type=Path, required=True, help="where the log goes")
    parser.add_argument("--search", choices=["plain", "ours"], default="ours")
    parser.add_argument("--training", choices=["paper", "short"], default="paper")
    parser.add_argument("--epochs", type=int, default=5, help="of the paper's training")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    source = load(
        DataSettings(
            dataset="cifar10",
            data_root=str(a.data_root),
            public_fraction=0.1,
            public_limit=100,
            limit=TRAIN + VALIDATION + TEST,
        ),
        stream(a.seed, "data"),
    )
    order = stream(a.seed, "split").permutation(len(source.private))
    train, validation, test = (
        source.private.take(part)
        for part in (order[:TRAIN], order[TRAIN : TRAIN + VALIDATION], order[-TEST:])
    )
    paper = a.training == "paper"
    spec = NetworkSpec(
        shape=train.shape,
        classes=train.classes,
        width=500 if paper else 64,
        unit=not paper,
        head_init="random" if paper else "etf",
    )
    optimizer = (
        OptimizerConfig(learning_rate=0.01, batch_size=64, epochs=a.epochs) if paper else SHORT
    )
    fitness = TrainingFitness(train, validation, spec, optimizer, a.seed, 0)
    config = EvolutionConfig.paper() if a.search == "plain" else EvolutionConfig()
    peak, began = Peak(), time.perf_counter()

    def progress(record: GenerationRecord) -> None:
        seconds = time.perf_counter() - began
        text = {
            k: getattr(record, k) for k in ("generation", "best", "passes", "dropped", "cached")
        }
        sys.stderr.write(f"[{seconds:7.0f} s, {peak.gibibytes:.2f} GiB] {text}\n")

    header = {"search": a.search, "training": repr(optimizer), "seed": a.seed}
    with peak, open_journal(a.out / "log.jsonl", header) as journal:
        result = evolve(
            SearchProblem(SearchSpace(shape=train.shape), fitness, prior=prior_of(spec.shape)),
            config=config,
            rng=stream(a.seed, "search"),
            execution=Execution(workers=a.workers, journal=journal, on_progress=progress),
        )
    seconds = time.perf_counter() - began
    results = {
        "search": a.search,
        "seconds": seconds,
        "passes": result.passes,
        "trainings": result.passes / (TRAIN * optimizer.epochs),
        "genome": str(result.best),
        "validation": result.fitness,
        "test": accuracy(*fitness.trained(result.best), test),
        "peak_gibibytes": peak.gibibytes,
    }
    sys.stdout.write(json.dumps(results) + "\n")


class Peak:
    """The largest proportional set size of this process and all below it, looked at each second."""

    def __init__(self) -> None:
        self.gibibytes = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self.gibibytes = max(self.gibibytes, _memory(os.getpid()) / 2**20)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _memory(pid: int) -> int:
    """Kibibytes of a process and its children; 0 for one that has just ended."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
        own = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        tasks = [task / "children" for task in (folder / "task").iterdir()]
        children = [int(child) for task in tasks for child in task.read_text().split()]
    except OSError:
        return 0
    return own + sum(_memory(child) for child in children)


if __name__ == "__main__":
    main()
