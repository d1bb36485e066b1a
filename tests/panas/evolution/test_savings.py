"""Who becomes a parent and who goes on, and what the search saves by a cache, rungs, seeding."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from deap import tools
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from toy_fitness import Counted, Curves, plain, unit
from toy_search import CONFIG, SMALL, TINY, by_size, evaluation, populations, prior_score, run

from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import Outcome, TrainingJob
from panas.evolution.records import EvolutionConfig, EvolutionResult, GenomeScore
from panas.evolution.surrogate import Predictor
from panas.evolution.toolbox import Individual, accuracies, roulette, survivors, tournament, worth
from panas.runtime.journal import Journal


@pytest.mark.parametrize("size", [None, by_size], ids=["accuracy", "and size"])
@pytest.mark.parametrize("prior", [None, prior_score], ids=["no prior", "prior"])
@pytest.mark.parametrize("screening", [1, 4])
def test_records_add_up_to_the_history(
    size: GenomeScore | None, prior: GenomeScore | None, screening: int
) -> None:
    config = replace(CONFIG, screening=screening)
    journal, fitness = Journal(None, {}), Curves()
    result = run(fitness, config=config, journal=journal, size=size, prior=prior)
    passes = 0
    for record, line in zip(result.logbook, journal.lines, strict=True):
        new = [e for e in result.history if e.generation == record["generation"]]
        assert [str(e.genome) for e in new] == [e["genome"] for e in line["history"]]
        assert record["evaluations"] == len(new) <= config.population
        assert record["failed"] == sum(e.failed for e in new)
        assert record["dropped"] == sum(e.dropped for e in new)
        assert record["cached"] <= config.population
        passes += sum(e.passes for e in new)
        assert record["passes"] == passes
        members = [result.history[i] for i in line["population"]]
        values = [e.fitness for e in members]
        statistics = [record[key] for key in ("mean", "std", "min")]
        assert statistics == pytest.approx([np.mean(values), np.std(values), min(values)])
    assert passes == result.passes
    assert len(result.history) == result.evaluations
    assert sum(e.failed for e in result.history) > 0
    assert sum(e.dropped for e in result.history) > 0
    # No job is done twice, so none is trained twice; a job that was done is in the history.
    done = [(job.genome, job.share) for job in fitness.calls]
    assert len(set(done)) == len(done)
    assert {job.genome for job in fitness.calls} == {e.genome for e in result.history}
    if not any(e.failed for e in result.history):
        assert sum(e.passes for e in result.history) == 100 * result.evaluations


@pytest.mark.parametrize("cache", [True, False])
def test_no_genome_is_trained_twice_with_a_cache(cache: bool) -> None:
    fitness = Counted(plain)
    config = EvolutionConfig.paper(population=8, generations=12)
    result = run(fitness, space=SMALL, config=replace(config, cache=cache))
    assert fitness.calls.total() == result.evaluations
    assert (max(fitness.calls.values()) == 1) == cache  # without one, this search trains some again
    met = sum(record["cached"] for record in result.logbook)
    assert met > 0
    if cache:
        # Who was met was made new: every child costs a training.
        assert result.evaluations == 8 * 13


@pytest.mark.slow
@pytest.mark.parametrize("screening", [1, 3])
@pytest.mark.parametrize("survival", ["best", "roulette"])
@pytest.mark.parametrize("size", [None, by_size], ids=["accuracy", "and size"])
def test_a_space_that_is_exhausted_ends_the_training_and_not_the_search(
    screening: int, survival: Any, size: GenomeScore | None
) -> None:
    fitness = Counted(plain)
    everyone = {random_genome(TINY, np.random.default_rng(i)) for i in range(100)}
    config = EvolutionConfig(
        population=12,
        generations=2,
        initial=None,
        screening=screening,
        survival=survival,
        mutation=0.5,
    )
    journal = Journal(None, {})
    result = run(fitness, space=TINY, config=config, size=size, journal=journal)
    assert set(fitness.calls) == everyone
    assert set(fitness.calls.values()) == {1}
    assert len(result.logbook) == config.generations + 1
    assert result.best == max(everyone, key=plain)
    assert result.logbook[-1]["evaluations"] == 0
    for members in populations(journal):
        assert len(set(members)) == len(members) <= config.population


def drawn_at_first(seed: int, count: int, space: SearchSpace = SMALL) -> list[Genome]:
    """The first different genomes that a generator gives."""
    rng = np.random.default_rng(seed)
    drawn: dict[Genome, None] = {}
    while len(drawn) < count:
        drawn[random_genome(space, rng)] = None
    return list(drawn)


@pytest.mark.parametrize("seeding", [1, 2, 5])
def test_the_first_population_is_the_most_promising(seeding: int) -> None:
    score = Counted(prior_score)
    config = replace(CONFIG, seeding=seeding, generations=0)
    result = run(plain, config=config, prior=score)
    drawn = drawn_at_first(0, 6 * seeding)
    if seeding > 1:
        best = sorted(drawn, key=prior_score, reverse=True)[:6]
        assert [e.genome for e in result.history] == best
        assert set(score.calls) == set(drawn)
    else:
        assert [e.genome for e in result.history] == drawn
        assert not score.calls
    assert set(score.calls.values()) <= {1}
    assert run(plain, config=config).history[0].genome == drawn[0]  # no prior, no seeding


@pytest.mark.slow
def test_between_equals_the_prior_decides() -> None:
    journal = Journal(None, {})
    flat = run(lambda _: 0.5, journal=journal, prior=prior_score)
    everyone = [e.genome for e in flat.history]
    assert flat.best == max(everyone, key=prior_score)
    top = sorted(range(len(everyone)), key=lambda i: prior_score(everyone[i]), reverse=True)[:6]
    assert set(populations(journal)[-1]) == set(top)
    # A better accuracy beats any prior, and who is no equal of anybody is not scored.
    unequal = Journal(None, {})
    config = replace(CONFIG, seeding=1)
    result = run(lambda g: unit(str(g)), config=config, journal=unequal, prior=prior_score)
    assert result.fitness == max(e.fitness for e in result.history)
    assert not any(line["priors"] for line in unequal.lines)


@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan])
def test_a_prior_that_is_no_number_for_some_does_not_stop_the_search(value: float) -> None:
    def score(genome: Genome) -> float:
        return value if "c4" in str(genome) else prior_score(genome)

    result = run(lambda _: 0.5, prior=score)
    chosen = "c4" in str(result.best)
    assert chosen == (value == math.inf)


def rises(genome: Genome) -> float:
    """Deep genomes of wide kernels are good: what a predictor can learn."""
    return min(1.0, (len(genome.blocks) + 2 * str(genome).count("k5")) / 30)


@pytest.mark.thorough
def test_screening_finds_more_with_the_same_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EvolutionConfig(population=5, generations=3, screening=10, rungs=())

    def last_means(screening: int) -> list[float]:
        chosen = replace(config, screening=screening)
        return [
            run(rises, seed, SearchSpace(shape=(3, 16, 16)), chosen).logbook[-1]["mean"]
            for seed in range(6)
        ]

    with_it, without = last_means(10), last_means(1)
    learn = Predictor.__init__

    def shuffled(self: Predictor, X: np.ndarray, y: np.ndarray, like: np.ndarray) -> None:
        learn(self, X, np.random.default_rng(len(y)).permutation(y), like)

    assert np.mean(with_it) > np.mean(without) + 0.03
    monkeypatch.setattr(Predictor, "__init__", shuffled)  # the planted bug
    assert np.mean(last_means(10)) < np.mean(with_it) - 0.03


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32))
def test_staged_searches_give_valid_genomes_only(seed: int) -> None:
    result = run(seed=seed, config=replace(CONFIG, generations=2))
    assert all(SMALL.allows(e.genome) for e in result.history)


values_drawn = st.lists(
    st.floats(0, 1, allow_subnormal=False) | st.just(0.0), min_size=2, max_size=12
).map(np.array)


def test_tournaments_are_between_different_individuals_and_prefer_the_better() -> None:
    # With two individuals the better always wins; drawing one twice, the worse wins 1 in 4.
    rng = np.random.default_rng(0)
    assert {tournament(np.array([0.2, 0.7]), rng) for _ in range(200)} == {1}
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


@pytest.mark.slow
def test_the_wheel_is_proportional_to_accuracy_and_uniform_when_nobody_is_accurate() -> None:
    rng = np.random.default_rng(2)
    weights = np.array([0.1, 0.2, 0.3, 0.9])
    first = [roulette(weights, 1, rng)[0] for _ in range(2000)]
    assert roulette_pvalue(first, weights) > 1e-4
    uniform = rng.integers(4, size=2000).tolist()  # the planted bug
    assert roulette_pvalue(uniform, weights) < 1e-4
    # Without replacement, the second draw is proportional among those that are left.
    second = [pair[1] for pair in (roulette(weights, 2, rng) for _ in range(6000)) if pair[0] == 3]
    assert roulette_pvalue(second, weights[:3]) > 1e-4
    draws = [roulette(np.zeros(4), 1, rng)[0] for _ in range(2000)]
    assert roulette_pvalue(draws, np.ones(4)) > 1e-4
    # One with accuracy comes first, the rest are drawn all the same.
    assert roulette(np.array([0.0, 0.0, 1.0]), 3, rng)[0] == 2


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
    assert result.front == [(result.best, result.fitness, 0.0)]  # of one objective


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
    trained = {(e.genome, e.fitness, e.size) for e in result.history if e.trained}
    naive = {
        (g, a, s) for g, a, s in trained if not any(beaten((a, s), (b, t)) for _, b, t in trained)
    }
    assert set(result.front) == naive
    assert len(result.front) == len(naive) >= (2 if fitness is costly else 1)
    sizes = [s for _, _, s in result.front]
    assert sizes == sorted(sizes)
    assert all(s == by_size(g) for g, _, s in result.front)
    assert result.fitness == max(a for _, a, _ in trained)
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


def test_the_tournament_of_two_objectives_is_by_front_and_then_by_crowding() -> None:
    points = [(0.9, 9.0), (0.5, 4.0), (0.45, 3.9), (0.1, 1.0), (0.4, 5.0), (0.05, 6.0)]
    population = [Individual(i, evaluation(a, size=s), two=True) for i, (a, s) in enumerate(points)]
    population.append(Individual(6, evaluation(0.0, "failed", size=0.5), two=True))
    a, b, c, d, e, f, g = worth(tuple(population))
    assert a == d > b > e > f > g  # the ends of the first front, its middle, the other fronts
    assert a > c > e
    # By hand: b stands between a and c, c between b and d.
    assert (b > c) == ((0.45 + 5.1 / 8 / 0.8 * 0.8) > (0.4 + 3.0 / 8))
