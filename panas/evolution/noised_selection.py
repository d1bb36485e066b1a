"""Choosing on private samples by noised scores: how many, with how much noise, at what price.

A score is the number of right answers on held-out private samples, plus Gaussian noise. One
sample added, removed or exchanged moves that number by at most 1, so that noise of standard
deviation s is a Gaussian mechanism of multiplier s under either relation. (Their number n is
treated as public, as everywhere.)

| symbol | name |
|---|---|
| s | `noise`, standard deviation of the noise on a full generation's counts |
| P, G | `population`, `generations` |
| E = P (G + 1) | `candidates`, planned |
| T | `trials` of tuning, each with a score of its own |

"genetic": what a generation is like depends on the scores before it, so all of them compose. The
scores of one generation are one Gaussian mechanism of multiplier s / sqrt(P) on a vector; it is
charged as a whole, before it begins. A generation that has fewer new genomes, u < P, pays the
same and has noise s sqrt(u / P): the vector has sensitivity sqrt(u). So the price is known
beforehand, and is what the ledger holds afterwards.

"random": candidates are drawn independently of one another, nobody sees more than the winner, and
how many there are is random (geometric, of mean E) and told to nobody: a private selection, whose
price grows with log E only. The draws come from the noise source: with a known sequence of
genomes the winner's place would tell how many there were.

Source: Papernot and Steinke 2022, theorem 2, eta = 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace, random_genome
from panas.evolution.halving import Evaluation
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    Event,
    Gaussian,
    PrivateSelection,
    Relation,
)
from panas.privacy.budget import Budget
from panas.privacy.noise import NoiseSource
from panas.privacy.plan import MAX_NOISE, Plan, epsilon_of, least_noise
from panas.runtime.errors import BudgetExhausted, PanasError

Algorithm = Literal["genetic", "random"]

GEOMETRIC = 1.0
"""Shape of the number of candidates: at least one, and a better price than a Poisson number."""

Count = Callable[[Genome], float]
"""Exact number of right answers of a genome."""

Paid = Callable[[], AbstractContextManager[Any]]
"""Charges what is about to happen; the data are touched inside."""


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """A search by noised scores, and what it costs; see the module's table.

    Attributes:
        algorithm: how candidates come about.
        population: P, candidates of a generation at most, at least 1.
        generations: G, at least 0.
        trials: T, at least 0.
        noise: s, above 0; 0 for exact scores, which nothing bounds.

    """

    algorithm: Algorithm
    population: int
    generations: int
    trials: int
    noise: float

    @property
    def candidates(self) -> int:
        """E, planned; on average with random search."""
        return self.population * (self.generations + 1)

    @property
    def search_event(self) -> Event:
        """What one generation costs, or the whole random search."""
        if self.algorithm == "random":
            return PrivateSelection(Gaussian(self.noise), 1, float(self.candidates), GEOMETRIC)
        return Gaussian(self.noise / math.sqrt(self.population))

    @property
    def trial_event(self) -> Gaussian:
        """What the score of one setting costs."""
        return Gaussian(self.noise)

    def events(self) -> tuple[Event, ...]:
        """Everything that the scores will charge to the samples they are counted on."""
        charges = 1 if self.algorithm == "random" else self.generations + 1
        return (self.search_event,) * charges + (self.trial_event,) * self.trials

    def training_event(self, plan: Plan) -> Event:
        """What training the candidates of one generation costs, or of the whole random search."""
        one = plan.training_event
        if self.algorithm == "random":
            return PrivateSelection(one, 1, float(self.candidates), GEOMETRIC)
        return replace(one, steps=one.steps * self.population)

    def training_events(self, plan: Plan) -> tuple[Event, ...]:
        """Everything that training candidates will charge to the samples they are trained on."""
        return (self.training_event(plan),) * (
            1 if self.algorithm == "random" else self.generations + 1
        )


def calibrate_scores(
    draft: Scoring,
    budget: Budget,
    spent: Sequence[Event] = (),
    relation: Relation = ADD_OR_REMOVE,
) -> Scoring:
    """The scoring with the least noise that fits what a budget has left.

    Raises:
        BudgetExhausted: if even noise far above the signal does not fit.

    """

    def affordable(s: float) -> bool:
        planned = replace(draft, noise=s).events()
        return epsilon_of([*spent, *planned], budget, relation=relation) <= budget.epsilon

    most = MAX_NOISE * math.sqrt(draft.candidates + draft.trials)
    s = least_noise(affordable, high=most)
    if s is None:
        raise BudgetExhausted(
            f"expected a budget that affords {draft.candidates} + {draft.trials} noised scores, "
            f"got epsilon {budget.epsilon:g} at delta {budget.delta:g}, of which the search has "
            f"spent {epsilon_of(spent, budget, relation=relation):.3g}; raise --epsilon, start a "
            "new run, or use privacy.search=data-free"
        )
    return replace(draft, noise=s)


def calibrate_candidates(
    scoring: Scoring,
    budget: Budget,
    draft: Plan,
    spent: Sequence[Event] = (),
    relation: Relation = ADD_OR_REMOVE,
) -> Plan:
    """The plan by which each candidate is trained, with the least noise that fits for all.

    Args:
        scoring: how many there are.
        budget: of the samples that they are trained on.
        draft: one candidate's plan; its noise is replaced.
        spent: what was charged to these samples before.
        relation: of the account.

    Raises:
        BudgetExhausted: if no noise is large enough.

    """

    def affordable(sigma: float) -> bool:
        planned = scoring.training_events(replace(draft, noise_multiplier=sigma))
        return epsilon_of([*spent, *planned], budget, relation=relation) <= budget.epsilon

    sigma = least_noise(affordable)
    if sigma is None:
        raise BudgetExhausted(
            f"expected a budget that affords DP-SGD for {scoring.candidates} candidates, got "
            f"epsilon {budget.epsilon:g} at delta {budget.delta:g}; raise --epsilon, give public "
            "data, or use privacy.search=data-free"
        )
    return replace(draft, noise_multiplier=sigma)


def noised_share(right: float, samples: int, scale: float, noise: NoiseSource) -> float:
    """Share of right answers, from their count plus noise of standard deviation `scale`.

    May lie outside [0, 1].

    Args:
        right: number of right answers.
        samples: number of all, at least 1.
        scale: standard deviation, in samples; 0 for an exact share.
        noise: source of the noise.

    """
    return (right + scale * float(noise.normal(1))) / samples


class NoisedScores:
    """What gives the candidates of a generation noised scores: charges it, then noises each.

    Args:
        scoring: the noise of a full generation.
        samples: on how many each is scored, at least 1.
        count: exact number of right answers of a genome.
        paid: charges one generation.
        noise: source of the noise.

    """

    def __init__(
        self, scoring: Scoring, samples: int, count: Count, paid: Paid, noise: NoiseSource
    ) -> None:
        self._scoring, self._samples, self._count = scoring, samples, count
        self._paid, self._noise = paid, noise
        self.weights: dict[Genome, bytes] = {}

    def evaluate(
        self, generation: int, genomes: Sequence[Genome], parents: Mapping[Genome, Genome]
    ) -> list[Evaluation]:
        """One noised share of right answers a genome, clipped to [0, 1]."""
        if len(genomes) > self._scoring.population:
            raise PanasError(
                f"expected at most {self._scoring.population} candidates, which are paid for, got "
                f"{len(genomes)}; report this"
            )
        scale = self._scoring.noise * math.sqrt(len(genomes) / self._scoring.population)
        with self._paid():
            shares = [
                _unit(noised_share(self._count(g), self._samples, scale, self._noise))
                for g in genomes
            ]
        return [
            Evaluation(str(genome), share, generation, failed=False, scores=(share,))
            for genome, share in zip(genomes, shares, strict=True)
        ]

    def remember(self, evaluation: Evaluation) -> None:
        """Nothing: scores do not depend on earlier ones."""


def select(
    space: SearchSpace,
    count: Count,
    *,
    scoring: Scoring,
    samples: int,
    paid: Paid,
    noise: NoiseSource,
) -> tuple[Genome, float]:
    """The best of a random number of random genomes, and its noised share; charged first.

    Privacy: `scoring.search_event`; covers the genome and its score, and nothing else: not how
    many candidates there were, nor what they were, nor how long it took.
    """
    with paid():
        found = []
        for _ in range(geometric(float(scoring.candidates), noise)):
            genome = random_genome(space, _fresh(noise))
            found.append((noised_share(count(genome), samples, scoring.noise, noise), genome))
        share, best = max(found, key=lambda pair: pair[0])
        return best, _unit(share)


def geometric(mean: float, noise: NoiseSource) -> int:
    """A geometric number of candidates: 1, 2, ..., of the given mean (at least 1)."""
    if mean <= 1:
        return 1
    u = float(noise.uniform(1))
    return 1 + math.floor(math.log1p(-u) / math.log1p(-1 / mean))


def _fresh(noise: NoiseSource) -> np.random.Generator:
    """A generator that nobody can repeat unless `noise` can be."""
    return np.random.default_rng([int(u * 2**53) for u in noise.uniform(4).tolist()])


def _unit(share: float) -> float:
    return min(1.0, max(0.0, share))
