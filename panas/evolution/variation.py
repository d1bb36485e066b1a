"""How a genetic search comes by its candidates: what it remembers, how it varies, what it tries.

Children come from tournaments, crossover and mutation (DPFNAS, section III-A2). With a cache, one
that was met before is mutated until it is new; with screening, more are drawn than can be trained,
and a predictor that has learnt from the others chooses. With size as a second objective a child's
promise is its improvement over those that are no larger.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from panas.architecture.genome import Genome
from panas.architecture.operators import crossover, mutate, random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.halving import Evaluation
from panas.evolution.records import EvolutionConfig, GenomeScore, ZeroCostScore
from panas.evolution.surrogate import Predictor, features

Accuracies = Float[np.ndarray, " n"]

TRIES = 20
"""How often a child that was trained before is mutated again, to be a new one."""


@dataclass(frozen=True)
class Child:
    """A genome to evaluate.

    Attributes:
        genome: what to evaluate.
        known: the place in the history of one that needs no training.
        met: whether variation came to one that had been trained before.

    """

    genome: Genome
    known: int | None = None
    met: bool = False


LEAST = 4
"""Candidates with an accuracy that a predictor needs."""


class History:
    """All candidates of a search, in order, and the scores that needed no training."""

    def __init__(self, prior: ZeroCostScore | None) -> None:
        self._prior = prior
        self.history: list[Evaluation] = []
        self.genomes: list[Genome] = []
        self.first: dict[Genome, int] = {}
        self.priors: dict[Genome, float] = {}

    def remember(self, genome: Genome, evaluation: Evaluation) -> int:
        """Note what became of a candidate; returns the place of the genome's first evaluation."""
        self.history.append(evaluation)
        self.genomes.append(genome)
        return self.first.setdefault(genome, len(self.history) - 1)

    def promise(self, genome: Genome) -> float:
        """The score of a genome that needs no training; 0 without a prior."""
        if self._prior is None:
            return 0.0
        if genome not in self.priors:
            # A score may be infinite or none at all; a journal holds finite numbers only.
            least = np.finfo(float).min
            self.priors[genome] = float(np.nan_to_num(self._prior.score(genome), nan=least))
        return self.priors[genome]

    def ranked(self, places: Iterable[int], *, ties: bool) -> list[int]:
        """Places from the best to the worst: trained to the end first, then by accuracy.

        With `ties`, the score that needs no training decides between equals; else the earlier is
        first.
        """

        def key(place: int) -> tuple[bool, float]:
            return self.history[place].trained, self.history[place].fitness

        listed = list(places)
        equals = Counter(map(key, listed))

        def rank(place: int) -> tuple[bool, float, float]:
            tied = ties and equals[key(place)] > 1
            return (*key(place), self.promise(self.genomes[place]) if tied else 0.0)

        return sorted(listed, key=rank, reverse=True)

    def finals(self) -> tuple[list[int], Accuracies]:
        """Places of all that have an accuracy, and what it is, or would be, after all training.

        Who was dropped is taken to have gained what others did from the same rung on.
        """
        gains: dict[int, list[float]] = {}
        for e in self.history:
            if e.trained:
                for rung, score in enumerate(e.scores[:-1]):
                    gains.setdefault(rung, []).append(e.scores[-1] - score)

        def final(e: Evaluation) -> float:
            gain = gains.get(len(e.scores) - 1, []) if e.dropped else []
            return e.fitness + (float(np.mean(gain)) if gain else 0.0)

        places = [i for i, e in enumerate(self.history) if not e.failed]
        return places, np.array([final(self.history[i]) for i in places])


class Variation:
    """Draws a search's candidates.

    Args:
        space: where to search.
        config: sizes and probabilities.
        rng: source of every draw.
        memory: of the search.
        seeded: whether there is a prior to seed the first population by.
        size: of a genome's network, if small is an objective.

    """

    def __init__(
        self,
        space: SearchSpace,
        config: EvolutionConfig,
        rng: np.random.Generator,
        memory: History,
        *,
        seeded: bool,
        size: GenomeScore | None,
    ) -> None:
        self._space, self._config, self._rng, self._memory = space, config, rng, memory
        self._seeding = config.seeding if seeded else 1
        self._size = size

    def first(self) -> list[Child]:
        """Random genomes, or the most promising of several times as many."""
        config = self._config
        wanted = config.first * self._seeding
        if config.cache:
            drawn: dict[Genome, None] = {}
            for _ in range(TRIES * wanted):
                drawn[self._random()] = None
                if len(drawn) == wanted:
                    break
            genomes = list(drawn)
        else:
            genomes = [self._random() for _ in range(wanted)]
        if self._seeding > 1:
            genomes = sorted(genomes, key=self._memory.promise, reverse=True)
        return [Child(genome) for genome in genomes[: config.first]]

    def vary(self, population: Sequence[int], worth: Accuracies) -> list[Child]:
        """The children of a generation.

        Args:
            population: places of its individuals in the memory.
            worth: what a tournament compares.

        """
        config, rng, genome_of = self._config, self._rng, self._memory.genomes
        children: list[Child] = []
        while len(children) < config.children * config.screening:
            pair = [population[self._parent(worth)] for _ in range(2)]
            a, b = (genome_of[i] for i in pair)
            if rng.random() < config.crossover:
                a, b = crossover(self._space, a, b, rng)
            for genome in (a, b):
                mutates = rng.random() < config.mutation
                child = mutate(self._space, genome, rng) if mutates else genome
                known = next((i for i in pair if genome_of[i] == child), None)
                if config.cache:
                    children.append(self._made_new(child, children))
                else:
                    children.append(Child(child, known, known is not None))
        return self._screened(children)[: config.children]

    def _random(self) -> Genome:
        return random_genome(self._space, self._rng)

    def _parent(self, worth: Accuracies) -> int:
        return tournament(worth, self._rng) if len(worth) > 1 else 0

    def _made_new(self, genome: Genome, siblings: list[Child]) -> Child:
        """The genome, mutated until it is one that was never met; as it is if that fails."""
        met = self._memory.first.keys() | {sibling.genome for sibling in siblings}
        child = genome
        for _ in range(TRIES):
            if child not in met:
                break
            child = mutate(self._space, child, self._rng)
        return Child(child, self._memory.first.get(child), genome in met)

    def _screened(self, children: list[Child]) -> list[Child]:
        """The children in the order of their promise, as far as a predictor can tell."""
        places, y = self._memory.finals()
        if self._config.screening == 1 or len(places) < LEAST:
            return children
        new = [child for child in children if child.known is None]
        if not new:
            return children
        X = self._features(self._memory.genomes[i] for i in places)
        Z = self._features(child.genome for child in new)
        predictor = Predictor(X, y, np.concatenate([X, Z]))
        chosen = predictor.batch(Z, self._bests(new, places, y), self._config.children)
        return [new[i] for i in chosen] + [child for child in children if child.known is not None]

    def _bests(
        self, children: list[Child], places: list[int], y: Accuracies
    ) -> Float[np.ndarray, " c"]:
        """For each child the accuracy to be beaten: the best, of those no larger if size counts."""
        if self._size is None:
            return np.full(len(children), y.max())
        size, history = self._size, self._memory.history
        known = np.array([history[i].size for i in places])
        sizes = [size(child.genome) for child in children]
        return np.array([y[known <= s].max(initial=0.0) for s in sizes])

    def _features(self, genomes: Iterable[Genome]) -> Float[np.ndarray, "n f"]:
        return np.array([features(genome, self._space.shape) for genome in genomes])


def tournament(accuracies: Accuracies, rng: np.random.Generator) -> int:
    """Draw two different individuals and return the index of the more accurate one.

    On a tie either wins with probability 1/2.
    """
    i, j = rng.choice(len(accuracies), size=2, replace=False)
    return int(i if accuracies[i] >= accuracies[j] else j)
