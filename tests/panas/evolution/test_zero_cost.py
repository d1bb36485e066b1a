"""The score without data: the same in any process, and of use."""

import subprocess
import sys

import pytest

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.evolution.zero_cost import score
from panas.runtime.seeds import stream

GENOME = Genome.parse("c16k3-max-c32k3")
BLUEPRINT = NetworkSpec(shape=(1, 8, 8), classes=10, width=16)


@pytest.mark.thorough
def test_the_score_is_a_share_and_the_same_in_every_process_at_any_number_of_threads():
    here = score(GENOME, BLUEPRINT, stream(0, "test"))
    assert 0 < here <= 1
    code = (
        "import torch; torch.set_num_threads(2)\n"
        "from panas.architecture.genome import Genome\n"
        "from panas.architecture.network import NetworkSpec\n"
        "from panas.evolution.zero_cost import score\n"
        "from panas.runtime.seeds import stream\n"
        "b = NetworkSpec(shape=(1, 8, 8), classes=10, width=16)\n"
        "print(repr(score(Genome.parse('c16k3-max-c32k3'), b, stream(0, 'test'))))\n"
        "assert torch.get_num_threads() == 2"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == here


@pytest.mark.slow
def test_the_score_tells_networks_that_learn_from_networks_that_hardly_do():
    # Measured on digits (`python -m benchmarks.data_free`): about .9 and .8 against .1 and .3.
    good = ("c16k3-c64k5-c16k3-c64k5", "c32k3-c64k3-c64k3-c16k5-c32k3-avg")
    bad = ("c16k3-avg-avg", "c16k5-max-max")
    spec = NetworkSpec(shape=(1, 8, 8), classes=10, width=64)

    def of(genomes: tuple[str, ...]) -> list[float]:
        return [score(Genome.parse(g), spec, stream(0, g)) for g in genomes]

    assert min(of(good)) > max(of(bad))
