"""The plan and the records of a genetic search: what it is asked, remembers and tells."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from deap import tools
from jaxtyping import Float

from panas.architecture.blocks import BlockType
from panas.architecture.genome import Genome
from panas.runtime.errors import BadInput
from panas.runtime.typed import check_fields

GenomeScore = Callable[[Genome], float]
"""A number for a genome: how promising it is, or how large its network."""


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
    seeding: int = 2
    """Random genomes scored for each place of the first population, at least 1 (not scored)."""
    initial: int | None = 6
    """Individuals of the first population, at most; None: as many as the population."""
    offspring: int | None = 5
    """Children trained in a generation, at least 1; None: as many as the population."""
    screening: int = 20
    """Children drawn for each that is trained, at least 1; a predictor chooses among them."""
    seconds: float | None = None
    """That one stretch of training may take; None for no limit. A limit makes runs differ."""

    def __post_init__(self) -> None:
        check_fields(self)
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
        counts = (self.seeding, self.screening, self.first, self.children)
        if not 0 < self.keep <= 1 or min(counts) < 1:
            raise BadInput(
                "expected keep in (0, 1], and seeding, screening, initial and offspring of at "
                f"least 1, got {self.keep}, {self.seeding}, {self.screening}, {self.initial} and "
                f"{self.offspring}; fix them"
            )
        if self.seconds is not None and not (0 < self.seconds < math.inf):
            raise BadInput(f"expected seconds above 0, got {self.seconds}; raise them")

    @property
    def first(self) -> int:
        """Individuals of the first population."""
        return self.population if self.initial is None else min(self.initial, self.population)

    @property
    def children(self) -> int:
        """Children trained in a generation."""
        return self.population if self.offspring is None else self.offspring

    def random(self) -> "EvolutionConfig":
        """A random search of as many genomes as this one evaluates at most."""
        everyone = self.first + self.generations * self.children
        return replace(self, population=everyone, initial=None, generations=0, rungs=(), seeding=1)

    @classmethod
    def paper(
        cls,
        *,
        population: int = 10,
        generations: int = 20,
        crossover: float = 0.9,
        mutation: float = 0.2,
    ) -> "EvolutionConfig":
        """The genetic search of the paper, which trains every changed child to the end.

        Args:
            population: individuals, at least 2; 1 is allowed with 0 generations.
            generations: after the random one, at least 0.
            crossover: probability p_c that a pair of parents is crossed, in [0, 1].
            mutation: probability p_m that a child is mutated, in [0, 1].
        """
        return cls(
            population=population,
            generations=generations,
            crossover=crossover,
            mutation=mutation,
            cache=False,
            survival="roulette",
            rungs=(),
            seeding=1,
            initial=None,
            offspring=None,
            screening=1,
        )


@dataclass(frozen=True)
class Evaluation:
    """What became of one candidate."""

    genome: Genome
    fitness: float  # validation accuracy in [0, 1]; 0 for a failure
    generation: int
    failed: bool  # whether it has no accuracy
    scores: tuple[float, ...] = ()  # accuracy at each rung, the full training last
    dropped: bool = False  # whether it was stopped at a rung
    passes: int = 0
    size: float = 0.0  # of its network, if size is an objective
    error: str | None = None  # why it failed

    @property
    def trained(self) -> bool:
        """Whether its training went to the end."""
        return not self.failed and not self.dropped

    def to_json(self) -> dict[str, Any]:
        """The evaluation as plain JSON, its genome as text."""
        return vars(self) | {"genome": str(self.genome), "scores": list(self.scores)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], blocks: Sequence[BlockType] = ()) -> "Evaluation":
        """The evaluation that `to_json` wrote; `blocks` are the custom ones."""
        genome = Genome.parse(data["genome"], blocks)
        return cls(**{**data, "genome": genome, "scores": tuple(data["scores"])})


class History:
    """What a search remembers: all candidates, in order.

    Of the scores by `promise`, which takes no training, only the order matters.
    """

    def __init__(self, promise: GenomeScore) -> None:
        self._promise = promise
        self.evaluations: list[Evaluation] = []
        self.first: dict[Genome, int] = {}  # place of a genome's first evaluation

    def remember(self, evaluation: Evaluation) -> int:
        """Note an evaluation; returns the place of its genome's first one."""
        self.evaluations.append(evaluation)
        return self.first.setdefault(evaluation.genome, len(self.evaluations) - 1)

    def ranked(self, indices: Iterable[int], *, ties: bool) -> list[int]:
        """Indices, the best first: trained to the end, then accurate; with `ties` by promise."""

        def key(index: int) -> tuple[bool, float]:
            return self.evaluations[index].trained, self.evaluations[index].fitness

        listed = list(indices)
        equals = Counter(map(key, listed))

        def rank(index: int) -> tuple[bool, float, float]:
            tied = ties and equals[key(index)] > 1
            return (*key(index), self._promise(self.evaluations[index].genome) if tied else 0.0)

        return sorted(listed, key=rank, reverse=True)

    def finals(self) -> tuple[list[int], Float[np.ndarray, " n"]]:
        """Indices of all with an accuracy, and that after the mean gain of others where dropped."""
        gains: dict[int, list[float]] = {}
        for e in self.evaluations:
            if e.trained:
                for rung, score in enumerate(e.scores[:-1]):
                    gains.setdefault(rung, []).append(e.scores[-1] - score)

        def final(e: Evaluation) -> float:
            gain = gains.get(len(e.scores) - 1, []) if e.dropped else []
            return e.fitness + (float(np.mean(gain)) if gain else 0.0)

        indices = [i for i, e in enumerate(self.evaluations) if not e.failed]
        return indices, np.array([final(self.evaluations[i]) for i in indices])


@dataclass(frozen=True, kw_only=True)
class GenerationRecord:
    """The population after one generation; generation 0 is the first one."""

    generation: int
    evaluations: int  # candidates whose training began in it
    failed: int
    cached: int  # children that had been trained before, or were until they were made new
    dropped: int  # candidates that were stopped at a rung
    passes: int  # sample-passes of the search so far
    best: float
    mean: float
    std: float
    min: float
    best_genome: Genome

    def __str__(self) -> str:
        return (
            f"generation {self.generation}: best {self.best:.3f} ({self.best_genome}), "
            f"mean {self.mean:.3f}, {self.evaluations} trained, {self.dropped} dropped, "
            f"{self.failed} failed"
        )

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON, its genome as text."""
        return vars(self) | {"best_genome": str(self.best_genome)}

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], blocks: Sequence[BlockType] = ()
    ) -> "GenerationRecord":
        """The record that `to_json` wrote; `data` may hold more, `blocks` are custom ones."""
        held = {field.name: data[field.name] for field in fields(cls)}
        return cls(**held | {"best_genome": Genome.parse(held["best_genome"], blocks)})


@dataclass(frozen=True)
class EvolutionResult:
    """What the search found, and how it came to it."""

    best: Genome  # the most accurate that was trained to the end
    fitness: float  # its accuracy, in [0, 1]
    records: list[GenerationRecord]
    history: list[Evaluation]  # one a candidate, in order
    passes: int  # sample-passes of all of them
    front: list[tuple[Genome, float, float]]
    """(genome, accuracy, size), smallest first, of all that no other one beats in both; without
    size as second objective the best alone."""

    @property
    def evaluations(self) -> int:
        """Number of candidates whose training began."""
        return len(self.history)

    @property
    def logbook(self) -> tools.Logbook:
        """The records as plain JSON in DEAP's logbook: `logbook.select("generation", "best")`."""
        logbook = tools.Logbook()
        for record in self.records:
            logbook.record(**record.to_json())
        return logbook
