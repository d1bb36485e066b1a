"""The genetic search for an architecture, on DEAP's toolbox; with a second objective, NSGA-II.

Privacy: the search releases what its fitness reads. If that is private data, the architecture
leaks it, and nothing here accounts for that.

Source: DPFNAS, Algorithm 1 and section III-A2; Deb et al. 2002 (NSGA-II). Cache and screening of
candidates are ours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from deap import base, tools
from jaxtyping import Float

from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.evolution.halving import Task
from panas.evolution.records import (
    Evaluation,
    EvolutionConfig,
    EvolutionResult,
    GenerationRecord,
    History,
)
from panas.evolution.surrogate import Predictor, Promise, features
from panas.evolution.toolbox import Individual, SearchProblem, Values, standard_toolbox
from panas.runtime.execution import Execution
from panas.runtime.pool import Pool
from panas.runtime.typed import checked

TRIES = 20  # times that a child which was trained before is mutated again, to be a new one
LEAST = 4  # candidates with an accuracy that a predictor needs


@dataclass(frozen=True)
class Child:
    """A genome to evaluate."""

    genome: Genome
    known: int | None = None  # place in the history of one that needs no training
    met: bool = False  # whether variation came to one that had been trained before


@dataclass(frozen=True)
class Variation:
    """Draws a search's candidates."""

    problem: SearchProblem
    config: EvolutionConfig
    rng: np.random.Generator
    history: History
    promise: Promise
    toolbox: base.Toolbox

    def first(self) -> list[Child]:
        """Random genomes, or the most promising of several times as many; the plain one first."""
        config, space = self.config, self.problem.space
        seeding = 1 if self.problem.prior is None else config.seeding
        count = config.first * seeding
        if config.cache:
            drawn: dict[Genome, None] = {}
            for _ in range(TRIES * count):
                drawn[random_genome(space, self.rng)] = None
                if len(drawn) == count:
                    break
            genomes = list(drawn)
        else:
            genomes = [random_genome(space, self.rng) for _ in range(count)]
        if seeding > 1:
            genomes = sorted(genomes, key=self.promise, reverse=True)
        if plain := self.problem.plain:
            genomes = [plain, *(genome for genome in genomes if genome != plain)]
        return [Child(genome) for genome in genomes[: config.first]]

    def vary(self, population: Sequence[Individual]) -> list[Child]:
        """The children of a generation."""
        config, rng, toolbox = self.config, self.rng, self.toolbox
        children: list[Child] = []
        while len(children) < config.children * config.screening:
            parents = toolbox.select_parents(population, 2)
            pair = tuple(parent.genome for parent in parents)
            if rng.random() < config.crossover:
                pair = toolbox.mate(*pair)
            for genome in pair:
                child = toolbox.mutate(genome) if rng.random() < config.mutation else genome
                if config.cache:
                    children.append(self._made_new(child, children))
                else:
                    known = next((p.index for p in parents if p.genome == child), None)
                    children.append(Child(child, known, known is not None))
        return self._screened(children)[: config.children]

    def _made_new(self, genome: Genome, siblings: list[Child]) -> Child:
        """The genome, mutated until it is new, `TRIES` times at most."""
        met = self.history.first.keys() | {sibling.genome for sibling in siblings}
        child = genome
        for _ in range(TRIES):
            if child not in met:
                break
            child = self.toolbox.mutate(child)
        return Child(child, self.history.first.get(child), genome in met)

    def _screened(self, children: list[Child]) -> list[Child]:
        """The new children by their expected improvement, then the known ones."""
        indices, y = self.history.finals()
        new = [child for child in children if child.known is None]
        if self.config.screening == 1 or len(indices) < LEAST or not new:
            return children
        X = self._features(self.history.evaluations[i].genome for i in indices)
        Z = self._features(child.genome for child in new)
        predictor = Predictor(X, y, np.concatenate([X, Z]))
        chosen = predictor.batch(Z, self._bests(new, indices, y), self.config.children)
        return [new[i] for i in chosen] + [child for child in children if child.known is not None]

    def _bests(
        self, children: list[Child], indices: list[int], y: Values
    ) -> Float[np.ndarray, " c"]:
        """For each child the accuracy to be beaten: the best, of those no larger if size counts."""
        if self.problem.size is None:
            return np.full(len(children), y.max())
        known = np.array([self.history.evaluations[i].size for i in indices])
        sizes = [self.problem.size(child.genome) for child in children]
        return np.array([y[known <= s].max(initial=0.0) for s in sizes])

    def _features(self, genomes: Iterable[Genome]) -> Float[np.ndarray, "n f"]:
        return np.array([features(genome, self.problem.space.shape) for genome in genomes])


HERE = Execution[GenerationRecord]()
"""In the calling process, and stored nowhere."""


@checked
def evolve(
    problem: SearchProblem,
    *,
    config: EvolutionConfig,
    rng: np.random.Generator,
    execution: Execution[GenerationRecord] = HERE,
    customise: Callable[[base.Toolbox], None] | None = None,
) -> EvolutionResult:
    """Search for the genome with the highest fitness; a function of `rng` and the fitness.

    Args:
        problem: what to search for, and where.
        config: sizes, probabilities and savings.
        rng: source of every draw.
        execution: workers, journal and progress.
        customise: replaces entries of the toolbox (`panas.evolution.toolbox`) before the search
            begins. What it draws from `rng` is resumed with the search.

    Raises:
        BadInput: if a finite fitness is outside [0, 1], or a customised operator leaves the space.
        PanasError: of the fitness itself.

    """
    promise = Promise(problem.prior)
    history = History(promise)
    with Pool(execution.workers, problem.fitness) as pool:
        on_task = _candidate_counter(config, history, execution)
        toolbox = standard_toolbox(problem, config, rng, history, pool, on_task)
        if customise is not None:
            customise(toolbox)
        search = _Search(Variation(problem, config, rng, history, promise, toolbox))
        lines = [*execution.journal.lines] if execution.journal else []
        for line in lines:
            search.restore(line)
        for generation in range(len(lines), config.generations + 1):
            execution.finished(*search.step(generation))
    return search.result()


def _candidate_counter(
    config: EvolutionConfig, history: History, execution: Execution[GenerationRecord]
) -> Callable[[Task], None]:
    """What counts candidates by their first jobs, those of finished generations included."""
    at_most = config.first + config.generations * config.children
    new, begun = 0, -1

    def count(task: Task) -> None:
        nonlocal new, begun
        if execution.on_candidate is None or task[0].state is not None:
            return
        known = len(history.evaluations)
        new, begun = (new if known == begun else 0) + 1, known
        execution.on_candidate(known + new, max(at_most, known + new))

    return count


class _Search:
    """A search under way: all that one generation leaves to the next."""

    def __init__(self, variation: Variation) -> None:
        self._variation, self._history = variation, variation.history
        self._promise = variation.promise
        self._problem, self._config = variation.problem, variation.config
        self._rng, self._toolbox = variation.rng, variation.toolbox
        self._records: list[GenerationRecord] = []
        self._population: list[Individual] = []
        self._passes = 0
        self._statistics = tools.Statistics(lambda individual: individual.evaluation.fitness)
        for name, f in {"mean": np.mean, "std": np.std, "min": np.min}.items():
            self._statistics.register(name, f)

    def step(self, generation: int) -> tuple[GenerationRecord, dict[str, Any]]:
        """One generation: vary, evaluate, select; its record, and all that the next one needs."""
        history = self._history
        scored, begun = len(self._promise.scores), len(history.evaluations)
        if generation:
            children = self._variation.vary(self._population)
            pool = self._population + self._evaluate(generation, children)
            size = min(self._config.population, len(pool))
            self._population = list(self._toolbox.select(pool, size))
        else:
            children = self._variation.first()
            self._population = self._evaluate(generation, children)
        best, new = self._best(), history.evaluations[begun:]
        summary = self._statistics.compile(self._population)
        fresh = {str(g): score for g, score in list(self._promise.scores.items())[scored:]}
        self._passes += sum(e.passes for e in new)
        record = GenerationRecord(
            generation=generation,
            evaluations=len(new),
            failed=sum(e.failed for e in new),
            cached=sum(child.met for child in children),
            dropped=sum(e.dropped for e in new),
            passes=self._passes,
            best=best.fitness,
            best_genome=best.genome,
            **{name: float(value) for name, value in summary.items()},
        )
        self._records.append(record)
        return record, {
            **record.to_json(),
            "history": [e.to_json() for e in new],
            "population": [individual.index for individual in self._population],
            "priors": fresh,
            "rng": self._rng.bit_generator.state,
        }

    def result(self) -> EvolutionResult:
        """What has been found."""
        history, best = self._history, self._best()
        front = [best]
        if self._problem.size is not None:
            optimal = tools.ParetoFront(similar=lambda a, b: a.genome == b.genome)
            trained = (i for i, e in enumerate(history.evaluations) if e.trained)
            optimal.update(self._individuals(trained))
            indices = sorted(individual.index for individual in optimal)
            front = [history.evaluations[i] for i in indices] or front
        shown = sorted(front, key=lambda e: (e.size, -e.fitness))
        return EvolutionResult(
            best=best.genome,
            fitness=best.fitness,
            records=self._records,
            history=history.evaluations,
            passes=self._passes,
            front=[(e.genome, e.fitness, e.size) for e in shown],
        )

    def restore(self, line: Mapping[str, Any]) -> None:
        """Take a generation of an earlier process over, as `step` has left it."""
        blocks = self._problem.space.blocks
        for fields in line["history"]:
            evaluation = Evaluation.from_json(fields, blocks)
            self._history.remember(evaluation)
            self._toolbox.remember(evaluation)
        self._population = self._individuals(line["population"])
        priors = {Genome.parse(text, blocks): score for text, score in line["priors"].items()}
        self._promise.scores |= priors
        self._passes = line["passes"]
        self._rng.bit_generator.state = line["rng"]
        self._records.append(GenerationRecord.from_json(line, blocks))

    def _evaluate(self, generation: int, children: list[Child]) -> list[Individual]:
        """The children as individuals; those that nothing is known of are evaluated."""
        genomes = [child.genome for child in children if child.known is None]
        if self._config.cache:
            genomes = list(dict.fromkeys(genomes))
        for genome in genomes:
            self._problem.space.check(genome)
        evaluations = self._toolbox.evaluate(generation, genomes)
        indices = [self._history.remember(evaluation) for evaluation in evaluations]
        if self._config.cache:
            return self._individuals(dict.fromkeys(indices))
        fresh = iter(indices)
        return self._individuals(next(fresh) if c.known is None else c.known for c in children)

    def _best(self) -> Evaluation:
        """The most accurate candidate that was trained to the end, if there is one."""
        evaluations, ties = self._history.evaluations, self._config.survival == "best"
        return evaluations[self._history.ranked(range(len(evaluations)), ties=ties)[0]]

    def _individuals(self, indices: Iterable[int]) -> list[Individual]:
        two = self._problem.size is not None
        return [Individual(i, self._history.evaluations[i], two) for i in indices]
