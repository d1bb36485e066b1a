"""What a search remembers of its candidates, and how it ranks them."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from panas.architecture.genome import Genome
from panas.evolution.halving import Evaluation
from panas.evolution.records import ZeroCostScore


class History:
    """All candidates of a search, in order, and the scores that needed no training."""

    def __init__(self, prior: ZeroCostScore | None) -> None:
        self._prior = prior
        self.evaluations: list[Evaluation] = []
        self.first: dict[Genome, int] = {}
        self.priors: dict[Genome, float] = {}

    def remember(self, evaluation: Evaluation) -> int:
        """Note what became of a candidate; returns the place of its genome's first evaluation."""
        self.evaluations.append(evaluation)
        return self.first.setdefault(evaluation.genome, len(self.evaluations) - 1)

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
            return self.evaluations[place].trained, self.evaluations[place].fitness

        listed = list(places)
        equals = Counter(map(key, listed))

        def rank(place: int) -> tuple[bool, float, float]:
            tied = ties and equals[key(place)] > 1
            return (*key(place), self.promise(self.evaluations[place].genome) if tied else 0.0)

        return sorted(listed, key=rank, reverse=True)

    def finals(self) -> tuple[list[int], Float[np.ndarray, " n"]]:
        """Places of all that have an accuracy, and what it is, or would be, after all training.

        Who was dropped is taken to have gained what others did from the same rung on.
        """
        gains: dict[int, list[float]] = {}
        for e in self.evaluations:
            if e.trained:
                for rung, score in enumerate(e.scores[:-1]):
                    gains.setdefault(rung, []).append(e.scores[-1] - score)

        def final(e: Evaluation) -> float:
            gain = gains.get(len(e.scores) - 1, []) if e.dropped else []
            return e.fitness + (float(np.mean(gain)) if gain else 0.0)

        places = [i for i, e in enumerate(self.evaluations) if not e.failed]
        return places, np.array([final(self.evaluations[i]) for i in places])
