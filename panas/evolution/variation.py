"""A genetic search's candidates: the first ones, their children, and which of them to train.

Source: DPFNAS, section III-A2; cache and screening are ours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from deap import base
from jaxtyping import Float

from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.evolution.records import EvolutionConfig, History
from panas.evolution.selection import Individual, Values
from panas.evolution.surrogate import Predictor, Promise, features
from panas.evolution.toolbox import SearchProblem

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
        """Random genomes, or the most promising of several times as many."""
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
