"""The genetic search for an architecture: Algorithm 1, first half. DEAP's only home.

| paper | here |
|---|---|
| population size, generations | `EvolutionConfig.population`, `.generations` |
| p_c, p_m | `EvolutionConfig.crossover`, `.mutation` |
| parent selection | `breeding.tournament`: binary, between two different individuals |
| environmental selection | `survivors`: roulette without replacement over parents and offspring, |
| | and the elite in place of the worst if the wheel missed it |

`EvolutionConfig.paper()` is that and no more. By default the search also remembers what it has
trained (`cache`), stops candidates that fall behind (`rungs`), draws its first population with the
help of a score that needs no training (`seeding`), and keeps the best rather than spinning a wheel
(`survival`). With `size` as second objective it is NSGA-II.

DEAP supplies the toolbox, fitness, statistics, logbook and non-dominated sorting. Its operators
that draw use Python's global `random`, and `creator` writes module globals; neither is used here.

Privacy: the search releases whatever its fitness reads. If that is private data, the architecture
leaks it, and nothing in this module accounts for that.

Source: DPFNAS, section III-A2; Deb et al. 2002 (NSGA-II).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from deap import base, tools

from panas.architecture.blocks import Shape
from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.evolution.halving import (
    Evaluation,
    Evaluator,
    Fitness,
    HalvingConfig,
    ResumableFitness,
    TrainingJob,
)
from panas.evolution.records import (
    EvolutionConfig,
    EvolutionResult,
    GenerationRecord,
    GenomeScore,
    ZeroCostScore,
)
from panas.evolution.variation import Accuracies, Child, History, Variation, tournament
from panas.runtime.journal import Journal
from panas.runtime.pool import Pool

__all__ = [
    "EvolutionConfig",
    "EvolutionResult",
    "GenerationRecord",
    "GenomeScore",
    "ZeroCostScore",
    "evolve",
    "roulette",
    "survivors",
    "tournament",
]


class Accuracy(base.Fitness):
    """DEAP's fitness, to be maximised."""

    weights = (1.0,)


class AccuracyAndSize(base.Fitness):
    """DEAP's fitness of two objectives: accurate, and small."""

    weights = (1.0, -1.0)


class Individual:
    """A genome and what became of it, as DEAP compares it."""

    def __init__(self, genome: Genome, index: int, evaluation: Evaluation, two: bool) -> None:
        self.genome = genome
        self.index = index
        self.evaluation = evaluation
        # A failure must not be kept for being small.
        size = math.inf if evaluation.failed else evaluation.size
        self.fitness: base.Fitness = (
            AccuracyAndSize((evaluation.fitness, size)) if two else Accuracy((evaluation.fitness,))
        )


def evolve(
    space: SearchSpace,
    fitness: Fitness,
    *,
    config: EvolutionConfig,
    rng: np.random.Generator,
    on_generation: Callable[[GenerationRecord], None] | None = None,
    workers: int = 1,
    size: GenomeScore | None = None,
    prior: ZeroCostScore | None = None,
    journal: Journal | None = None,
) -> EvolutionResult:
    """Search for the genome with the highest fitness.

    Args:
        space: where to search.
        fitness: accuracy of a genome, in [0, 1]: a function, or a `ResumableFitness` one that can
            stop at
            rungs. One that raises, is not finite or takes too long is a failure and counts as 0.
        config: sizes, probabilities and savings.
        rng: source of every draw; the result is a function of it and of the fitness.
        on_generation: called after each generation, the first one included.
        workers: processes that evaluate; the result does not depend on it.
        size: of a genome's network; if given, small is the second objective.
        prior: a score that needs no training, for `config.seeding` and between equals.
        journal: where each generation is stored; one with lines is gone on with.

    Returns:
        The best genome, with the record of every generation and candidate.

    Raises:
        BadInput: if a fitness is finite and outside [0, 1].
        PanasError: of the fitness itself.

    """
    rules = HalvingConfig(
        rungs=config.rungs if isinstance(fitness, ResumableFitness) else (),
        keep=config.keep,
        seconds=config.seconds,
    )
    with Pool(workers, fitness) as pool:
        toolbox = base.Toolbox()
        toolbox.register("map", pool.survive, load=partial(_load, space.shape))
        search = _Search(
            space,
            config,
            rng,
            Evaluator(toolbox.map, rules, size),
            journal or Journal(None, {}),
            prior,
            size,
        )
        while search.generation < config.generations:
            record = search.step()
            if on_generation is not None:
                on_generation(record)
    return search.result()


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


class _Search:
    """A search under way: all that one generation leaves to the next."""

    def __init__(
        self,
        space: SearchSpace,
        config: EvolutionConfig,
        rng: np.random.Generator,
        evaluator: Evaluator,
        journal: Journal,
        prior: ZeroCostScore | None,
        size: GenomeScore | None,
    ) -> None:
        self._space, self._config, self._rng = space, config, rng
        self._evaluator, self._journal = evaluator, journal
        self._score_passes = prior.passes if prior else 0
        self._two = size is not None
        self._memory = History(prior)
        seeded = prior is not None
        self._breeder = Variation(space, config, rng, self._memory, seeded=seeded, size=size)
        self._population: list[Individual] = []
        self._passes = 0
        self._logbook = tools.Logbook()
        self._statistics = tools.Statistics(lambda individual: individual.evaluation.fitness)
        for name, f in {"mean": np.mean, "std": np.std, "min": np.min}.items():
            self._statistics.register(name, _as_float, f)
        for line in journal.lines:
            self._restore(line)

    @property
    def generation(self) -> int:
        """The last generation that is through; -1 before the first."""
        return len(self._logbook) - 1

    def step(self) -> GenerationRecord:
        """One generation: vary, evaluate, select, store."""
        memory, generation = self._memory, self.generation + 1
        scored, begun = len(memory.priors), len(memory.history)
        if generation:
            places = [individual.index for individual in self._population]
            children = self._breeder.vary(places, self._worth())
            self._population = self._select(self._population + self._evaluate(generation, children))
        else:
            children = self._breeder.first()
            self._population = self._evaluate(generation, children)
        best, new = self._best(), memory.history[begun:]
        fresh = {str(g): score for g, score in list(memory.priors.items())[scored:]}
        self._passes += sum(e.passes for e in new) + len(fresh) * self._score_passes
        summary = self._statistics.compile(self._population)
        record = GenerationRecord(
            generation=generation,
            evaluations=len(new),
            failed=sum(e.failed for e in new),
            cached=sum(child.met for child in children),
            dropped=sum(e.dropped for e in new),
            passes=self._passes,
            best=memory.history[best].fitness,
            mean=summary["mean"],
            std=summary["std"],
            min=summary["min"],
            best_genome=str(memory.genomes[best]),
        )
        self._logbook.record(**record)
        self._store(record, new, fresh)
        return record

    def result(self) -> EvolutionResult:
        """What has been found."""
        memory, best = self._memory, self._best()
        front = [best]
        if self._two:
            trained = self._individuals(i for i, e in enumerate(memory.history) if e.trained)
            fronts = tools.sortNondominated(trained, len(trained), first_front_only=True)
            front = [i.index for i in fronts[0]] if trained else [best]
        shown = {
            memory.genomes[i]: (memory.history[i].fitness, memory.history[i].size) for i in front
        }
        return EvolutionResult(
            best=memory.genomes[best],
            fitness=memory.history[best].fitness,
            logbook=list(self._logbook),
            evaluations=len(memory.history),
            history=memory.history,
            passes=self._passes,
            front=sorted(((g, *of) for g, of in shown.items()), key=lambda x: (x[2], -x[1])),
        )

    def _store(self, record: GenerationRecord, new: list[Evaluation], fresh: dict) -> None:
        """Put the generation on disk, with all that the next one needs."""
        self._journal.append(
            {
                **record,
                "history": [asdict(e) for e in new],
                "population": [individual.index for individual in self._population],
                "priors": fresh,
                "rng": self._rng.bit_generator.state,
            }
        )

    def _restore(self, line: dict[str, Any]) -> None:
        """Take a generation of an earlier process over, as `step` has left it."""
        for fields in line["history"]:
            evaluation = Evaluation(**fields | {"scores": tuple(fields["scores"])})
            self._memory.remember(self._parse(evaluation.genome), evaluation)
            self._evaluator.remember(evaluation)
        self._population = self._individuals(line["population"])
        self._memory.priors |= {self._parse(text): s for text, s in line["priors"].items()}
        self._passes = line["passes"]
        self._rng.bit_generator.state = line["rng"]
        keys = GenerationRecord.__annotations__
        self._logbook.record(**{k: v for k, v in line.items() if k in keys})

    def _evaluate(self, generation: int, children: list[Child]) -> list[Individual]:
        """The children as individuals; those that nothing is known of are evaluated."""
        new = [child for child in children if child.known is None]
        if self._config.cache:
            new = list({child.genome: child for child in new}.values())
        genomes = [child.genome for child in new]
        found = self._evaluator.evaluate(generation, genomes)
        places = [self._memory.remember(g, e) for g, e in zip(genomes, found, strict=True)]
        if self._config.cache:
            return self._individuals(dict.fromkeys(places))
        fresh = iter(places)
        return self._individuals(next(fresh) if c.known is None else c.known for c in children)

    def _select(self, pool: list[Individual]) -> list[Individual]:
        """Who goes on, of parents and offspring."""
        size = min(self._config.population, len(pool))
        if self._two:
            return tools.selNSGA2(pool, size)
        if self._config.survival == "roulette":
            chosen = survivors(_accuracies(pool), min(size, len(pool)), self._rng)
            return [pool[i] for i in chosen]
        ranked = self._memory.ranked((i.index for i in pool), ties=True)
        return self._individuals(ranked[:size])

    def _worth(self) -> Accuracies:
        """By what a tournament compares: accuracy, or NSGA-II's front and crowding distance."""
        if not self._two:
            return _accuracies(self._population)
        places: dict[int, tuple[int, float]] = {}
        fronts = tools.sortNondominated(self._population, len(self._population))
        for front, members in enumerate(fronts):
            tools.emo.assignCrowdingDist(members)
            for individual in members:
                places[individual.index] = (-front, individual.fitness.crowding_dist)
        order = sorted(set(places.values()))
        return np.array([float(order.index(places[i.index])) for i in self._population])

    def _best(self) -> int:
        """The place of the most accurate candidate that was trained to the end, if there is one."""
        ties = self._config.survival == "best"
        return self._memory.ranked(range(len(self._memory.history)), ties=ties)[0]

    def _individuals(self, places: Iterable[int]) -> list[Individual]:
        memory = self._memory
        return [Individual(memory.genomes[i], i, memory.history[i], self._two) for i in places]

    def _parse(self, text: str) -> Genome:
        return Genome.parse(text, self._space.blocks)


def _load(shape: Shape, task: tuple[TrainingJob, object]) -> float:
    """How long a job trains, by the multiply-accumulates of its blocks."""
    return float(cost(task[0].genome, shape=shape, width=1, classes=1).macs)


def _accuracies(individuals: Sequence[Individual]) -> Accuracies:
    """Accuracies; one that was dropped is worth less than the least of those trained to the end."""
    trained = [i.evaluation.fitness for i in individuals if i.evaluation.trained]
    ceiling = np.nextafter(min(trained), 0.0) if trained else 1.0
    return np.array(
        [
            min(i.evaluation.fitness, ceiling) if i.evaluation.dropped else i.evaluation.fitness
            for i in individuals
        ]
    )


def _as_float(summary: Callable[[Any], Any], values: Any) -> float:
    return float(summary(values))
