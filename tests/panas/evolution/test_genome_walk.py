"""A genome on its way to a score passes the files that CONTRIBUTING lists, and no others."""

import re
from pathlib import Path

import pytest
import torch
from traced_genomes import GenomeTrace
from traced_rows import traced

from panas.architecture.network import NetworkSpec
from panas.architecture.space import SearchSpace
from panas.data.samples import Samples
from panas.evolution.network_search import NetworkSearch
from panas.evolution.records import EvolutionConfig
from panas.runtime.execution import Execution
from panas.training.sgd import OptimizerConfig

CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"


def small_search() -> NetworkSearch:
    """Long enough for crossover, mutation, a rung and the screening of children."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(70, 1, 8, 8, generator=generator) - 1
    return NetworkSearch(
        samples=Samples(x, torch.arange(70) % 2, 2),
        spec=NetworkSpec(shape=(1, 8, 8), classes=2, width=4),
        space=SearchSpace(shape=(1, 8, 8), max_blocks=4, widths=(4, 8)),
        config=EvolutionConfig(population=5, initial=5, generations=1, offspring=3, screening=4),
        optimizer=OptimizerConfig(epochs=2),
        fitness=None,
        size=None,
        seed=0,
        device="cpu",
    )


@pytest.mark.slow
def test_a_genome_passes_the_files_that_are_listed():
    search, trace = small_search(), GenomeTrace()
    with traced(trace):
        found = search.run(Execution())
    candidates = found.result.history
    assert trace.scored == {candidate.genome for candidate in candidates}
    assert not any(candidate.failed for candidate in candidates)
    walk = re.split(r"^One (?:genome|sample)", CONTRIBUTING.read_text(), flags=re.MULTILINE)[1]
    listed = re.findall(r"^\d+\. `([^`]+)`", walk, re.MULTILINE)
    assert len(listed) <= 12
    assert sorted(listed) == sorted(trace.files)
