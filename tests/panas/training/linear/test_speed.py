"""How long a network takes, beside all else that a site predicts with."""

import itertools
from dataclasses import replace

import pytest
import torch

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts
from panas.features.map import fit_map
from panas.training.checkpoint import SavedNetwork
from panas.training.linear.averaging import Average
from panas.training.linear.predictor import Candidates, Predictor
from panas.training.linear.speed import REPEATS, latency_of


@pytest.fixture
def predictor() -> Predictor:
    facts = Facts(class_names=("a", "b"), shape=(1, 8, 8), dtype="uint8")
    spec, genome = NetworkSpec(shape=(1, 8, 8), classes=2, width=4), Genome.parse("c4k3")
    g = torch.Generator().manual_seed(0)
    network = SavedNetwork(spec.bottom(genome, g), spec.head(g), genome, spec, {})
    candidates = Candidates(
        phi=fit_map(facts, facts.no_samples(), 4),
        heads={"shared": torch.zeros(2, 4)},
        log_prior=torch.zeros(2),
        network=network,
    )
    return Predictor(candidates, Average(()), {})


def test_the_median_pass_counts(predictor: Predictor) -> None:
    """A clock whose passes take a second, or nine in one of three."""
    takes = itertools.cycle([0.0, 1.0, 0.0, 9.0, 0.0, 1.0])
    now = itertools.accumulate(takes)
    result = latency_of(predictor, clock=lambda: next(now))
    assert result is not None
    assert (result.network, result.teacher) == (1000.0, 1000.0)


def test_both_are_measured_and_no_network_has_none(predictor: Predictor) -> None:
    result = latency_of(predictor)
    assert result is not None
    assert 0 < result.network < 1000
    assert 0 < result.teacher < 1000
    alone = replace(predictor, candidates=replace(predictor.candidates, network=None))
    assert latency_of(alone) is None
    assert REPEATS % 2
