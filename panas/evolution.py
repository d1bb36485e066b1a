"""The genetic search for an architecture: Algorithm 1, first half. DEAP's only home.

| paper | here |
|---|---|
| population size, generations | `EvolutionConfig.population`, `.generations` |
| p_c, p_m | `EvolutionConfig.crossover`, `.mutation` |
| parent selection | `tournament`: binary, between two different individuals |
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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

import numpy as np
from deap import base, tools
from jaxtyping import Float

from panas.errors import BadInput
from panas.evaluation import Evaluation, Evaluator, Fitness, Rules, Staged
from panas.genome import Genome
from panas.journal import Journal
from panas.pool import Pool
from panas.predictor import Predictor, features
from panas.space import SearchSpace, crossover, mutate, random_genome

Accuracies = Float[np.ndarray, " n"]
Score = Callable[[Genome], float]

TRIES = 20
"""How often a child that was trained before is mutated again, to be a new one."""


@dataclass(frozen=True, kw_only=True)
class EvolutionConfig:
    """Sizes, probabilities, and how the search spares training."""

    population: int = 10
    """Individuals, at least 2; 1 is allowed with 0 generations."""
    generations: int = 20
    """Generations after the random one, at least 0."""
    crossover: float = 0.9
    """Probability p_c that a pair of parents is crossed, in [0, 1]."""
    mutation: float = 0.2
    """Probability p_m that a child is mutated, in [0, 1]."""
    cache: bool = True
    """Train no genome twice: a child that was trained before is mutated until it is new."""
    survival: Literal["best", "roulette"] = "best"
    """Who goes on: the best of parents and offspring, or the paper's wheel."""
    rungs: tuple[float, ...] = (0.5,)
    """Shares of the training, increasing, after which the slower candidates stop; () for none."""
    keep: float = 1 / 3
    """Share of candidates that goes on beyond a rung, in (0, 1]."""
    seeding: int = 4
    """Random genomes scored for each place of the first population, at least 1 (not scored)."""
    screening: int = 20
    """Children drawn for each that is trained, at least 1; a predictor chooses among them."""
    inherit: bool = False
    """Start a child from its parent's weights wherever blocks are unchanged."""
    seconds: float | None = None
    """That one stretch of training may take; None for no limit. A limit makes runs differ."""

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
        rungs = self.rungs
        if list(rungs) != sorted(set(rungs)) or not all(0 < r < 1 for r in rungs):
            raise BadInput(f"expected rungs increasing and inside (0, 1), got {rungs}; fix them")
        if not 0 < self.keep <= 1 or min(self.seeding, self.screening) < 1:
            raise BadInput(
                "expected keep in (0, 1], seeding and screening of at least 1, "
                f"got {self.keep}, {self.seeding} and {self.screening}; fix them"
            )
        if self.seconds is not None and not (0 < self.seconds < math.inf):
            raise BadInput(f"expected seconds above 0, got {self.seconds}; raise them")

    @classmethod
    def paper(
        cls,
        *,
        population: int = 10,
        generations: int = 20,
        crossover: float = 0.9,
        mutation: float = 0.2,
    ) -> "EvolutionConfig":
        """The genetic search of the paper, which trains every changed child to the end."""
        return cls(
            population=population,
            generations=generations,
            crossover=crossover,
            mutation=mutation,
            cache=False,
            survival="roulette",
            rungs=(),
            seeding=1,
            screening=1,
        )


class GenerationRecord(TypedDict):
    """The population after one generation, as plain JSON; generation 0 is the first one."""

    generation: int
    evaluations: int
    """Candidates whose training began in it."""
    failed: int
    cached: int
    """Children that had been trained before, as what they were or before they were made new."""
    dropped: int
    """Candidates that were stopped at a rung."""
    passes: int
    """Sample-passes of the search so far."""
    best: float
    mean: float
    std: float
    min: float
    best_genome: str


@dataclass(frozen=True)
class EvolutionResult:
    """What the search found, and how it came to it.

    Attributes:
        best: the most accurate genome that was trained to the end.
        fitness: its accuracy, in [0, 1].
        logbook: one record a generation.
        evaluations: number of candidates whose training began.
        history: what became of each of them, in order.
        passes: sample-passes of all of them.
        front: with size as second objective, (genome, accuracy, size) of all that no other one
            beats in both, smallest first; else the best alone.

    """

    best: Genome
    fitness: float
    logbook: list[GenerationRecord]
    evaluations: int
    history: list[Evaluation]
    passes: int
    front: list[tuple[Genome, float, float]]


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


@dataclass(frozen=True)
class Child:
    """A genome to evaluate.

    Attributes:
        genome: what to evaluate.
        parent: whose weights it may inherit.
        known: the place in the history of one that needs no training.
        met: whether variation came to one that had been trained before.

    """

    genome: Genome
    parent: Genome | None = None
    known: int | None = None
    met: bool = False


@dataclass(frozen=True)
class Prior:
    """A score of genomes that needs no training: larger is more promising.

    Attributes:
        score: of a genome; only its order matters.
        passes: sample-passes that one score takes.

    """

    score: Score
    passes: int = 0


@runtime_checkable
class Evaluates(Protocol):
    """What gives the candidates of a generation their fitness."""

    weights: dict[Genome, bytes]

    def evaluate(
        self, generation: int, genomes: Sequence[Genome], parents: Mapping[Genome, Genome]
    ) -> list[Evaluation]:
        """One evaluation a genome, in order."""
        ...

    def remember(self, evaluation: Evaluation) -> None:
        """Take an evaluation of an earlier process into account."""
        ...


def evolve(
    space: SearchSpace,
    fitness: Fitness,
    *,
    config: EvolutionConfig,
    rng: np.random.Generator,
    on_generation: Callable[[GenerationRecord], None] | None = None,
    workers: int = 1,
    size: Score | None = None,
    prior: Prior | None = None,
    journal: Journal | None = None,
    evaluator: Evaluates | None = None,
) -> EvolutionResult:
    """Search for the genome with the highest fitness.

    Args:
        space: where to search.
        fitness: accuracy of a genome, in [0, 1]: a function, or a `Staged` one that can stop at
            rungs. One that raises, is not finite or takes too long is a failure and counts as 0.
        config: sizes, probabilities and savings.
        rng: source of every draw; the result is a function of it and of the fitness.
        on_generation: called after each generation, the first one included.
        workers: processes that evaluate; the result does not depend on it.
        size: of a genome's network; if given, small is the second objective.
        prior: a score that needs no training, for `config.seeding` and between equals.
        journal: where each generation is stored; one with lines is gone on with.
        evaluator: evaluates instead of `fitness`, say by noised scores that are paid for.

    Returns:
        The best genome, with the record of every generation and candidate.

    Raises:
        BadInput: if a fitness is finite and outside [0, 1].
        PanasError: of the fitness itself.

    """
    rules = Rules(
        rungs=config.rungs if isinstance(fitness, Staged) else (),
        keep=config.keep,
        seconds=config.seconds,
        inherit=config.inherit,
    )
    with Pool(workers, fitness) as pool:
        toolbox = base.Toolbox()
        toolbox.register("map", pool.survive)
        toolbox.register("individual", random_genome, space, rng)
        toolbox.register("mate", crossover, space, rng=rng)
        toolbox.register("mutate", mutate, space, rng=rng)
        search = _Search(
            space,
            config,
            rng,
            toolbox,
            evaluator or Evaluator(toolbox.map, rules, size),
            journal or Journal(None, {}),
            prior,
            two=size is not None,
        )
        while search.generation < config.generations:
            record = search.step()
            if on_generation is not None:
                on_generation(record)
    return search.result()


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


class _Search:
    """A search under way: all that one generation leaves to the next."""

    def __init__(
        self,
        space: SearchSpace,
        config: EvolutionConfig,
        rng: np.random.Generator,
        toolbox: base.Toolbox,
        evaluator: Evaluates,
        journal: Journal,
        prior: Prior | None,
        two: bool,
    ) -> None:
        self._space, self._config, self._rng, self._toolbox = space, config, rng, toolbox
        self._evaluator, self._journal, self._prior, self._two = evaluator, journal, prior, two
        self._population: list[Individual] = []
        self._history: list[Evaluation] = []
        self._genomes: list[Genome] = []
        self._first: dict[Genome, int] = {}
        self._priors: dict[Genome, float] = {}
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
        generation = self.generation + 1
        priors, begun = dict(self._priors), len(self._history)
        if generation:
            children = self._vary()
        else:
            children = [Child(genome) for genome in self._first_genomes()]
        pool = self._population + self._evaluate(generation, children)
        self._population = self._select(pool) if generation else pool
        new = self._history[begun:]
        self._passes += sum(e.passes for e in new)
        kept = {individual.genome for individual in self._population}
        weights = {g: w for g, w in self._evaluator.weights.items() if g in kept}
        self._evaluator.weights = weights
        best = self._best()
        fresh = {str(g): s for g, s in self._priors.items() if g not in priors}
        self._passes += len(fresh) * (self._prior.passes if self._prior else 0)
        summary = self._statistics.compile(self._population)
        record = GenerationRecord(
            generation=generation,
            evaluations=len(new),
            failed=sum(e.failed for e in new),
            cached=sum(child.met for child in children),
            dropped=sum(e.dropped for e in new),
            passes=self._passes,
            best=self._history[best].fitness,
            mean=summary["mean"],
            std=summary["std"],
            min=summary["min"],
            best_genome=str(self._genomes[best]),
        )
        self._logbook.record(**record)
        self._journal.attach({str(g): w for g, w in weights.items()})
        self._journal.append(
            {
                **record,
                "history": [asdict(e) for e in new],
                "population": [individual.index for individual in self._population],
                "priors": fresh,
                "rng": self._rng.bit_generator.state,
            }
        )
        return record

    def result(self) -> EvolutionResult:
        """What has been found."""
        best = self._best()
        found = [self._individual(i) for i, e in enumerate(self._history) if e.trained]
        front = tools.sortNondominated(found, len(found), first_front_only=True) if found else [[]]
        shown = {i.genome: (i.evaluation.fitness, i.evaluation.size) for i in front[0]}
        if not self._two:
            shown = {self._genomes[best]: (self._history[best].fitness, 0.0)}
        return EvolutionResult(
            best=self._genomes[best],
            fitness=self._history[best].fitness,
            logbook=list(self._logbook),
            evaluations=len(self._history),
            history=self._history,
            passes=self._passes,
            front=sorted(((g, a, s) for g, (a, s) in shown.items()), key=lambda x: (x[2], -x[1])),
        )

    def _restore(self, line: dict[str, Any]) -> None:
        """Take a generation of an earlier process over, as `step` has left it."""
        for fields in line["history"]:
            evaluation = Evaluation(**fields | {"scores": tuple(fields["scores"])})
            self._remember(self._parse(evaluation.genome), evaluation)
            self._evaluator.remember(evaluation)
        self._population = [self._individual(i) for i in line["population"]]
        self._priors |= {self._parse(text): s for text, s in line["priors"].items()}
        self._passes = line["passes"]
        self._rng.bit_generator.state = line["rng"]
        keys = GenerationRecord.__annotations__
        self._logbook.record(**{k: v for k, v in line.items() if k in keys})
        if line is self._journal.lines[-1]:
            stored = self._journal.attachment()
            self._evaluator.weights = {self._parse(text): w for text, w in stored.items()}

    def _first_genomes(self) -> list[Genome]:
        """Random genomes, or the most promising of several times as many."""
        config, prior = self._config, self._prior
        wanted = config.population * (config.seeding if prior else 1)
        drawn: dict[Genome, None] = {}
        listed: list[Genome] = []
        for _ in range(wanted if not config.cache else TRIES * wanted):
            genome = self._toolbox.individual()
            if not config.cache:
                listed.append(genome)
            drawn[genome] = None
            if config.cache and len(drawn) == wanted:
                break
        found = list(drawn) if config.cache else listed
        if prior and config.seeding > 1:
            found = sorted(found, key=self._promise, reverse=True)
        return found[: config.population]

    def _vary(self) -> list[Child]:
        """As many children as the population has places."""
        config, rng, population = self._config, self._rng, self._population
        worth = self._worth()
        children: list[Child] = []
        while len(children) < config.population * config.screening:
            pair = [population[self._parent(worth)] for _ in range(2)]
            genomes = [parent.genome for parent in pair]
            if rng.random() < config.crossover:
                genomes = self._toolbox.mate(*genomes)
            for genome, parent in zip(genomes, pair, strict=True):
                child = self._toolbox.mutate(genome) if rng.random() < config.mutation else genome
                known = next((p.index for p in pair if p.genome == child), None)
                if config.cache:
                    children.append(self._made_new(child, parent.genome, children))
                else:
                    children.append(Child(child, parent.genome, known, known is not None))
        return self._screen(children)[: config.population]

    def _screen(self, children: list[Child]) -> list[Child]:
        """The children in the order of their promise, as far as a predictor can tell."""
        told = [i for i, e in enumerate(self._history) if not e.failed]
        if self._config.screening == 1 or len(told) < 4:
            return children
        y = _final(self._history, told)
        X = np.array([features(self._genomes[i], self._space.shape) for i in told])
        predictor = Predictor(X, y)
        of = np.array([features(child.genome, self._space.shape) for child in children])
        gain = predictor.improvement(of, float(y.max()))
        fresh = [gain[i] if child.known is None else -1.0 for i, child in enumerate(children)]
        return [children[i] for i in np.argsort(-np.array(fresh), kind="stable")]

    def _made_new(self, genome: Genome, parent: Genome, siblings: list[Child]) -> Child:
        """The genome, mutated until it is one that was never met; as it is if that fails."""
        met = self._first.keys() | {sibling.genome for sibling in siblings}
        child = genome
        for _ in range(TRIES):
            if child not in met:
                break
            child = self._toolbox.mutate(child)
        return Child(child, parent, self._first.get(child), genome in met)

    def _parent(self, worth: Accuracies) -> int:
        return tournament(worth, self._rng) if len(worth) > 1 else 0

    def _evaluate(self, generation: int, children: list[Child]) -> list[Individual]:
        """The children as individuals; those that nothing is known of are evaluated."""
        new = [child for child in children if child.known is None]
        if self._config.cache:
            new = list({child.genome: child for child in new}.values())
        parents = {child.genome: child.parent for child in new if child.parent is not None}
        genomes = [child.genome for child in new]
        found = self._evaluator.evaluate(generation, genomes, parents)
        places = [self._remember(g, e) for g, e in zip(genomes, found, strict=True)]
        if self._config.cache:
            return [self._individual(i) for i in dict.fromkeys(places)]
        fresh = iter(places)
        return [self._individual(next(fresh) if c.known is None else c.known) for c in children]

    def _select(self, pool: list[Individual]) -> list[Individual]:
        """Who goes on, of parents and offspring."""
        size = self._config.population
        if self._two:
            return tools.selNSGA2(pool, min(size, len(pool)))
        if self._config.survival == "roulette":
            return [pool[i] for i in survivors(_accuracies(pool), size, self._rng)]
        self._break_ties(pool)
        return sorted(pool, key=self._rank, reverse=True)[:size]

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
        everyone = [self._individual(i) for i in range(len(self._history))]
        if self._config.survival == "best":
            self._break_ties(everyone)
        return max(everyone, key=self._rank).index

    def _rank(self, individual: Individual) -> tuple[bool, float, float]:
        e = individual.evaluation
        return e.trained, e.fitness, self._priors.get(individual.genome, 0.0)

    def _break_ties(self, pool: list[Individual]) -> None:
        """Score those whose accuracy alone does not order them."""
        if self._prior is None:
            return
        count = Counter((i.evaluation.trained, i.evaluation.fitness) for i in pool)
        for individual in pool:
            if count[individual.evaluation.trained, individual.evaluation.fitness] > 1:
                self._promise(individual.genome)

    def _promise(self, genome: Genome) -> float:
        assert self._prior is not None
        if genome not in self._priors:
            # A score may be infinite or none at all; a journal holds finite numbers only.
            least = np.finfo(float).min
            self._priors[genome] = float(np.nan_to_num(self._prior.score(genome), nan=least))
        return self._priors[genome]

    def _remember(self, genome: Genome, evaluation: Evaluation) -> int:
        self._history.append(evaluation)
        self._genomes.append(genome)
        return self._first.setdefault(genome, len(self._history) - 1)

    def _individual(self, index: int) -> Individual:
        return Individual(self._genomes[index], index, self._history[index], self._two)

    def _parse(self, text: str) -> Genome:
        return Genome.parse(text, self._space.blocks)


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


def _final(history: list[Evaluation], places: list[int]) -> Accuracies:
    """Accuracies after the full training; guessed for who was dropped, from what others gained."""
    gains: dict[int, list[float]] = {}
    for e in history:
        if e.trained:
            for rung, score in enumerate(e.scores[:-1]):
                gains.setdefault(rung, []).append(e.scores[-1] - score)

    def final(e: Evaluation) -> float:
        gain = gains.get(len(e.scores) - 1, []) if e.dropped else []
        return e.fitness + (float(np.mean(gain)) if gain else 0.0)

    return np.array([final(history[i]) for i in places])


def _as_float(summary: Callable[[Any], Any], values: Any) -> float:
    return float(summary(values))
