"""DEAP's toolbox of the genetic search: every entry can be replaced.

| entry of the toolbox | called as | by default |
|---|---|---|
| `select_parents` | (population, k) -> individuals | binary tournaments |
| `mate` | (genome, genome) -> (genome, genome) | `operators.crossover`, with p_c |
| `mutate` | genome -> genome | `operators.mutate`, with p_m |
| `evaluate` | (generation, genomes) -> evaluations | successive halving: `halving.Evaluator` |
| `remember` | evaluation | tells `evaluate` of one from before an interruption |
| `map` | (function, tasks) -> outcomes, in order | worker processes |
| `select` | (parents and offspring, k) -> individuals | the fittest, a roulette, or NSGA-II |

`mate` and `mutate` return new genomes. What draws takes a numpy generator: DEAP's own operators
draw from Python's global `random`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from deap import base, tools

from panas.architecture.network import NetworkSpec
from panas.architecture.operators import crossover, mutate
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import Fitness, ResumableFitness
from panas.evolution.halving import Evaluator, Task, by_map, in_pool
from panas.evolution.records import EvolutionConfig, GenomeScore, History
from panas.evolution.selection import fittest, roulette_survivors, tournament_parents
from panas.runtime.pool import Pool


@dataclass(frozen=True)
class SearchProblem:
    """What is searched for, and where."""

    space: SearchSpace
    fitness: Fitness
    """Accuracy of a genome, in [0, 1]; one that raises, is not finite or takes too long is 0."""
    size: GenomeScore | None = None
    """Of a genome's network; if given, small is the second objective."""
    prior: GenomeScore | None = None
    """For `EvolutionConfig.seeding`, and between equals."""


def standard_toolbox(
    problem: SearchProblem,
    config: EvolutionConfig,
    rng: np.random.Generator,
    history: History,
    pool: Pool[Fitness],
    on_task: Callable[[Task], None] = lambda _: None,
) -> base.Toolbox:
    """The toolbox as it comes; `pool`, whose context is the problem's fitness, evaluates."""
    toolbox = base.Toolbox()
    toolbox.register("select_parents", tournament_parents, rng=rng)
    toolbox.register("mate", crossover, problem.space, rng=rng)
    toolbox.register("mutate", mutate, problem.space, rng=rng)
    rules = config if isinstance(problem.fitness, ResumableFitness) else replace(config, rungs=())
    evaluator = Evaluator(by_map(toolbox, problem.fitness), rules, problem.size)
    toolbox.register("evaluate", evaluator.evaluate)
    toolbox.register("remember", evaluator.remember)
    spec = NetworkSpec(shape=problem.space.shape, classes=1, width=1)
    toolbox.register("map", in_pool, pool, spec, on_task)
    if problem.size is not None:
        toolbox.register("select", tools.selNSGA2)
    elif config.survival == "roulette":
        toolbox.register("select", roulette_survivors, rng=rng)
    else:
        toolbox.register("select", fittest, history=history)
    return toolbox
