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

Source of who becomes a parent and who goes on: DPFNAS, section III-A2 (tournament, roulette); Deb
et al. 2002 (NSGA-II).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from deap import base, tools
from jaxtyping import Float

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.operators import crossover, mutate
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import Fitness, ResumableFitness
from panas.evolution.halving import Evaluator, Task, by_map, early, in_pool
from panas.evolution.records import Evaluation, EvolutionConfig, GenomeScore, History
from panas.runtime.pool import Pool

Values = Float[np.ndarray, " n"]


class Accuracy(base.Fitness):
    """DEAP's fitness, to be maximised."""

    weights = (1.0,)


class AccuracyAndSize(base.Fitness):
    """DEAP's fitness of two objectives: accurate, and small."""

    weights = (1.0, -1.0)


class Individual:
    """A candidate, at its place in the history, as DEAP compares it.

    Args:
        index: its place, from 0.
        evaluation: accuracy and size; a failure counts as infinitely large.
        two: whether size counts, too.
    """

    def __init__(self, index: int, evaluation: Evaluation, two: bool) -> None:
        self.index = index
        self.evaluation = evaluation
        # A failure must not be kept for being small.
        size = math.inf if evaluation.failed else evaluation.size
        self.fitness: base.Fitness = (
            AccuracyAndSize((evaluation.fitness, size)) if two else Accuracy((evaluation.fitness,))
        )

    @property
    def genome(self) -> Genome:
        """Its architecture."""
        return self.evaluation.genome


def tournament_parents(
    population: Sequence[Individual], k: int, rng: np.random.Generator
) -> list[Individual]:
    """The winners of `k` binary tournaments, each between two different individuals.

    Args:
        population: at least one, compared by accuracy, or by NSGA-II's front and crowding.
        k: how many to draw; the same one may win again.
        rng: draws the pairs.
    """
    values = worth(tuple(population))
    return [population[tournament(values, rng) if len(values) > 1 else 0] for _ in range(k)]


def roulette_survivors(
    pool: Sequence[Individual], k: int, rng: np.random.Generator
) -> list[Individual]:
    """Some of the pool by roulette, the elite among them: the paper's selection.

    Args:
        pool: parents and offspring.
        k: how many stay, 1 to the size of the pool.
        rng: spins the wheel.
    """
    return [pool[i] for i in survivors(accuracies(pool), k, rng)]


def fittest(pool: Sequence[Individual], k: int, history: History) -> list[Individual]:
    """The best by `History.ranked`.

    Args:
        pool: parents and offspring.
        k: how many stay.
        history: of the search, with all of the pool; its prior decides ties.
    """
    of = {individual.index: individual for individual in pool}
    return [of[i] for i in history.ranked((i.index for i in pool), ties=True)[:k]]


def tournament(values: Values, rng: np.random.Generator) -> int:
    """Draw two different individuals; the index of the better one (on a tie, of either)."""
    i, j = rng.choice(len(values), size=2, replace=False)
    return int(i if values[i] >= values[j] else j)


def roulette(values: Values, size: int, rng: np.random.Generator) -> list[int]:
    """Draw indices without replacement in proportion to their values; uniformly if all are 0.

    Args:
        values: one each, 0 or more.
        size: how many to draw, at most as many as there are.
        rng: spins the wheel.
    """
    left = list(range(len(values)))
    chosen: list[int] = []
    for _ in range(size):
        weights = values[left]
        total = weights.sum()
        k = int(rng.choice(len(left), p=weights / total if total > 0 else None))
        chosen.append(left.pop(k))
    return chosen


def survivors(values: Values, size: int, rng: np.random.Generator) -> list[int]:
    """Draw by roulette; if nobody with the highest value was drawn, it replaces the worst.

    Args:
        values: one each, 0 or more.
        size: how many to draw, 1 to as many as there are.
        rng: spins the wheel.
    """
    chosen = roulette(values, size, rng)
    best = int(np.argmax(values))
    if values[chosen].max() < values[best]:
        chosen[int(np.argmin(values[chosen]))] = best
    return chosen


@lru_cache(maxsize=1)  # a generation's tournaments are all of one population
def worth(population: tuple[Individual, ...]) -> Values:
    """What a tournament compares: accuracy, or NSGA-II's front and crowding distance."""
    if isinstance(population[0].fitness, Accuracy):
        return accuracies(population)
    ranks: dict[int, tuple[int, float]] = {}
    for front, members in enumerate(tools.sortNondominated(population, len(population))):
        tools.emo.assignCrowdingDist(members)
        for individual in members:
            ranks[individual.index] = (-front, individual.fitness.crowding_dist)
    order = sorted(set(ranks.values()))
    return np.array([float(order.index(ranks[i.index])) for i in population])


def accuracies(individuals: Sequence[Individual]) -> Values:
    """Accuracies; a dropped one counts less than the least of those trained to the end."""
    evaluations = [individual.evaluation for individual in individuals]
    trained = [e.fitness for e in evaluations if e.trained]
    ceiling = np.nextafter(min(trained), 0.0) if trained else 1.0
    return np.array([min(e.fitness, ceiling) if e.dropped else e.fitness for e in evaluations])


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
    plain: Genome | None = None
    """Of the space: stands in the first population, beside the random ones."""


def standard_toolbox(
    problem: SearchProblem,
    config: EvolutionConfig,
    rng: np.random.Generator,
    history: History,
    pool: Pool[Fitness],
    on_task: Callable[[Task], None] = lambda _: None,
) -> base.Toolbox:
    """The toolbox as it comes; replace an operator by registering another one of its name.

    Args:
        problem: space, fitness, and size where small is an objective.
        config: probabilities, survival and rungs; a fitness that cannot resume has no rungs.
        rng: of selection, crossover and mutation.
        history: of the search; its prior decides between equals.
        pool: evaluates; its context is the problem's fitness.
        on_task: called with each job that is done.
    """
    toolbox = base.Toolbox()
    toolbox.register("select_parents", tournament_parents, rng=rng)
    toolbox.register("mate", crossover, problem.space, rng=rng)
    toolbox.register("mutate", mutate, problem.space, rng=rng)
    rules = config if isinstance(problem.fitness, ResumableFitness) else replace(config, rungs=())
    beside = partial(early, pool, problem.fitness)
    evaluator = Evaluator(by_map(toolbox, problem.fitness), rules, problem.size, beside)
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
