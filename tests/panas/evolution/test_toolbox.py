"""The toolbox of the search: a user replaces one entry, and the search does as it says."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deap import base, tools
from toy_fitness import RUNGS, Curves, plain

from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import Outcome, TrainingJob
from panas.evolution.genetic import evolve
from panas.evolution.halving import Evaluation, Task
from panas.evolution.records import EvolutionConfig, EvolutionResult
from panas.evolution.selection import Individual
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import open_journal

SPACE = SearchSpace(shape=(1, 8, 8), min_blocks=1, max_blocks=4, widths=(4, 8))
CONFIG = EvolutionConfig(population=4, generations=4, rungs=RUNGS, screening=2)
Customise = Callable[[base.Toolbox], None]


def search(
    customise: Customise | None = None,
    *,
    rng: np.random.Generator | None = None,
    path: Path | None = None,
    generations: int = 4,
) -> EvolutionResult:
    config = EvolutionConfig(**vars(CONFIG) | {"generations": generations})
    with open_journal(path, {}) as journal:
        return evolve(
            SearchProblem(SPACE, Curves()),
            config=config,
            rng=rng or np.random.default_rng(0),
            execution=Execution(journal=journal),
            customise=customise,
        )


def test_an_environmental_selection_of_ones_own_or_of_deaps() -> None:
    sizes: list[tuple[int, int]] = []

    def youngest(pool: Sequence[Individual], k: int) -> list[Individual]:
        sizes.append((len(pool), k))
        return sorted(pool, key=lambda individual: individual.index)[-k:]

    found = search(lambda toolbox: toolbox.register("select", youngest))
    assert sizes == [(9, 4)] * 4  # four parents and five children
    last = max(e.generation for e in found.history)
    newest = [e.fitness for e in found.history if e.generation == last][-4:]
    assert found.records[-1].mean == pytest.approx(np.mean(newest))
    found = search(lambda toolbox: toolbox.register("select", tools.selBest))
    best = sorted((e.fitness for e in found.history), reverse=True)[:4]
    assert found.records[-1].mean == pytest.approx(np.mean(best))


def redrawn(genome: Genome, rng: np.random.Generator) -> Genome:
    """A mutation that keeps nothing."""
    return random_genome(SPACE, rng)


def test_a_mutation_of_ones_own_draws_from_the_searchs_generator_and_resumes(
    tmp_path: Path,
):
    def run(path: Path, generations: int) -> EvolutionResult:
        rng = np.random.default_rng(3)

        def mine(toolbox: base.Toolbox) -> None:
            toolbox.register("mutate", redrawn, rng=rng)

        return search(mine, rng=rng, path=path, generations=generations)

    whole = run(tmp_path / "whole", 4)
    assert whole != search(rng=np.random.default_rng(3))
    run(tmp_path / "log", 1)
    assert run(tmp_path / "log", 4) == whole
    assert (tmp_path / "log").read_bytes() == (tmp_path / "whole").read_bytes()


def test_parents_and_crossover_of_ones_own() -> None:
    asked: list[int] = []

    def leaders(population: Sequence[Individual], k: int) -> list[Individual]:
        asked.append(k)
        return sorted(population, key=lambda i: i.fitness, reverse=True)[:k]

    def swap(a: Genome, b: Genome) -> tuple[Genome, Genome]:
        return b, a

    def mine(toolbox: base.Toolbox) -> None:
        toolbox.register("select_parents", leaders)
        toolbox.register("mate", swap)

    found = search(mine)
    assert set(asked) == {2}
    assert all(SPACE.allows(e.genome) for e in found.history)


def test_an_evaluation_and_a_map_of_ones_own() -> None:
    def exact(generation: int, genomes: Sequence[Genome]) -> list[Evaluation]:
        return [Evaluation(g, plain(g), generation, failed=False) for g in genomes]

    found = search(lambda toolbox: toolbox.register("evaluate", exact))
    assert [e.fitness for e in found.history] == [plain(e.genome) for e in found.history]
    done: list[Task] = []

    def in_turn(work: Callable[[Task], Outcome], tasks: Sequence[Task]) -> Any:
        done.extend(tasks)
        return map(work, tasks)

    assert search(lambda toolbox: toolbox.register("map", in_turn)) == search()
    assert sum(job.share == 1.0 for job, _ in done) >= 1


def test_an_operator_that_leaves_the_space_is_refused_and_what_is_not_replaced_stays() -> None:
    outside = Genome.parse("c64k3")
    with pytest.raises(BadInput, match="of this search space, got c64k3"):
        search(lambda toolbox: toolbox.register("mutate", lambda _: outside))
    seen: list[base.Toolbox] = []
    assert search(seen.append) == search()
    entries = {"mate", "mutate", "select", "select_parents", "evaluate", "remember", "map"}
    assert entries <= vars(seen[0]).keys()


def test_a_search_shares_out_what_others_are_at_and_finds_the_same() -> None:
    busy: list[TrainingJob] = []

    class Shared(Curves):
        def attempt(self, job: TrainingJob) -> Outcome | None:
            if len(busy) < 5 and job not in busy:
                busy.append(job)
                return None
            return self.advance(job)

    def found(fitness: Curves) -> list[Evaluation]:
        problem = SearchProblem(SPACE, fitness)
        return list(evolve(problem, config=CONFIG, rng=np.random.default_rng(0)).history)

    assert found(Shared()) == found(Curves())
    assert len(busy) == 5
