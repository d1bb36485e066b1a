"""Noised scores: their noise, their price, and that only the winner of a selection leaves."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.evolution.genetic import evolve
from panas.evolution.noised_selection import (
    NoisedScores,
    Scoring,
    calibrate_candidates,
    calibrate_scores,
    geometric,
    noised_share,
    select,
)
from panas.evolution.records import EvolutionConfig
from panas.privacy.accounting.events import (
    ADD_OR_REMOVE,
    REPLACE,
    Gaussian,
    PrivateSelection,
    Relation,
)
from panas.privacy.budget import Budget
from panas.privacy.noise import ReproducibleNoise, SystemNoise
from panas.privacy.plan import Plan, epsilon_of
from panas.runtime.errors import BudgetExhausted, PanasError
from panas.runtime.seeds import stream

BUDGET = Budget(4.0, 1e-5)
SPACE = SearchSpace(shape=(1, 8, 8), min_blocks=2, max_blocks=3, widths=(4, 8))
PLAN = Plan(samples=60, batch_size=20, clip=1.0, noise_multiplier=1.0, epochs=2, rounds=1)


def scoring(algorithm: str = "genetic", noise: float = 3.0, trials: int = 4) -> Scoring:
    return Scoring(
        algorithm="random" if algorithm == "random" else "genetic",
        population=4,
        generations=2,
        trials=trials,
        noise=noise,
    )


class Till:
    """Counts charges, and knows whether one is open."""

    def __init__(self) -> None:
        self.charges, self.open = 0, False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.charges += 1
        self.open = True
        yield
        self.open = False


def test_genetic_scores_compose_to_as_many_gaussians_as_there_are_scores():
    s = scoring()
    one_each = [Gaussian(3.0)] * (s.candidates + s.trials)
    assert epsilon_of(s.events(), BUDGET) == pytest.approx(epsilon_of(one_each, BUDGET), rel=1e-6)
    assert len(s.events()) == 3 + 4


def test_a_random_search_is_one_selection_and_cheaper_than_composition():
    s = scoring("random", trials=0)
    assert s.events() == (PrivateSelection(Gaussian(3.0), 1, 12.0, 1.0),)
    assert epsilon_of(s.events(), BUDGET) < epsilon_of(scoring(trials=0).events(), BUDGET)


@pytest.mark.parametrize("algorithm", ["genetic", "random"])
@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
@pytest.mark.parametrize("spent", [(), (Gaussian(3.0),)])
def test_calibrated_noise_is_the_least_that_fits(algorithm: str, relation: Relation, spent: tuple):
    s = calibrate_scores(scoring(algorithm), BUDGET, spent, relation)
    total = epsilon_of([*spent, *s.events()], BUDGET, relation=relation)
    assert 0.98 * BUDGET.epsilon < total <= BUDGET.epsilon


@pytest.mark.parametrize("algorithm", ["genetic", "random"])
def test_candidates_trained_by_dp_sgd_fit_all_together(algorithm: str):
    s = scoring(algorithm)
    plan = calibrate_candidates(s, BUDGET, PLAN)
    assert 0.97 * BUDGET.epsilon < epsilon_of(s.training_events(plan), BUDGET) <= BUDGET.epsilon
    assert plan.samples == PLAN.samples


def test_a_budget_that_is_spent_says_what_to_do():
    with pytest.raises(BudgetExhausted, match="data-free") as e:
        calibrate_scores(scoring(), BUDGET, [Gaussian(0.5)])
    assert "\n" not in str(e.value)
    with pytest.raises(BudgetExhausted, match="data-free"):
        calibrate_candidates(scoring(), Budget(1e-4, 1e-6), PLAN)


def residuals(scale: float, draws: int = 2000) -> np.ndarray:
    noise = ReproducibleNoise(stream(0, "noise"))
    return np.array([noised_share(30.0, 40, scale, noise) * 40 - 30 for _ in range(draws)])


def test_a_share_has_gaussian_noise_of_the_stated_size():
    assert kstest(residuals(3.0) / 3.0, "norm").pvalue > 1e-3
    # Planted: no noise, and half the noise.
    assert kstest(residuals(0.0), "norm").pvalue < 1e-6
    assert kstest(residuals(1.5) / 3.0, "norm").pvalue < 1e-6


def generation_noise(genomes: int, noise: float = 8.0) -> np.ndarray:
    """Errors of many generations of so many new genomes, in samples."""
    source = ReproducibleNoise(stream(1, "noise"))
    scores = NoisedScores(scoring(noise=noise), 10_000, lambda _: 5000.0, Till(), source)
    some = [Genome.parse("c4k3-c4k3")] * genomes
    found = [e.fitness for k in range(600) for e in scores.evaluate(k, some, {})]
    return np.array(found) * 1e4 - 5000


@pytest.mark.parametrize(("genomes", "expected"), [(4, 8.0), (1, 4.0)])
def test_a_generation_shares_its_charge_among_its_new_genomes(genomes: int, expected: float):
    assert kstest(generation_noise(genomes) / expected, "norm").pvalue > 1e-3
    planted = generation_noise(genomes, noise=0.0)  # exact scores
    assert kstest(planted / expected, "norm").pvalue < 1e-6


def test_every_generation_is_charged_once_before_any_of_its_genomes_is_scored():
    till, s = Till(), scoring()
    seen = []

    def count(genome: Genome) -> float:
        assert till.open
        seen.append((till.charges, genome))
        return 20.0

    found = evolve(
        SPACE,
        count,
        config=EvolutionConfig(population=4, generations=2, offspring=4),
        rng=stream(0),
        evaluator=NoisedScores(s, 40, count, till, SystemNoise()),
    )
    assert till.charges == 3  # also where a generation has nothing new
    assert {generation for generation, _ in seen} <= {1, 2, 3}
    assert all(0 <= e.fitness <= 1 for e in found.history)
    assert len({e.fitness for e in found.history}) > 1  # noised, though all counts are alike


def test_no_generation_holds_more_candidates_than_were_paid_for():
    till = Till()
    scores = NoisedScores(scoring(), 40, lambda _: 20.0, till, SystemNoise())
    some = [Genome.parse("c4k3-c4k3")] * 5  # of a population of 4
    with pytest.raises(PanasError, match="at most 4"):
        scores.evaluate(1, some, {})
    assert till.charges == 0


def test_the_number_of_candidates_is_geometric():
    noise = ReproducibleNoise(stream(2, "noise"))

    def pvalue(draws: np.ndarray, mean: float = 5.0) -> float:
        p, last = 1 / mean, 12
        expected = [p * (1 - p) ** k for k in range(last)]
        observed = [int((draws == k + 1).sum()) for k in range(last)]
        expected.append(1 - sum(expected))
        observed.append(len(draws) - sum(observed))
        return float(chisquare(observed, np.array(expected) * len(draws)).pvalue)

    draws = np.array([geometric(5.0, noise) for _ in range(4000)])
    assert draws.min() == 1
    assert pvalue(draws) > 1e-3
    # Planted: a Poisson number, and a geometric one that may be 0.
    rng = np.random.default_rng(0)
    assert pvalue(rng.poisson(5.0, 4000)) < 1e-6
    assert pvalue(draws - 1) < 1e-6
    assert {geometric(1.0, noise) for _ in range(20)} == {1}


def selected(noise: SystemNoise | ReproducibleNoise, till: Till | None = None) -> list[str]:
    """The genomes that a selection looked at, the winner last."""
    till, seen = till or Till(), []

    def count(genome: Genome) -> float:
        assert till.open
        seen.append(str(genome))
        return 30.0 * len(seen) if len(seen) < 3 else 0.0

    best, share = select(
        SPACE, count, scoring=scoring("random"), samples=100, paid=till, noise=noise
    )
    assert 0 <= share <= 1
    return [*seen, str(best)]


def test_a_selection_charges_once_and_returns_the_best():
    till = Till()
    *seen, best = selected(ReproducibleNoise(stream(5, "noise")), till)
    assert till.charges == 1
    assert len(seen) >= 2
    assert best == seen[1]


def test_nobody_can_foresee_the_candidates_of_a_selection():
    fixed = [selected(ReproducibleNoise(stream(5, "noise"))) for _ in range(2)]
    assert fixed[0] == fixed[1]
    assert len({tuple(selected(SystemNoise())) for _ in range(4)}) > 1
