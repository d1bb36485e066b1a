"""The genetic search: its bookkeeping, that it searches, and entries of its toolbox replaced."""

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deap import base, tools
from made_samples import one_at_a_time
from toy_fitness import RUNGS, Counted, Curves, plain
from toy_search import SMALL, run

from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import Outcome, TrainingJob
from panas.evolution.genetic import evolve
from panas.evolution.halving import Task
from panas.evolution.records import Evaluation, EvolutionConfig, EvolutionResult, GenerationRecord
from panas.evolution.toolbox import Individual, SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.journal import open_journal

SPACE = SearchSpace(shape=(3, 16, 16))


TARGET = Genome.parse("c16k3-max-c32k5-c64k3-avg-c128k5").blocks


def likeness(genome: Genome) -> float:
    """An easy landscape: the share of positions that agree with a target."""
    same = sum(a == b for a, b in zip(genome.blocks, TARGET, strict=False))
    return same / max(len(genome.blocks), len(TARGET))


def search(
    seed: int = 0, fitness: Callable[[Genome], float] = likeness, **sizes: float
) -> EvolutionResult:
    return run(fitness, seed, SPACE, EvolutionConfig.paper(**sizes))


def test_the_best_never_gets_worse_and_is_the_best_of_all() -> None:
    result = search(seed=4, population=6, generations=12)
    best = [record["best"] for record in result.logbook]
    assert best == sorted(best)
    assert result.fitness == max(e.fitness for e in result.history) == best[-1]
    assert likeness(result.best) == result.fitness
    assert result.logbook[-1]["best_genome"] == str(result.best)


def test_only_the_changed_are_evaluated() -> None:
    fitness = Counted(lambda _: 0.5)
    result = search(0, fitness, population=5, generations=7, crossover=0.0, mutation=0.0)
    assert fitness.calls.total() == result.evaluations == 5
    result = search(0, fitness, population=5, generations=7, crossover=0.0, mutation=1.0)
    assert (
        fitness.calls.total() - 5 == result.evaluations == 5 * 8
    )  # a mutant always differs from its parent


@pytest.mark.parametrize(("population", "generations"), [(2, 3), (5, 4), (10, 0), (1, 0)])
def test_counts_and_records(population: int, generations: int) -> None:
    seen: list[GenerationRecord] = []
    config = EvolutionConfig.paper(population=population, generations=generations)
    result = run(likeness, 5, SPACE, config, on_progress=seen.append)
    assert seen == result.records
    assert [record.to_json() for record in seen] == result.logbook
    assert [GenerationRecord.from_json(r) for r in result.logbook] == seen
    assert [record.generation for record in seen] == list(range(generations + 1))
    assert sum(record.evaluations for record in seen) == result.evaluations
    assert len(result.history) == result.evaluations
    assert seen[0].evaluations == population
    assert all(record.evaluations <= population for record in seen)
    assert json.loads(json.dumps(result.logbook)) == result.logbook
    first = [e.fitness for e in result.history if e.generation == 0]
    assert seen[0].mean == pytest.approx(np.mean(first))
    assert seen[0].min == min(first)
    if generations == 0:
        assert result.fitness == max(first)


@pytest.mark.parametrize("seed", range(3))
def test_the_plain_genome_is_tried_first_beside_random_ones(seed: int) -> None:
    config = EvolutionConfig.paper(population=4, generations=0)
    hand_made = Genome(TARGET)
    problem = SearchProblem(SPACE, likeness)

    def history(problem: SearchProblem) -> list[Genome]:
        result = evolve(problem, config=config, rng=np.random.default_rng(seed))
        return [e.genome for e in result.history]

    drawn = history(problem)
    assert history(replace(problem, plain=hand_made)) == [hand_made, *drawn[:3]]
    assert sorted(map(str, history(replace(problem, plain=drawn[2])))) == sorted(map(str, drawn))


@pytest.mark.slow
def test_it_finds_better_than_random_search() -> None:
    guided, blind = [], []
    for seed in range(5):
        result = search(seed, population=8, generations=15)
        rng = np.random.default_rng(1000 + seed)
        guided.append(result.fitness)
        blind.append(max(likeness(random_genome(SPACE, rng)) for _ in range(result.evaluations)))
    assert np.median(guided) > np.median(blind)


def test_a_failure_counts_as_zero_and_says_so() -> None:
    def fitness(genome: Genome) -> float:
        return math.nan if len(genome.blocks) > 6 else 0.5

    result = search(8, fitness, population=8, generations=2)
    failed = [e for e in result.history if e.failed]
    assert failed
    assert all(e.fitness == 0 and len(e.genome.blocks) > 6 for e in failed)
    assert sum(record["failed"] for record in result.logbook) == len(failed)
    assert result.fitness == 0.5
    none = search(9, lambda _: math.inf, population=3, generations=2)
    assert (none.fitness, all(e.failed for e in none.history)) == (0, True)  # it ends


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
    genomes = "|".join(str(e.genome) for e in result.history)
    digests = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in (logs, genomes))
    assert (result.evaluations, *digests) == GOLDEN[seed]


PROBE = """
import random
import numpy as np
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionConfig
from panas.evolution.toolbox import SearchProblem
from panas.architecture.space import SearchSpace

before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
config = EvolutionConfig.paper(population=4, generations=3)
problem = SearchProblem(SearchSpace(shape=(1, 8, 8)), lambda g: 0.5)
evolve(problem, config=config, rng=np.random.default_rng(0))
assert random.getstate() == before
assert np.random.get_state()[1].tolist() == numpy_before
from deap import creator
assert not any(name in vars(creator) for name in ("Fitness", "FitnessMax", "Individual"))
"""


@pytest.mark.thorough
def test_global_random_states_are_left_alone() -> None:
    # In its own interpreter: the shape checks of these tests draw from `random` themselves.
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "fields",
    [
        *one_at_a_time(screening=[0], offspring=[0], seeding=[0], keep=(0.0, 1.1)),
        *one_at_a_time(rungs=((0.5, 0.5), (0.5, 0.2), (0.0,), (1.0,)), seconds=(0.0, math.inf)),
        *one_at_a_time(generations=[-1], crossover=[1.1], mutation=(-0.1, math.nan)),
        *({"population": 1}, {"population": 0, "generations": 0}),
    ],
)
def test_bad_configs_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="expected"):
        EvolutionConfig(**fields)


def test_candidates_are_counted_from_the_first_one_on() -> None:
    counts: list[tuple[int, int]] = []
    config = EvolutionConfig(population=4, generations=2, offspring=2)
    result = run(likeness, 0, SPACE, config, on_candidate=lambda k, n: counts.append((k, n)))
    assert counts == [(k, 8) for k in range(1, result.evaluations + 1)]


STAGED = EvolutionConfig(population=4, generations=4, rungs=RUNGS, screening=2)
Customise = Callable[[base.Toolbox], None]


def customised(
    customise: Customise | None = None,
    *,
    rng: np.random.Generator | None = None,
    path: Path | None = None,
    generations: int = 4,
) -> EvolutionResult:
    config = replace(STAGED, generations=generations)
    with open_journal(path, {}) as journal:
        return run(config=config, journal=journal, rng=rng, customise=customise)


def test_an_environmental_selection_of_ones_own_or_of_deaps() -> None:
    sizes: list[tuple[int, int]] = []

    def youngest(pool: Sequence[Individual], k: int) -> list[Individual]:
        sizes.append((len(pool), k))
        return sorted(pool, key=lambda individual: individual.index)[-k:]

    result = customised(lambda toolbox: toolbox.register("select", youngest))
    assert sizes == [(9, 4)] * 4  # four parents and five children
    last = max(e.generation for e in result.history)
    newest = [e.fitness for e in result.history if e.generation == last][-4:]
    assert result.records[-1].mean == pytest.approx(np.mean(newest))
    result = customised(lambda toolbox: toolbox.register("select", tools.selBest))
    best = sorted((e.fitness for e in result.history), reverse=True)[:4]
    assert result.records[-1].mean == pytest.approx(np.mean(best))


def redrawn(genome: Genome, rng: np.random.Generator) -> Genome:
    """A mutation that keeps nothing."""
    return random_genome(SMALL, rng)


@pytest.mark.slow
def test_a_mutation_of_ones_own_draws_from_the_searchs_generator_and_resumes(tmp_path: Path):
    def resumed(path: Path, generations: int) -> EvolutionResult:
        rng = np.random.default_rng(3)

        def customise(toolbox: base.Toolbox) -> None:
            toolbox.register("mutate", redrawn, rng=rng)

        return customised(customise, rng=rng, path=path, generations=generations)

    whole = resumed(tmp_path / "whole", 4)
    assert whole != customised(rng=np.random.default_rng(3))
    resumed(tmp_path / "log", 1)
    assert resumed(tmp_path / "log", 4) == whole
    assert (tmp_path / "log").read_bytes() == (tmp_path / "whole").read_bytes()


def test_parents_and_crossover_of_ones_own() -> None:
    counts: list[int] = []

    def leaders(population: Sequence[Individual], k: int) -> list[Individual]:
        counts.append(k)
        return sorted(population, key=lambda i: i.fitness, reverse=True)[:k]

    def swap(a: Genome, b: Genome) -> tuple[Genome, Genome]:
        return b, a

    def customise(toolbox: base.Toolbox) -> None:
        toolbox.register("select_parents", leaders)
        toolbox.register("mate", swap)

    result = customised(customise)
    assert set(counts) == {2}
    assert all(SMALL.allows(e.genome) for e in result.history)


@pytest.mark.slow
def test_an_evaluation_and_a_map_of_ones_own() -> None:
    def exact(generation: int, genomes: Sequence[Genome]) -> list[Evaluation]:
        return [Evaluation(g, plain(g), generation, failed=False) for g in genomes]

    result = customised(lambda toolbox: toolbox.register("evaluate", exact))
    assert [e.fitness for e in result.history] == [plain(e.genome) for e in result.history]
    done: list[Task] = []

    def in_turn(work: Callable[[Task], Outcome], tasks: Sequence[Task]) -> Any:
        done.extend(tasks)
        return map(work, tasks)

    assert customised(lambda toolbox: toolbox.register("map", in_turn)) == customised()
    assert sum(job.share == 1.0 for job, _ in done) >= 1


@pytest.mark.slow
def test_an_operator_that_leaves_the_space_is_refused_and_what_is_not_replaced_stays() -> None:
    outside = Genome.parse("c64k3")
    with pytest.raises(BadInput, match="of this search space, got c64k3"):
        customised(lambda toolbox: toolbox.register("mutate", lambda _: outside))
    seen: list[base.Toolbox] = []
    assert customised(seen.append) == customised()
    entries = {"mate", "mutate", "select", "select_parents", "evaluate", "remember", "map"}
    assert entries <= vars(seen[0]).keys()


@pytest.mark.slow
def test_a_search_shares_out_what_others_are_at_and_finds_the_same() -> None:
    busy: list[TrainingJob] = []

    class Shared(Curves):
        keeps = True

        def attempt(self, job: TrainingJob) -> Outcome | None:
            if len(busy) < 5 and job not in busy:
                busy.append(job)
                return None
            return self.advance(job)

    assert run(Shared(), config=STAGED).history == run(config=STAGED).history
    assert len(busy) == 5
