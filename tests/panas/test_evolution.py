"""The genetic search: its selections, its bookkeeping, and that it searches."""

import hashlib
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from panas.errors import BadInput
from panas.evolution import (
    EvolutionConfig,
    EvolutionResult,
    GenerationRecord,
    evolve,
    roulette,
    survivors,
    tournament,
)
from panas.genome import ConvBlock, Genome
from panas.space import SearchSpace, random_genome

SPACE = SearchSpace(shape=(3, 16, 16))
TARGET = Genome.parse("c16k3-max-c32k5-c64k3-avg-c128k5").blocks
accuracies = st.lists(
    st.floats(0, 1, allow_subnormal=False) | st.just(0.0), min_size=2, max_size=12
).map(np.array)


def likeness(genome: Genome) -> float:
    """An easy landscape: the share of positions that agree with a target."""
    same = sum(a == b for a, b in zip(genome.blocks, TARGET, strict=False))
    return same / max(len(genome.blocks), len(TARGET))


def search(seed: int = 0, **sizes: float) -> EvolutionResult:
    return evolve(
        SPACE, likeness, config=EvolutionConfig.paper(**sizes), rng=np.random.default_rng(seed)
    )


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


@given(accuracies, st.integers(0, 2**32), st.data())
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


def test_the_best_never_gets_worse_and_is_the_best_of_all() -> None:
    result = search(seed=4, population=6, generations=12)
    best = [record["best"] for record in result.logbook]
    assert best == sorted(best)
    assert result.fitness == max(e.fitness for e in result.history) == best[-1]
    assert likeness(result.best) == result.fitness
    assert result.logbook[-1]["best_genome"] == str(result.best)


def test_only_the_changed_are_evaluated() -> None:
    calls = 0

    def fitness(_: Genome) -> float:
        nonlocal calls
        calls += 1
        return 0.5

    config = EvolutionConfig.paper(population=5, generations=7, crossover=0.0, mutation=0.0)
    result = evolve(SPACE, fitness, config=config, rng=np.random.default_rng(0))
    assert calls == result.evaluations == 5
    config = EvolutionConfig.paper(population=5, generations=7, crossover=0.0, mutation=1.0)
    result = evolve(SPACE, fitness, config=config, rng=np.random.default_rng(0))
    assert calls - 5 == result.evaluations == 5 * 8  # a mutant always differs from its parent


@pytest.mark.parametrize(("population", "generations"), [(2, 3), (5, 4), (10, 0), (1, 0)])
def test_counts_and_records(population: int, generations: int) -> None:
    seen: list[GenerationRecord] = []
    result = evolve(
        SPACE,
        likeness,
        config=EvolutionConfig.paper(population=population, generations=generations),
        rng=np.random.default_rng(5),
        on_generation=seen.append,
    )
    assert seen == result.logbook
    assert [record["generation"] for record in seen] == list(range(generations + 1))
    assert sum(record["evaluations"] for record in seen) == result.evaluations
    assert len(result.history) == result.evaluations
    assert seen[0]["evaluations"] == population
    assert all(record["evaluations"] <= population for record in seen)
    assert json.loads(json.dumps(result.logbook)) == result.logbook
    first = [e.fitness for e in result.history if e.generation == 0]
    assert seen[0]["mean"] == pytest.approx(np.mean(first))
    assert seen[0]["min"] == min(first)
    if generations == 0:
        assert result.fitness == max(first)


def test_the_result_is_a_function_of_the_rng() -> None:
    assert search(6, population=6, generations=5) == search(6, population=6, generations=5)
    assert search(6, population=6, generations=5) != search(7, population=6, generations=5)


def test_it_finds_better_than_random_search() -> None:
    found, blind = [], []
    for seed in range(5):
        result = search(seed, population=8, generations=15)
        rng = np.random.default_rng(1000 + seed)
        found.append(result.fitness)
        blind.append(max(likeness(random_genome(SPACE, rng)) for _ in range(result.evaluations)))
    assert np.median(found) > np.median(blind)


def test_a_failure_counts_as_zero_and_says_so() -> None:
    def fitness(genome: Genome) -> float:
        return math.nan if len(genome.blocks) > 6 else 0.5

    config = EvolutionConfig.paper(population=8, generations=2)
    result = evolve(SPACE, fitness, config=config, rng=np.random.default_rng(8))
    failed = [e for e in result.history if e.failed]
    assert failed
    assert all(e.fitness == 0 and len(Genome.parse(e.genome).blocks) > 6 for e in failed)
    assert sum(record["failed"] for record in result.logbook) == len(failed)
    assert result.fitness == 0.5


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_search_where_all_fail_still_ends(bad: float) -> None:
    config = EvolutionConfig.paper(population=3, generations=2)
    result = evolve(SPACE, lambda _: bad, config=config, rng=np.random.default_rng(9))
    assert result.fitness == 0
    assert all(e.failed for e in result.history)


@pytest.mark.parametrize("bad", [-0.1, 1.1, 55.0])
def test_a_fitness_that_is_no_accuracy_is_refused(bad: float) -> None:
    with pytest.raises(BadInput, match=r"\[0, 1\]"):
        evolve(SPACE, lambda _: bad, config=EvolutionConfig(), rng=np.random.default_rng(0))


def test_an_error_of_the_fitness_is_recorded_and_survived() -> None:
    def fitness(genome: Genome) -> float:
        if len(genome.blocks) > 6:
            raise KeyError("the caller's own")
        return 0.5

    config = EvolutionConfig(population=8, generations=2)
    result = evolve(SPACE, fitness, config=config, rng=np.random.default_rng(8))
    failed = [e for e in result.history if e.failed]
    assert failed
    assert {e.error for e in failed} == {'KeyError: "the caller\'s own"'}
    assert result.fitness == 0.5


def test_what_the_user_has_to_mend_is_not_survived() -> None:
    def fitness(_: Genome) -> float:
        raise BadInput("expected data, got none")

    with pytest.raises(BadInput, match="expected data"):
        evolve(SPACE, fitness, config=EvolutionConfig(), rng=np.random.default_rng(0))


GOLDEN = {
    0: (48, "3f13e7f50fec19f0", "b3acfca2a0f5867e"),
    1: (40, "b542380c123409e6", "e980bded34cea94b"),
    2: (40, "da48209534335ddc", "2f33d1c9dcdcc78a"),
}
"""Evaluations, logbook and history of the plain search before it had anything to switch off."""


@pytest.mark.parametrize("seed", GOLDEN)
def test_with_everything_switched_off_it_is_the_plain_search(seed: int) -> None:
    result = search(seed, population=8, generations=6)
    keys = ("generation", "best", "mean", "std", "min", "best_genome")
    logs = json.dumps([[record[key] for key in keys] for record in result.logbook])
    genomes = "|".join(e.genome for e in result.history)
    digests = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in (logs, genomes))
    assert (result.evaluations, *digests) == GOLDEN[seed]


PROBE = """
import random
import numpy as np
from panas.evolution import EvolutionConfig, evolve
from panas.space import SearchSpace

before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
config = EvolutionConfig.paper(population=4, generations=3)
evolve(SearchSpace(shape=(1, 8, 8)), lambda g: 0.5, config=config, rng=np.random.default_rng(0))
assert random.getstate() == before
assert np.random.get_state()[1].tolist() == numpy_before
from deap import creator
assert not any(name in vars(creator) for name in ("Fitness", "FitnessMax", "Individual"))
"""


def test_global_random_states_are_left_alone() -> None:
    # In its own interpreter: the shape checks of these tests draw from `random` themselves.
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {"population": 1},
        {"population": 0, "generations": 0},
        {"generations": -1},
        {"crossover": 1.1},
        {"mutation": -0.1},
        {"mutation": math.nan},
    ],
)
def test_bad_configs_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="expected"):
        EvolutionConfig(**fields)


def test_every_genome_evaluated_is_valid() -> None:
    result = search(3, population=6, generations=6)
    for evaluation in result.history:
        genome = Genome.parse(evaluation.genome)
        assert SPACE.allows(genome)
        assert any(isinstance(block, ConvBlock) for block in genome.blocks)
