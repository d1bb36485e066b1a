"""One client's search for its architecture (DPFNAS, algorithm 1, first half).

What the search looks at decides what it costs: `panas.data.search_split`. `search_without_data`
looks at noise only and costs nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch

from panas.architecture.blocks import Shape
from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.samples import concat
from panas.data.search_split import SearchData
from panas.evolution.fitness import DataFreeFitness, TrainingFitness
from panas.evolution.genetic import evolve
from panas.evolution.records import (
    EvolutionConfig,
    EvolutionResult,
    GenerationRecord,
    GenomeScore,
    ZeroCostScore,
)
from panas.evolution.surrogate import capacity
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal
from panas.runtime.seeds import stream
from panas.training.sgd import OptimizerConfig

Algorithm = Literal["genetic", "random"]
SIZES = ("parameters", "macs", "bytes")
Size = Literal["parameters", "macs", "bytes"]


def search_architecture(
    data: SearchData,
    *,
    spec: NetworkSpec,
    space: SearchSpace,
    config: EvolutionConfig,
    optimizer: OptimizerConfig,
    seed: int,
    client: int,
    device: torch.device,
    algorithm: Algorithm = "genetic",
    size: GenomeScore | None = None,
    workers: int = 1,
    journal: Journal | None = None,
    on_generation: Callable[[GenerationRecord], None] | None = None,
) -> EvolutionResult:
    """Search a client's architecture; fitness is validation accuracy after a short training."""
    train = concat([data.warm, data.train]) if len(data.warm) else data.train
    fitness = TrainingFitness(train, data.validation, spec, optimizer, seed, client, str(device))
    return evolve(
        SearchProblem(space, fitness, size, prior_of(spec.shape)),
        config=_of(algorithm, config),
        rng=stream(seed, "client", client, "search"),
        execution=Execution(workers=workers, journal=journal, on_progress=on_generation),
    )


def search_without_data(
    *,
    spec: NetworkSpec,
    space: SearchSpace,
    config: EvolutionConfig,
    seed: int,
    client: int,
    algorithm: Algorithm = "genetic",
    size: GenomeScore | None = None,
    workers: int = 1,
    journal: Journal | None = None,
    on_generation: Callable[[GenerationRecord], None] | None = None,
) -> EvolutionResult:
    """Search a client's architecture by `zero_cost.score`, which looks at noise alone.

    Privacy: reads no sample of anybody's; epsilon 0. A genome scores the same for all clients.
    """
    fitness = DataFreeFitness(spec, seed)
    return evolve(
        SearchProblem(space, fitness, size),
        config=_of(algorithm, config),
        rng=stream(seed, "client", client, "search"),
        execution=Execution(workers=workers, journal=journal, on_progress=on_generation),
    )


def prior_of(shape: Shape) -> ZeroCostScore:
    """The score that seeds a search and decides between equals: it trains nothing."""
    return ZeroCostScore(lambda genome: capacity(genome, shape))


def _of(algorithm: Algorithm, config: EvolutionConfig) -> EvolutionConfig:
    """The genetic search, or the best of as many random genomes as it would evaluate at most."""
    if algorithm == "genetic":
        return config
    everyone = config.first + config.generations * config.children
    return replace(config, population=everyone, initial=None, generations=0, rungs=(), seeding=1)


def size_of(spec: NetworkSpec, size: Size | None) -> GenomeScore | None:
    """How large a genome's network is, as a second objective."""
    if size is None:
        return None
    if size not in SIZES:
        raise BadInput(f"expected size as one of {', '.join(SIZES)}, got {size!r}")

    def measure(genome: Genome) -> float:
        b = spec
        price = cost(genome, shape=b.shape, width=b.width, classes=b.classes, norm=b.norm)
        return float(getattr(price, size))

    return measure
