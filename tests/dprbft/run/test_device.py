"""A run on another device than the CPU: no tensor is left behind, and results are the same."""

from pathlib import Path

import pytest
import torch
from accelerator import NAME, TwoDevices, accelerator
from made_samples import by_brightness
from tiny_methods import FREE, method_config, tiny_options
from tiny_runs import GENOME, joined_config, tiny_config

from dprbft.config.families import method_names
from dprbft.config.schema import RunConfig
from dprbft.config.sections import FederationSettings
from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, stages_of, train_stage, tune_stage
from panas.architecture.network import NetworkSpec
from panas.evolution.fitness import TrainingFitness
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan
from panas.runtime.seeds import stream
from panas.training.any_model import fit_private
from panas.training.evaluate import accuracy
from panas.training.sgd import OptimizerConfig

SPEC = NetworkSpec(shape=(1, 8, 8), classes=3, width=6)
STAGES = {"search": search_stage, "tune": tune_stage, "train": train_stage}
UPDATES = [n for n in method_names() if FederationSettings(method=n).family.sends == "updates"]
SEARCHES = ("decnas", "dp_fnas", "feathers", "perfedrlnas")


def carried_out(run: Path, config: RunConfig, device: str) -> int:
    """Make a run; returns how many operations the device has done."""
    prepare(run, config, resume=False)
    with accelerator() as there, InProcess(read_sites(run), 1, device) as engine:
        for stage in (s for s in stages_of(config) if s in STAGES):
            STAGES[stage](OpenRun(run, config, engine))
    return there.operations


def test_operations_on_two_devices_fail() -> None:
    with accelerator(), pytest.raises(TwoDevices):
        _ = torch.ones(3, device=NAME) + torch.ones(3)


def test_training_on_a_device_gives_what_it_gives_on_the_cpu() -> None:
    samples, optimizer = by_brightness(60), OptimizerConfig(epochs=2, batch_size=16)
    results = []
    for device in ("cpu", NAME):
        with accelerator() as there:
            fitness = TrainingFitness(samples, samples, SPEC, optimizer, 0, 0, device)
            bottom, head = fitness.trained(GENOME)
            scores = accuracy(bottom, head, samples)
            weights = [p.detach().cpu() for m in (bottom, head) for p in m.parameters()]
        assert (there.operations > 0) == (device == NAME)
        results.append((scores, weights))
    (one, first), (other, second) = results
    assert one == other
    # A map's memory is ordered otherwise there, so that last bits differ.
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(first, second, strict=True))


def test_private_training_on_a_device_gives_what_it_gives_on_the_cpu() -> None:
    samples = by_brightness(40)
    plan = Plan(samples=40, batch_size=20, clip=1.0, noise_multiplier=1.0, epochs=1, rounds=1)
    results = []
    for device in ("cpu", NAME):
        with accelerator():
            bottom, head = SPEC.network(GENOME, stream(0, "device"), device)
            noise = ReproducibleNoise(stream(1, "noise"))
            fit_private(bottom, head, samples, plan=plan, config=OptimizerConfig(), noise=noise)
            results.append([p.detach().cpu() for p in bottom.parameters()])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        joined_config(),
        pytest.param(
            joined_config(privacy={"network": "stays"}, training={"warm_epochs": 1}),
            marks=pytest.mark.thorough,
        ),
        tiny_config(),
        tiny_config(privacy__search="unaccounted", privacy__allow_unprotected=True),
    ],
    ids=["joined", "stays", "dprbft", "unaccounted"],
)
def test_a_whole_run_stays_on_its_device(tmp_path: Path, config: RunConfig) -> None:
    assert carried_out(tmp_path / "run", config, NAME) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_each_method_of_the_literature_stays_on_its_device(tmp_path: Path, name: str) -> None:
    config = method_config(name, tiny_options(name), FREE if name in SEARCHES else None)
    assert carried_out(tmp_path / "run", config, NAME) > 100
