"""Who becomes a parent and who goes on, with one objective and with two."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from deap import tools
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from toy_fitness import Curves, plain
from toy_search import CONFIG, by_size, evaluation, prior_score, run

from panas.architecture.genome import Genome
from panas.evolution.fitness import Outcome, TrainingJob
from panas.evolution.records import (
    EvolutionResult,
)
from panas.evolution.selection import Individual, accuracies, roulette, survivors, tournament, worth
from panas.runtime.journal import Journal

values_drawn = st.lists(
    st.floats(0, 1, allow_subnormal=False) | st.just(0.0), min_size=2, max_size=12
).map(np.array)


def test_a_tournament_is_between_two_different_individuals() -> None:
    # With two individuals the better always wins; drawing one twice, the worse wins 1 in 4.
    rng = np.random.default_rng(0)
    assert {tournament(np.array([0.2, 0.7]), rng) for _ in range(200)} == {1}


def test_a_tournament_of_many_prefers_the_better_as_it_should() -> None:
    rng = np.random.default_rng(1)
    wins = Counter(tournament(np.array([0.1, 0.2, 0.3, 0.4]), rng) for _ in range(3000))
    counts = [wins[i] for i in range(4)]
    assert counts[0] == 0  # the worst beats nobody but itself
    assert chisquare(counts[1:], np.array([1, 2, 3]) / 6 * 3000).pvalue > 1e-4
    planted = Counter(rng.integers(4, size=(3000, 2)).max(axis=1).tolist())  # with replacement
    assert planted[0] > 0
    ties = Counter(tournament(np.array([0.5, 0.5]), rng) for _ in range(1000))
    assert chisquare([ties[0], ties[1]]).pvalue > 1e-4


def roulette_pvalue(draws: list[int], weights: np.ndarray) -> float:
    counts = np.bincount(draws, minlength=len(weights))
    return float(chisquare(counts, weights / weights.sum() * len(draws)).pvalue)


def test_the_wheel_is_proportional_to_accuracy() -> None:
    rng = np.random.default_rng(2)
    weights = np.array([0.1, 0.2, 0.3, 0.9])
    first = [roulette(weights, 1, rng)[0] for _ in range(2000)]
    assert roulette_pvalue(first, weights) > 1e-4
    uniform = rng.integers(4, size=2000).tolist()  # the planted bug
    assert roulette_pvalue(uniform, weights) < 1e-4
    # Without replacement, the second draw is proportional among those that are left.
    second = [pair[1] for pair in (roulette(weights, 2, rng) for _ in range(6000)) if pair[0] == 3]
    assert roulette_pvalue(second, weights[:3]) > 1e-4


@given(values_drawn, st.integers(0, 2**32), st.data())
def test_survivors_are_distinct_and_hold_the_elite(
    values: np.ndarray, seed: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(values)))
    chosen = survivors(values, size, np.random.default_rng(seed))
    assert len(set(chosen)) == len(chosen) == size
    assert values[chosen].max() == values.max()


def test_the_elite_replaces_the_worst_of_the_drawn() -> None:
    values = np.array([0.9, 0.01, 0.5, 0.6, 0.4])
    met = 0
    for seed in range(200):
        drawn = roulette(values, 3, np.random.default_rng(seed))
        kept = survivors(values, 3, np.random.default_rng(seed))
        if 0 in drawn:
            assert kept == drawn
        else:
            met += 1
            worst = min(drawn, key=lambda i: values[i])
            assert kept == [0 if i == worst else i for i in drawn]
    assert met > 0


def test_the_wheel_is_uniform_when_nobody_is_accurate() -> None:
    rng = np.random.default_rng(3)
    draws = [roulette(np.zeros(4), 1, rng)[0] for _ in range(2000)]
    assert roulette_pvalue(draws, np.ones(4)) > 1e-4
    # One with accuracy comes first, the rest are drawn all the same.
    assert roulette(np.array([0.0, 0.0, 1.0]), 3, rng)[0] == 2


fates = st.sampled_from(["trained", "trained", "dropped", "failed"])


members = st.lists(
    st.tuples(st.integers(0, 10).map(lambda i: i / 10), fates), min_size=2, max_size=12
)


@given(members)
def test_who_was_dropped_never_beats_who_was_trained(drawn: list[tuple[float, str]]) -> None:
    everyone = [Individual(i, evaluation(*one), two=False) for i, one in enumerate(drawn)]
    values = accuracies(everyone)
    for a, b in zip(everyone, values, strict=True):
        for c, d in zip(everyone, values, strict=True):
            if a.evaluation.trained and c.evaluation.trained:
                assert (b > d) == (a.evaluation.fitness > c.evaluation.fitness)
            if a.evaluation.trained and a.evaluation.fitness > 0 and c.evaluation.dropped:
                assert b > d
            if a.evaluation.dropped and c.evaluation.failed:
                assert b >= d
    assert all(
        w == i.evaluation.fitness
        for i, w in zip(everyone, values, strict=True)
        if not i.evaluation.dropped
    )


@pytest.mark.thorough
@pytest.mark.parametrize("survival", ["best", "roulette"])
@pytest.mark.parametrize("seed", range(6))
def test_the_elite_survives_and_was_trained_to_the_end(survival: Any, seed: int) -> None:
    config = replace(CONFIG, survival=survival, population=3, generations=8)
    journal = Journal(None, {})
    result = run(seed=seed, config=config, journal=journal)
    history = result.history
    for number, line in enumerate(journal.lines):
        so_far = [e for e in history if e.generation <= number]
        members = [history[i] for i in line["population"]]
        best = max((e.fitness for e in so_far if e.trained), default=None)
        if best is not None:
            assert best == line["best"] == max(e.fitness for e in members if e.trained)
        if survival == "best" and number:
            before = journal.lines[number - 1]["population"]
            pool = [*before, *(i for i, e in enumerate(history) if e.generation == number)]
            order = sorted(
                pool, key=lambda i: (history[i].trained, history[i].fitness), reverse=True
            )
            ranks = [(history[i].trained, history[i].fitness) for i in order[:3]]
            kept = [(history[i].trained, history[i].fitness) for i in line["population"]]
            assert sorted(kept) == sorted(ranks)
    assert any(e.dropped for e in history)


class LeadFails:
    """Staged: only those that stop early have an accuracy."""

    def advance(self, job: TrainingJob) -> Outcome:
        return Outcome(math.nan if job.share == 1 else prior_score(job.genome), 1, b"state")


def test_who_was_dropped_is_better_than_who_failed() -> None:
    result = run(LeadFails(), config=replace(CONFIG, rungs=(0.5,), generations=2))
    dropped = [e for e in result.history if e.dropped]
    assert len(dropped) + sum(e.failed for e in result.history) == len(result.history)
    assert result.fitness == max(e.fitness for e in dropped) > 0


def beaten(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether the first (accuracy, size) is no better in either, and worse in one."""
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def costly(genome: Genome) -> float:
    """Accuracy that has to be paid for in size."""
    return 0.5 * plain(genome) + by_size(genome) / 64


@pytest.mark.parametrize("fitness", [costly, Curves()], ids=["plain", "staged"])
@pytest.mark.parametrize("seed", range(3))
def test_the_front_is_of_all_that_none_beats(fitness: Any, seed: int) -> None:
    journal = Journal(None, {})
    result = run(fitness, seed, size=by_size, journal=journal)
    found = {(e.genome, e.fitness, e.size) for e in result.history if e.trained}
    naive = {(g, a, s) for g, a, s in found if not any(beaten((a, s), (b, t)) for _, b, t in found)}
    assert set(result.front) == naive
    assert len(result.front) == len(naive) >= (2 if fitness is costly else 1)
    sizes = [s for _, _, s in result.front]
    assert sizes == sorted(sizes)
    assert all(s == by_size(g) for g, _, s in result.front)
    assert result.fitness == max(a for _, a, _ in found)
    assert (result.best, result.fitness) in {(g, a) for g, a, _ in result.front}
    check_selection(result, journal)


def check_selection(result: EvolutionResult, journal: Journal) -> None:
    """Every population is what DEAP's NSGA-II picks of parents and offspring."""
    history = result.history

    def individual(i: int) -> Individual:
        return Individual(i, history[i], two=True)

    for number, line in enumerate(journal.lines[1:], start=1):
        new = [i for i, e in enumerate(history) if e.generation == number]
        pool = [individual(i) for i in [*journal.lines[number - 1]["population"], *new]]
        assert line["population"] == [i.index for i in tools.selNSGA2(pool, 6)]
        assert len(line["population"]) == 6
        if sum(not i.evaluation.failed for i in pool) >= 6:
            assert not any(history[i].failed for i in line["population"])


def test_with_one_objective_the_front_is_the_best() -> None:
    result = run()
    assert result.front == [(result.best, result.fitness, 0.0)]


def test_the_tournament_of_two_objectives_is_by_front_and_then_by_crowding() -> None:
    points = [(0.9, 9.0), (0.5, 4.0), (0.45, 3.9), (0.1, 1.0), (0.4, 5.0), (0.05, 6.0)]
    population = [Individual(i, evaluation(a, size=s), two=True) for i, (a, s) in enumerate(points)]
    population.append(Individual(6, evaluation(0.0, "failed", size=0.5), two=True))
    a, b, c, d, e, f, g = worth(tuple(population))
    assert a == d > b > e > f > g  # the ends of the first front, its middle, the other fronts
    assert a > c > e
    # By hand: b stands between a and c, c between b and d.
    assert (b > c) == ((0.45 + 5.1 / 8 / 0.8 * 0.8) > (0.4 + 3.0 / 8))
