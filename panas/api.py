"""`panas.search`: one data set in, its own architecture and trained network out.

It runs in the calling process and tells its progress to a callback. With `out` it can be
interrupted or killed at any moment: the same call again goes on where it was. A federation's
clients search by `panas.evolution.site_search`; DP-SGD settings are `panas.tuned_api`.

Source: DPFNAS, algorithm 1, first half.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from panas.architecture.blocks import BlockType
from panas.architecture.cost import Cost, cost
from panas.architecture.genome import Genome
from panas.architecture.head import Head
from panas.architecture.latency import limited
from panas.architecture.limits import Constraints
from panas.architecture.network import Bottom, NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.arrays import as_samples
from panas.data.samples import Samples
from panas.data.splits import split
from panas.evolution.fitness import TrainingFitness
from panas.evolution.genetic import evolve
from panas.evolution.halving import Fitness
from panas.evolution.records import EvolutionConfig, EvolutionResult, GenerationRecord
from panas.evolution.site_search import Size, prior_of, size_of
from panas.plots.network import drawing
from panas.plots.search import history
from panas.runtime.errors import BadInput
from panas.runtime.journal import open_journal
from panas.runtime.seeds import one_thread, stream
from panas.runtime.store import write_bytes, write_json
from panas.training.checkpoint import save_network
from panas.training.evaluate import accuracy
from panas.training.sgd import SHORT, OptimizerConfig


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        genome: the best.
        bottom: its trained bottom.
        head: its head.
        fitness: its validation accuracy, by which it was chosen.
        accuracy: its accuracy on test samples that chose nothing.
        cost: of the network.
        result: the whole search: every generation, every candidate, the Pareto front.

    """

    genome: Genome
    bottom: Bottom
    head: Head
    fitness: float
    accuracy: float
    cost: Cost
    result: EvolutionResult

    @property
    def network(self) -> nn.Sequential:
        """Bottom and head as one module: images in [-1, 1] to logits."""
        return nn.Sequential(self.bottom, self.head)


def search(
    dataset: Any,
    *,
    out: str | Path | None = None,
    space: SearchSpace | None = None,
    blocks: tuple[BlockType, ...] = (),
    max_parameters: int | None = None,
    max_macs: int | None = None,
    max_bytes: int | None = None,
    max_latency_ms: float | None = None,
    size: Size | None = None,
    fitness: Fitness | None = None,
    config: EvolutionConfig | None = None,
    optimizer: OptimizerConfig = SHORT,
    width: int = 64,
    seed: int = 0,
    workers: int = 1,
    device: str = "cpu",
    progress: Callable[[GenerationRecord], None] | None = None,
) -> SearchResult:
    """Search an architecture for a data set, and train the best one.

    Five sevenths of the samples train, one seventh validates, one seventh tests.

    Args:
        dataset: what `panas.data.arrays.as_samples` takes: a torch data set, or a pair of arrays.
        out: folder for the log, the winner and its pictures; a search that is there is gone on
            with, and one on other data or settings is refused. None keeps nothing.
        space: where to search; None: up to 6 blocks of up to 64 channels.
        blocks: blocks of one's own that may be used besides; see
            `panas.architecture.blocks.BlockType`.
        max_parameters: hard limit on the network, as the next three.
        max_macs: multiply-accumulates of one image.
        max_bytes: of the weights.
        max_latency_ms: of one image on one thread, by a table that is measured first.
        size: makes small a second objective; `Found.result.front` then holds the trade-off.
        fitness: scores a genome in place of validation accuracy, in [0, 1].
        config: of the genetic search; None: population 10, 20 generations.
        optimizer: the training that gives a genome its fitness, and the winner its weights.
        width: d, width of the representation, at least the number of classes.
        seed: of data split, search and weights.
        workers: processes that train candidates; the outcome does not depend on it. More than
            one needs the usual `if __name__ == "__main__":`.
        device: "cpu" or "cuda".
        progress: called with the record of every generation.

    Raises:
        BadInput: for data, settings or a folder that do not fit.

    Privacy: none. Whoever sees the genome, the network or the folder learns of the samples; use
    public ones, or keep all of it where the data are.

    """
    samples = as_samples(dataset)
    folder = None if out is None else Path(out)
    spec = NetworkSpec(shape=samples.shape, classes=samples.classes, width=width)
    space = space or SearchSpace(shape=samples.shape, max_blocks=6, widths=(16, 32, 64))
    if space.shape != spec.shape:
        raise BadInput(
            f"expected a space for images of {spec.shape} as the data's, got {space.shape}"
        )
    space = limited(
        replace(space, blocks=(*space.blocks, *blocks)),
        spec,
        Constraints(
            parameters=max_parameters,
            macs=max_macs,
            bytes=max_bytes,
            latency_ms=max_latency_ms,
        ),
        table=folder / "latency.json" if folder else None,
    )
    config = config or EvolutionConfig()
    s = split(samples.y, search=0.0, validation=1 / 7, test=1 / 7, rng=stream(seed, "split"))
    train, validation, test = (samples.take(part) for part in (s.train, s.validation, s.test))
    training = TrainingFitness(train, validation, spec, optimizer, seed, 0, device)
    header = {
        "search": "architecture",
        "data": digest(samples),
        "seed": seed,
        "width": width,
        "space": repr(space),
        "config": repr(config),
        "training": repr(optimizer),
        "fitness": "accuracy" if fitness is None else repr(getattr(fitness, "__name__", fitness)),
        "size": size,
    }
    with open_journal(folder / "log.jsonl" if folder else None, header) as journal:
        result = evolve(
            space,
            fitness or training,
            config=config,
            rng=stream(seed, "client", 0, "search"),
            on_generation=progress,
            workers=workers,
            size=size_of(spec, size),
            prior=prior_of(spec.shape),
            journal=journal,
        )
        with one_thread():  # as when it was scored
            bottom, head = training.trained(result.best)
        price = cost(result.best, shape=samples.shape, width=width, classes=samples.classes)
        right = accuracy(bottom, head, test)
        found = SearchResult(result.best, bottom, head, result.fitness, right, price, result)
        if folder:
            _save(folder, found, spec, size)
    return found


def _save(folder: Path, found: SearchResult, spec: NetworkSpec, size: Size | None) -> None:
    b, result = spec, found.result
    pictures = {
        "history.png": history(
            result.logbook,
            [asdict(e) for e in result.history],
            [(str(g), *rest) for g, *rest in result.front] if size else None,
            size=size or "parameters",
        ),
        "network.png": drawing(
            found.genome,
            shape=b.shape,
            width=b.width,
            classes=b.classes,
            norm=b.norm,
            fitness=found.fitness,
        ),
    }
    for name, picture in pictures.items():
        write_bytes(folder / name, picture)
    save_network(
        folder / "network.safetensors",
        found.bottom,
        found.head,
        genome=found.genome,
        spec=spec,
        notes={"fitness": found.fitness, "accuracy": found.accuracy},
    )
    record = {
        "genome": str(found.genome),
        "fitness": found.fitness,
        "accuracy": found.accuracy,
        "cost": asdict(found.cost),
        "evaluations": result.evaluations,
        "passes": result.passes,
        "front": [[str(genome), *rest] for genome, *rest in result.front],
    }
    write_json(folder / "best.json", record)


def digest(samples: Samples) -> str:
    """A fingerprint of samples, by which a log knows whose it is."""
    content = hashlib.sha256(samples.x.contiguous().numpy().tobytes())
    content.update(samples.y.numpy().tobytes())
    return content.hexdigest()
