"""The genetic search for an architecture: Algorithm 1, first half. DEAP's only home.

| paper | here |
|---|---|
| population size, generations | `EvolutionConfig.population`, `.generations` |
| p_c, p_m | `EvolutionConfig.crossover`, `.mutation` |
| parent selection | `tournament`: binary, between two different individuals |
| environmental selection | `survivors`: roulette without replacement over parents and offspring, |
| | and the elite in place of the worst if the wheel missed it |

DEAP supplies the toolbox, fitness, statistics, logbook and hall of fame. Its selection operators
draw from Python's global `random`, and `creator` writes module globals; neither is used here.

Privacy: the search releases whatever its fitness reads. If that is private data, the architecture
leaks it, and nothing in this module accounts for that.

Source: DPFNAS, section III-A2.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from deap import base, tools
from jaxtyping import Float

from panas.errors import BadInput
from panas.genome import Genome
from panas.space import SearchSpace, crossover, mutate, random_genome

Accuracies = Float[np.ndarray, " n"]


@dataclass(frozen=True, kw_only=True)
class EvolutionConfig:
    """Sizes and probabilities of the search."""

    population: int = 10
    """Individuals, at least 2; 1 is allowed with 0 generations."""
    generations: int = 20
    """Generations after the random one, at least 0."""
    crossover: float = 0.9
    """Probability p_c that a pair of parents is crossed, in [0, 1]."""
    mutation: float = 0.2
    """Probability p_m that a child is mutated, in [0, 1]."""

    def __post_init__(self) -> None:
        if self.generations < 0 or self.population < (2 if self.generations else 1):
            raise BadInput(
                "expected generations >= 0 and a population of at least 2 (1 with 0 generations), "
                f"got {self.generations} and {self.population}; raise them"
            )
        if not (0 <= self.crossover <= 1 and 0 <= self.mutation <= 1):
            raise BadInput(
                "expected crossover and mutation as probabilities in [0, 1], "
                f"got {self.crossover} and {self.mutation}; fix them"
            )


@dataclass(frozen=True)
class Evaluation:
    """One call of the fitness; a `failed` one was not finite and counts as fitness 0."""

    genome: str
    fitness: float
    generation: int
    failed: bool


class GenerationRecord(TypedDict):
    """The population after one generation, as plain JSON; generation 0 is the random one."""

    generation: int
    evaluations: int
    failed: int
    best: float
    mean: float
    std: float
    min: float
    best_genome: str


@dataclass(frozen=True)
class EvolutionResult:
    """The best genome ever evaluated, and how the search came to it."""

    best: Genome
    fitness: float
    logbook: list[GenerationRecord]
    evaluations: int
    history: list[Evaluation]


class Accuracy(base.Fitness):
    """DEAP's fitness, to be maximised."""

    weights = (1.0,)


class Individual:
    """A genome and what is known of its fitness."""

    def __init__(self, genome: Genome, values: tuple[float, ...] = ()) -> None:
        self.genome = genome
        self.fitness = Accuracy(values)


def evolve(
    space: SearchSpace,
    fitness: Callable[[Genome], float],
    *,
    config: EvolutionConfig,
    rng: np.random.Generator,
    on_generation: Callable[[GenerationRecord], None] | None = None,
    map: Callable[[Callable[[Genome], float], list[Genome]], Iterable[float]] = map,
) -> EvolutionResult:
    """Search for the genome with the highest fitness.

    Args:
        space: where to search.
        fitness: accuracy of a genome, in [0, 1]; NaN or infinite is a failure and counts as 0.
            It is called for the random genomes, then for those that variation changed.
        config: sizes and probabilities.
        rng: source of every draw; the result is a function of it and of the fitness.
        on_generation: called after each generation, the random one included.
        map: evaluates a list of genomes, in order; a parallel one may stand in for Python's.

    Returns:
        The best genome evaluated, with the record of every generation and evaluation.

    Raises:
        BadInput: if a fitness is finite and outside [0, 1].

    """
    toolbox = base.Toolbox()
    toolbox.register("evaluate", fitness)
    toolbox.register("map", map)
    toolbox.register("individual", random_genome, space, rng)
    toolbox.register("mate", crossover, space, rng=rng)
    toolbox.register("mutate", mutate, space, rng=rng)
    statistics = tools.Statistics(lambda individual: individual.fitness.values[0])
    for name, summary in {"best": np.max, "mean": np.mean, "std": np.std, "min": np.min}.items():
        statistics.register(name, _as_float, summary)
    logbook = tools.Logbook()
    fame = tools.HallOfFame(1, similar=_same_genome)
    history: list[Evaluation] = []

    def close(generation: int, population: list[Individual], new: list[Evaluation]) -> None:
        history.extend(new)
        summary = statistics.compile(population)
        record = GenerationRecord(
            generation=generation,
            evaluations=len(new),
            failed=sum(evaluation.failed for evaluation in new),
            best=summary["best"],
            mean=summary["mean"],
            std=summary["std"],
            min=summary["min"],
            best_genome=str(fame[0].genome),
        )
        logbook.record(**record)
        if on_generation is not None:
            on_generation(record)

    population = [Individual(toolbox.individual()) for _ in range(config.population)]
    new = _evaluate(population, 0, toolbox)
    fame.update(population)
    close(0, population, new)
    for generation in range(1, config.generations + 1):
        offspring = _vary(population, config, toolbox, rng)
        new = _evaluate(offspring, generation, toolbox)
        fame.update(offspring)
        pool = population + offspring
        population = [pool[i] for i in survivors(_accuracies(pool), config.population, rng)]
        close(generation, population, new)
    return EvolutionResult(
        best=fame[0].genome,
        fitness=fame[0].fitness.values[0],
        logbook=list(logbook),
        evaluations=len(history),
        history=history,
    )


def tournament(accuracies: Accuracies, rng: np.random.Generator) -> int:
    """Draw two different individuals and return the index of the more accurate one.

    On a tie either wins with probability 1/2.
    """
    i, j = rng.choice(len(accuracies), size=2, replace=False)
    return int(i if accuracies[i] >= accuracies[j] else j)


def roulette(accuracies: Accuracies, size: int, rng: np.random.Generator) -> list[int]:
    """Draw `size` indices without replacement, each in proportion to the accuracy of those left.

    Once all that is left has accuracy 0, the draw is uniform.
    """
    left = list(range(len(accuracies)))
    chosen: list[int] = []
    for _ in range(size):
        weights = accuracies[left]
        total = weights.sum()
        k = int(rng.choice(len(left), p=weights / total if total > 0 else None))
        chosen.append(left.pop(k))
    return chosen


def survivors(accuracies: Accuracies, size: int, rng: np.random.Generator) -> list[int]:
    """Draw the next population by roulette, and keep the elite.

    If nobody with the highest accuracy was drawn, the best replaces the worst of the drawn.
    """
    chosen = roulette(accuracies, size, rng)
    best = int(np.argmax(accuracies))
    if accuracies[chosen].max() < accuracies[best]:
        chosen[int(np.argmin(accuracies[chosen]))] = best
    return chosen


def _vary(
    population: list[Individual],
    config: EvolutionConfig,
    toolbox: base.Toolbox,
    rng: np.random.Generator,
) -> list[Individual]:
    """As many children as parents; one that equals a parent keeps its fitness."""
    accuracies = _accuracies(population)
    children: list[Individual] = []
    while len(children) < len(population):
        parents = [population[tournament(accuracies, rng)] for _ in range(2)]
        genomes = [parent.genome for parent in parents]
        if rng.random() < config.crossover:
            genomes = toolbox.mate(*genomes)
        for genome in genomes:
            child = toolbox.mutate(genome) if rng.random() < config.mutation else genome
            known = next((p.fitness.values for p in parents if p.genome == child), ())
            children.append(Individual(child, known))
    return children[: len(population)]


def _evaluate(
    individuals: list[Individual], generation: int, toolbox: base.Toolbox
) -> list[Evaluation]:
    """Give a fitness to every individual that has none yet."""
    unknown = [individual for individual in individuals if not individual.fitness.valid]
    values = toolbox.map(toolbox.evaluate, [individual.genome for individual in unknown])
    evaluations = []
    for individual, value in zip(unknown, values, strict=True):
        failed = not math.isfinite(value)
        accuracy = 0.0 if failed else float(value)
        if not 0 <= accuracy <= 1:
            raise BadInput(
                f"expected a fitness in [0, 1], got {accuracy} for {individual.genome}; "
                "return an accuracy"
            )
        individual.fitness.values = (accuracy,)
        evaluations.append(Evaluation(str(individual.genome), accuracy, generation, failed))
    return evaluations


def _accuracies(individuals: list[Individual]) -> Accuracies:
    return np.array([individual.fitness.values[0] for individual in individuals])


def _as_float(summary: Callable[[Any], Any], values: Any) -> float:
    return float(summary(values))


def _same_genome(a: Individual, b: Individual) -> bool:
    return a.genome == b.genome
