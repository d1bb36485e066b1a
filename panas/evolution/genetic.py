"""The genetic search for an architecture, on DEAP's toolbox; with a second objective, NSGA-II.

Privacy: the search releases what its fitness reads. If that is private data, the architecture
leaks it, and nothing here accounts for that.

Source: DPFNAS, Algorithm 1 and section III-A2; Deb et al. 2002 (NSGA-II).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from deap import base, tools

from panas.architecture.genome import Genome
from panas.evolution.halving import Task
from panas.evolution.records import (
    Evaluation,
    EvolutionConfig,
    EvolutionResult,
    GenerationRecord,
    History,
)
from panas.evolution.selection import Individual
from panas.evolution.surrogate import Promise
from panas.evolution.toolbox import SearchProblem, standard_toolbox
from panas.evolution.variation import Child, Variation
from panas.runtime.execution import Execution
from panas.runtime.pool import Pool
from panas.runtime.typed import checked

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
