"""What the search saves: a cache, rungs, seeding, ties and screening."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_fitness import Curves, plain, unit
from toy_search import CONFIG, SMALL, TINY, by_size, populations, prior_score, run

from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.records import (
    EvolutionConfig,
    ZeroCostScore,
)
from panas.evolution.surrogate import Predictor
from panas.runtime.journal import Journal


@pytest.mark.parametrize("size", [None, by_size], ids=["accuracy", "and size"])
@pytest.mark.parametrize("prior", [None, ZeroCostScore(prior_score, 7)], ids=["no prior", "prior"])
@pytest.mark.parametrize("screening", [1, 4])
def test_records_add_up_to_the_history(
    size: Callable[[Genome], float] | None,
    prior: ZeroCostScore | None,
    screening: int,
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
        passes += sum(e.passes for e in new) + 7 * len(line["priors"])
        assert record["passes"] == passes
        members = [result.history[i] for i in line["population"]]
        values = [e.fitness for e in members]
        found = [record[key] for key in ("mean", "std", "min")]
        assert found == pytest.approx([np.mean(values), np.std(values), min(values)])
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
    calls: Counter[Genome] = Counter()

    def fitness(genome: Genome) -> float:
        calls[genome] += 1
        return plain(genome)

    config = EvolutionConfig.paper(population=8, generations=12)
    result = run(fitness, space=SMALL, config=replace(config, cache=cache))
    assert calls.total() == result.evaluations
    assert (max(calls.values()) == 1) == cache  # without one, this search trains some again
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
    screening: int, survival: Any, size: Callable[[Genome], float] | None
) -> None:
    calls: Counter[Genome] = Counter()

    def fitness(genome: Genome) -> float:
        calls[genome] += 1
        return plain(genome)

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
    assert set(calls) == everyone
    assert set(calls.values()) == {1}
    assert len(result.logbook) == config.generations + 1
    assert result.best == max(everyone, key=plain)
    assert result.logbook[-1]["evaluations"] == 0
    for members in populations(journal):
        assert len(set(members)) == len(members) <= config.population


@pytest.mark.slow
@pytest.mark.parametrize("survival", ["best", "roulette"])
def test_a_space_of_one_genome(survival: Any) -> None:
    space = SearchSpace(
        shape=(1, 3, 3), min_blocks=1, max_blocks=1, widths=(4,), kernels=(3,), pools=()
    )
    config = EvolutionConfig(population=3, generations=2, survival=survival)
    result = run(plain, space=space, config=config)
    assert (result.evaluations, str(result.best)) == (1, "c4k3")


def drawn_at_first(seed: int, count: int, space: SearchSpace = SMALL) -> list[Genome]:
    """The first different genomes that a generator gives."""
    rng = np.random.default_rng(seed)
    drawn: dict[Genome, None] = {}
    while len(drawn) < count:
        drawn[random_genome(space, rng)] = None
    return list(drawn)


@pytest.mark.parametrize("seeding", [1, 2, 5])
def test_the_first_population_is_the_most_promising(seeding: int) -> None:
    scored: Counter[Genome] = Counter()

    def score(genome: Genome) -> float:
        scored[genome] += 1
        return prior_score(genome)

    config = replace(CONFIG, seeding=seeding, generations=0)
    result = run(plain, config=config, prior=ZeroCostScore(score, 7))
    drawn = drawn_at_first(0, 6 * seeding)
    if seeding > 1:
        best = sorted(drawn, key=prior_score, reverse=True)[:6]
        assert [e.genome for e in result.history] == best
        assert set(scored) == set(drawn)
    else:
        assert [e.genome for e in result.history] == drawn
        assert not scored
    assert result.passes == 7 * len(scored)
    assert set(scored.values()) <= {1}
    assert run(plain, config=config).history[0].genome == drawn[0]  # no prior, no seeding


def test_between_equals_the_prior_decides() -> None:
    journal = Journal(None, {})
    flat = run(lambda _: 0.5, journal=journal, prior=ZeroCostScore(prior_score, 7))
    everyone = [e.genome for e in flat.history]
    assert flat.best == max(everyone, key=prior_score)
    top = sorted(range(len(everyone)), key=lambda i: prior_score(everyone[i]), reverse=True)[:6]
    assert set(populations(journal)[-1]) == set(top)
    # A better accuracy beats any prior, and who is no equal of anybody is not scored.
    unequal = Journal(None, {})
    config = replace(CONFIG, seeding=1)
    result = run(
        lambda g: unit(str(g)), config=config, journal=unequal, prior=ZeroCostScore(prior_score)
    )
    assert result.fitness == max(e.fitness for e in result.history)
    assert not any(line["priors"] for line in unequal.lines)


@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan])
def test_a_prior_that_is_no_number_for_some_does_not_stop_the_search(value: float) -> None:
    def score(genome: Genome) -> float:
        return value if "c4" in str(genome) else prior_score(genome)

    result = run(lambda _: 0.5, prior=ZeroCostScore(score))
    chosen = "c4" in str(result.best)
    assert chosen == (value == math.inf)


def rises(genome: Genome) -> float:
    """Deep genomes of wide kernels are good: what a predictor can learn."""
    return min(1.0, (len(genome.blocks) + 2 * str(genome).count("k5")) / 30)


@pytest.mark.thorough
def test_screening_finds_more_with_the_same_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EvolutionConfig(population=5, generations=3, screening=10, rungs=())

    def found(screening: int) -> list[float]:
        chosen = replace(config, screening=screening)
        return [
            run(rises, seed, SearchSpace(shape=(3, 16, 16)), chosen).logbook[-1]["mean"]
            for seed in range(6)
        ]

    with_it, without = found(10), found(1)
    learn = Predictor.__init__

    def shuffled(self: Predictor, X: np.ndarray, y: np.ndarray, like: np.ndarray) -> None:
        learn(self, X, np.random.default_rng(len(y)).permutation(y), like)

    assert np.mean(with_it) > np.mean(without) + 0.03
    monkeypatch.setattr(Predictor, "__init__", shuffled)  # the planted bug
    assert np.mean(found(10)) < np.mean(with_it) - 0.03


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32))
def test_staged_searches_give_valid_genomes_only(seed: int) -> None:
    result = run(seed=seed, config=replace(CONFIG, generations=2))
    assert all(SMALL.allows(e.genome) for e in result.history)
