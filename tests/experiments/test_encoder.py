"""The encoder of random processes: it is made from seeds alone, and goes on where it was killed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerator import NAME, accelerator

from experiments.encoder import tasks, training, views
from experiments.encoder.network import BLOCKS, EncoderNetwork, export, space
from experiments.encoder.training import Plan, contrast, trained
from panas.architecture.genome import Genome
from panas.features.encoders.files import load_encoder

TINY = Genome.parse("avg-c64k3-avg-full32", BLOCKS)
PLAN = Plan(epochs=2, steps=2, groups=1, bank=1000)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def quiet(line: str) -> None:
    """Nobody is told."""


@pytest.fixture(scope="module")
def bank() -> views.Bank:
    return views.Bank.drawn(1000, generator())


@pytest.mark.slow
def test_a_training_that_is_cut_ends_as_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = trained(TINY, PLAN, tmp_path, quiet).state_dict()
    (tmp_path / "cut").mkdir()
    epoch, begun = training.epoch, []

    def cut(learner, optimiser, number, plan):
        if number == 1 and not begun:
            begun.append(number)
            raise KeyboardInterrupt
        return epoch(learner, optimiser, number, plan)

    monkeypatch.setattr(training, "epoch", cut)
    with pytest.raises(KeyboardInterrupt):
        trained(TINY, PLAN, tmp_path / "cut", quiet)
    again = trained(TINY, PLAN, tmp_path / "cut", quiet).state_dict()
    assert begun == [1]
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    with pytest.raises(SystemExit, match="expected a training of"):
        trained(TINY, replace(PLAN, seed=1), tmp_path / "cut", quiet)


@pytest.mark.slow
def test_a_training_on_a_device_is_as_on_the_cpu(tmp_path: Path):
    own = trained(TINY, replace(PLAN, epochs=1), tmp_path, quiet).state_dict()
    (tmp_path / "there").mkdir()
    with accelerator() as there:
        other = trained(TINY, replace(PLAN, epochs=1), tmp_path / "there", quiet, NAME)
    assert there.operations > 0
    assert all(torch.equal(own[name], value) for name, value in other.state_dict().items())


def test_pairs_are_told_apart_within_their_group_alone():
    n = views.GROUP
    z = torch.eye(n).repeat(2, 1)  # two groups of the same vectors
    assert contrast(z, z, 0.05) < 1e-4
    assert contrast(z, z.roll(1, 0), 0.05) > 5


@pytest.mark.slow
def test_the_file_is_an_encoder_of_the_same_vectors(tmp_path: Path, bank: views.Bank):
    network = EncoderNetwork(TINY, generator()).eval()
    assert export(network, tmp_path / "encoder.pt2") < 1 << 20
    encoder = load_encoder(str(tmp_path / "encoder.pt2"))
    assert encoder.facts.shape == (3, 32, 32)
    x = bank.fields[:5]
    own = training.vectors(network, x)
    assert torch.allclose(encoder(x), own, atol=2e-2 * float(own.abs().max()))


@pytest.mark.slow
def test_the_largest_network_of_the_space_stays_below_a_megabyte(tmp_path: Path):
    genome = Genome.parse("avg-full64-full128-avg-full128-full128", BLOCKS)
    assert space().allows(genome)
    assert export(EncoderNetwork(genome, generator()), tmp_path / "encoder.pt2") < 1 << 20


@pytest.mark.slow
def test_tasks_are_of_all_classes_and_their_pictures_of_pixels():
    for task in tasks.drawn(0):
        assert sorted(set(task.y.tolist())) == list(range(2 if task.name == "haze" else 10))
        assert task.x.shape == (tasks.PUBLIC + tasks.TRAIN + tasks.TEST, 3, 32, 32)
        assert task.x.min() >= 0
        assert task.x.max() <= 1
