"""Training as a fitness: in shares as in one go."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_samples import by_brightness
from torch import Tensor, nn

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec, Norm
from panas.evolution.fitness import DataFreeFitness, ResumableFitness, TrainingFitness, TrainingJob
from panas.runtime.store import pack_tensors, unpack_tensors
from panas.training.sgd import OptimizerConfig, Trainer

SHAPE = (1, 8, 8)
BLUEPRINT = NetworkSpec(shape=SHAPE, classes=3, width=6, unit=False, head_init="random")
HOW = OptimizerConfig(learning_rate=0.02, optimiser="adam", batch_size=8, epochs=5, decay="cosine")
GENOME = Genome.parse("c4k3-max-c6k3")


def fitness(norm: Norm = "group", optimizer: OptimizerConfig = HOW, n: int = 20) -> TrainingFitness:
    return TrainingFitness(
        by_brightness(n), by_brightness(60, 3), replace(BLUEPRINT, norm=norm), optimizer, 7, 0
    )


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize(
    "shares", [(0.1, 0.3, 0.9), pytest.param((0.2, 0.4, 0.6, 0.8), marks=pytest.mark.slow)]
)
def test_in_shares_as_in_one_go(norm: Norm, shares: tuple[float, ...]) -> None:
    trained = fitness(norm)
    whole = trained.advance(TrainingJob(GENOME))
    assert whole.passes == 5 * 20
    assert trained(GENOME) == whole.fitness
    state, passes, scores, states = None, 0, [], [None]
    for share in (*shares, 1.0):
        # A fitness of its own, as another process has it.
        outcome = fitness(norm).advance(TrainingJob(GENOME, share, state))
        state, passes = outcome.state, passes + outcome.passes
        assert passes == 20 * max(1, round(share * 5))
        scores.append(outcome.fitness)
        states.append(state)
    assert (scores[-1], passes) == (whole.fitness, whole.passes)
    kept = unpacked(end(trained))
    assert end(trained, states[-2]) == end(trained)
    bottom, head = trained.trained(GENOME)
    network = nn.Sequential(bottom, head).state_dict()
    assert all(torch.equal(t, kept[f"model.{name}"]) for name, t in network.items())


def end(training: TrainingFitness, state: bytes | None = None) -> bytes:
    """All that the full training of GENOME leaves, from scratch or from where it stopped."""
    _, _, fitting = training._begin(GENOME)
    if state is not None:
        fitting.resume(unpacked(state))
    fitting.run(training.optimizer.epochs)
    return pack_tensors(fitting.state(), {})


def unpacked(state: bytes) -> dict[str, Tensor]:
    return unpack_tensors(state, Path("state"))[0]


def test_states_are_kept_where_they_are_wanted_and_a_share_is_its_epochs() -> None:
    assert isinstance(fitness(), ResumableFitness)
    assert not isinstance(DataFreeFitness(BLUEPRINT, 0), ResumableFitness)
    assert fitness().advance(TrainingJob(GENOME)).state is None
    assert fitness().advance(TrainingJob(GENOME, 0.5)).state is not None
    part = fitness().advance(TrainingJob(GENOME, 0.4))
    _, _, fitting = fitness()._begin(GENOME)
    fitting.run(2)
    assert part.state == pack_tensors(fitting.state(), {})
    assert part.state != fitness().advance(TrainingJob(GENOME, 0.6)).state


def test_a_genome_fares_the_same_whatever_was_trained_before() -> None:
    other = Genome.parse("c6k5-c4k3")
    first = fitness()
    scores = [first(GENOME), first(other)]
    assert [fitness()(other), fitness()(GENOME)] == scores[::-1]
    states = {
        end(replace(fitness(), seed=seed, client=client))
        for seed, client in [(7, 0), (8, 0), (7, 1)]
    }
    assert len(states) == 3


def test_learning_shows_and_no_validation_samples_leave_no_accuracy() -> None:
    assert fitness(optimizer=replace(HOW, epochs=40))(GENOME) > 0.6  # of chance 1/3
    assert np.isnan(replace(fitness(), validation=by_brightness(60).take([]))(GENOME))


@pytest.mark.parametrize("moving", [True, False], ids=["moving head", "fixed head"])
@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_a_training_that_diverges_is_a_failure(rate: float, moving: bool) -> None:
    optimizer = OptimizerConfig(learning_rate=rate, batch_size=8, epochs=3)
    spec = replace(BLUEPRINT, head_init="random" if moving else "etf", unit=not moving)
    diverging = replace(fitness(optimizer=optimizer), spec=spec)
    outcome = diverging.advance(TrainingJob(GENOME, 0.9))
    assert np.isnan(outcome.fitness)
    assert outcome.error == "its training diverged"
    assert outcome.passes == 60
    assert outcome.state is None


def test_a_head_that_diverges_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Trainer.run

    def overflow(self: Trainer, epochs: int) -> int:
        passes = run(self, epochs)
        with torch.no_grad():
            self._parameters[-1].fill_(torch.inf)
        return passes

    monkeypatch.setattr(Trainer, "run", overflow)
    assert fitness().advance(TrainingJob(GENOME)).error == "its training diverged"
