"""A search in a small space, for the tests."""

from collections.abc import Callable
from typing import Any

import numpy as np
from deap import base
from toy_fitness import RUNGS, Curves, unit

from panas.architecture.blocks import ConvBlock
from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.evolution.genetic import evolve
from panas.evolution.records import Evaluation, EvolutionConfig, EvolutionResult, GenomeScore
from panas.evolution.toolbox import SearchProblem
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal

SMALL = SearchSpace(shape=(1, 8, 8), min_blocks=1, max_blocks=4, widths=(4, 8))


TINY = SearchSpace(shape=(1, 4, 4), min_blocks=1, max_blocks=2, widths=(4,), pools=("max",))
"""Of ten genomes: c, cc, pc and cp, with two kernels."""


CONFIG = EvolutionConfig(population=6, generations=5, rungs=RUNGS, screening=4)


def by_size(genome: Genome) -> float:
    """A size that has ties."""
    return float(sum(b.out_channels for b in genome.blocks if isinstance(b, ConvBlock)))


def prior_score(genome: Genome) -> float:
    return unit(f"prior of {genome}")


def run(
    fitness: Any = None,
    seed: int = 0,
    space: SearchSpace = SMALL,
    config: EvolutionConfig = CONFIG,
    journal: Journal | None = None,
    size: GenomeScore | None = None,
    prior: GenomeScore | None = None,
    *,
    rng: np.random.Generator | None = None,
    customise: Callable[[base.Toolbox], None] | None = None,
    **execution: Any,
) -> EvolutionResult:
    return evolve(
        SearchProblem(space, fitness or Curves(), size, prior),
        config=config,
        rng=rng or np.random.default_rng(seed),
        execution=Execution(journal=journal, **execution),
        customise=customise,
    )


def populations(journal: Journal) -> list[list[int]]:
    return [line["population"] for line in journal.lines]


def evaluation(fitness: float, fate: str = "trained", size: float = 1.0) -> Evaluation:
    failed, dropped = fate == "failed", fate == "dropped"
    value = 0.0 if failed else fitness
    return Evaluation(Genome.parse("c4k3"), value, 0, failed=failed, dropped=dropped, size=size)
