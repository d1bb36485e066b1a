"""One search for all sites: what a second site reads is what it would have found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dprbft.methods.joined.student_search import search_in_common
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.samples import Samples
from panas.evolution.fitness import AgreementFitness
from panas.evolution.genetic import evolve
from panas.evolution.records import EvolutionConfig, EvolutionResult
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.errors import BadInput
from panas.runtime.execution import Execution
from panas.runtime.journal import Journal
from panas.runtime.seeds import stream
from panas.training.distillation import SoftSamples
from panas.training.sgd import OptimizerConfig

SHAPE = (1, 4, 4)
SPACE = SearchSpace(shape=SHAPE, min_blocks=1, max_blocks=2, widths=(2, 4))
CONFIG = EvolutionConfig(population=2, generations=1, offspring=2, screening=2)


def soft(n: int, seed: int) -> SoftSamples:
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (n, *SHAPE), generator=g).to(torch.uint8)
    answers = torch.randn(n, 2, generator=g).softmax(1)
    return SoftSamples(Samples(x, torch.zeros(n, dtype=torch.int64), 2), answers)


def fitness(site: int, cache: Path, learning_rate: float = 0.01) -> AgreementFitness:
    return AgreementFitness(
        taught=soft(4, 0),
        held_out=soft(9, 1),
        histogram=torch.ones(2),
        spec=NetworkSpec(shape=SHAPE, classes=2, width=3),
        optimizer=OptimizerConfig(learning_rate=learning_rate, batch_size=4, epochs=2),
        seed=3,
        site=site,
        cache=cache,
    )


Size = Callable[[Genome], float]


def search(
    found: AgreementFitness, *, common: bool = True, size: Size | None = None
) -> tuple[EvolutionResult, list[dict[str, Any]]]:
    """The result and the lines of a site's journal."""
    problem, journal = SearchProblem(SPACE, found, size, prior_of(SHAPE)), Journal(None, {})
    rng, execution = stream(3, "students"), Execution(journal=journal)
    if common:
        return search_in_common(
            problem, found, config=CONFIG, rng=rng, execution=execution
        ), journal.lines
    return evolve(problem, config=CONFIG, rng=rng, execution=execution), journal.lines


def blocks(genome: Genome) -> float:
    return float(len(genome.blocks))


@pytest.mark.slow
def test_what_a_site_reads_is_what_it_would_have_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(fitness(0, tmp_path))
    assert first[0].passes > 0
    assert first == search(fitness(0, tmp_path), common=False)
    second = search(fitness(1, tmp_path), common=False)
    assert second[0].passes == 0
    other = search(fitness(1, tmp_path), size=blocks)  # sizes were not looked at before
    assert other == search(fitness(1, tmp_path), size=blocks, common=False)
    monkeypatch.setattr(AgreementFitness, "advance", None)  # nobody trains or reads from here on
    assert search(fitness(1, tmp_path)) == second
    assert search(fitness(0, tmp_path)) == first  # it took the passes


def test_a_damaged_search_is_refused(tmp_path: Path) -> None:
    search(fitness(0, tmp_path))
    (path,) = tmp_path.glob("search-*.json")
    path.write_text(path.read_text().replace('"generation": 1', '"generation": 2'))
    with pytest.raises(BadInput, match="damaged or edited"):
        search(fitness(1, tmp_path))


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    result, _ = search(fitness(0, tmp_path, learning_rate=1e38))
    assert any(e.failed for e in result.history)
    assert not list(tmp_path.glob("search-*.json"))
