"""A run on another device than the CPU: no tensor is left behind, and results are the same."""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerator import NAME, TwoDevices, accelerator
from made_samples import by_brightness
from tiny_encoder import SIDE, Averaged, encoder_facts, network, tiny_encoder
from tiny_methods import FREE, method_config, tiny_options
from tiny_runs import GENOME, joined_config, tiny_config
from torch import Tensor

from dprbft.config.families import method_names
from dprbft.config.schema import RunConfig
from dprbft.config.sections import FederationSettings
from dprbft.engines.inprocess import InProcess
from dprbft.methods.joined import student
from dprbft.paths import read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, stages_of, train_stage, tune_stage
from panas.architecture.network import NetworkSpec
from panas.evolution.fitness import TrainingFitness
from panas.features.encoders import files
from panas.features.encoders.encoder import Encoder
from panas.features.encoders.files import deferred, load_encoder
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
    with accelerator() as there:
        prepare(run, config, resume=False, device=device)
        with InProcess(read_sites(run), 1, device) as engine:
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
        pytest.param(
            tiny_config(privacy__search="unaccounted", privacy__allow_unprotected=True),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["joined", "stays", "dprbft", "unaccounted"],
)
def test_a_whole_run_stays_on_its_device(tmp_path: Path, config: RunConfig) -> None:
    assert carried_out(tmp_path / "run", config, NAME) > 1000


class WithConstants(Averaged):
    """An encoder that makes a tensor on its way, which a program notes with its device."""

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return z + torch.arange(z.shape[1]) / 10


def encoder_files(folder: Path) -> dict[str, str]:
    """A program, and weights of a network of torchvision's."""
    from safetensors.torch import save_file
    from torchvision.models import get_model

    program = torch.export.export(WithConstants(), (torch.zeros(1, 3, SIDE, SIDE),))
    torch.export.save(program, folder / "tiny.pt2")
    (folder / "weights.toml").write_text("size = 32")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = get_model("shufflenet_v2_x0_5", weights=None).state_dict()
    save_file(weights, folder / "weights.safetensors")
    return {
        "program": str(folder / "tiny.pt2"),
        "torchvision": f"shufflenet_v2_x0_5:{folder / 'weights.safetensors'}",
    }


@pytest.mark.parametrize("kind", ["program", "torchvision"])
def test_an_encoder_of_a_device_computes_there_what_it_computes_on_the_cpu(
    tmp_path: Path, kind: str
) -> None:
    given, samples = encoder_files(tmp_path)[kind], by_brightness(3)
    expected = load_encoder(given).of(samples)
    with accelerator() as there:
        encoder = load_encoder(given, NAME)
        assert torch.equal(load_encoder(given).of(samples), expected)
        before = there.operations
        z = encoder.of(samples)
        assert there.operations >= before + 3 * 3
        later = deferred(given, encoder.facts, NAME).of(samples)
    assert encoder.device == NAME
    assert z.device.type == "cpu"  # as the map reads it
    assert torch.allclose(z, expected, atol=1e-6)
    assert torch.equal(later, z)


def test_a_function_is_given_pictures_on_its_device() -> None:
    samples, expected = by_brightness(3), tiny_encoder().of(by_brightness(3))
    with accelerator() as there:
        z = Encoder(encoder_facts(), network().to(NAME), NAME).of(samples)
    assert there.operations >= 3
    assert torch.equal(z, expected)


@pytest.mark.thorough
def test_a_run_with_an_encoder_stays_on_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, real = list[str](), files._loaded

    def noted(given: str, file: str, device: str, *rest: Any) -> Encoder:
        seen.append(device)
        return real(given, file, device, *rest)

    monkeypatch.setattr(files, "_loaded", noted)
    monkeypatch.setattr(student, "MANY", 70)  # pictures that are made, and encoded
    config = joined_config(network={"encoder": encoder_files(tmp_path)["program"]})
    assert carried_out(tmp_path / "run", config, NAME) > 1000
    encoding = seen.count(NAME)
    assert encoding > 60 + 70 + 60  # public, made and private pictures
    facts_alone = len(seen) - encoding
    assert facts_alone < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "fedavg" else pytest.mark.thorough) for n in UPDATES],
)
def test_each_method_of_the_literature_stays_on_its_device(tmp_path: Path, name: str) -> None:
    config = method_config(name, tiny_options(name), FREE if name in SEARCHES else None)
    assert carried_out(tmp_path / "run", config, NAME) > 100
