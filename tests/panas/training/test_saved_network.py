"""A saved network answers exactly as before; and the one that private training starts from."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from patients import INPUTS, ROWS, TABLE
from PIL import Image

from panas.architecture.genome import Genome
from panas.architecture.head import build_head
from panas.architecture.network import NetworkSpec, Norm, build_bottom
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, write_tensors
from panas.training.checkpoint import SavedNetwork, load_network, save_network
from panas.training.sgd import OptimizerConfig
from panas.training.warm_start import WarmStart, warm_started

GENOME = Genome.parse("c8k3-max-c12k5-avg")
SHAPE = (2, 9, 7)
SPEC = NetworkSpec(shape=SHAPE, classes=4, width=6)


@pytest.mark.parametrize("genome", [GENOME, Genome.parse("gated8-dense6-residual6")])
@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("unit", [True, False])
def test_round_trip(tmp_path: Path, norm: Norm, unit: bool, genome: Genome) -> None:
    generator = torch.Generator().manual_seed(1)
    bottom = build_bottom(genome, shape=SHAPE, width=6, norm=norm, unit=unit, generator=generator)
    head = build_head(6, 4, init="random", generator=generator)
    x = torch.randn(5, *SHAPE, generator=generator)
    bottom.train()(x)  # moves BatchNorm's running statistics, which must be saved too
    path = tmp_path / "models" / "client.safetensors"
    notes = {"client": 3, "round": None}
    save_network(path, bottom, head, genome=genome, spec=replace(SPEC, norm=norm), notes=notes)
    saved = load_network(str(path))
    assert not saved.bottom.training
    assert torch.equal(saved.head(saved.bottom(x)), head(bottom.eval()(x)))
    assert saved.genome == genome
    assert saved.notes == notes
    assert saved.spec == replace(SPEC, norm=norm, unit=unit)


def test_a_saved_network_is_plain_safetensors_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(BadInput, match="no such file"):
        load_network(path)
    generator = torch.Generator().manual_seed(1)
    bottom = build_bottom(GENOME, shape=SHAPE, width=6, generator=generator)
    head = build_head(6, 4, init="random", generator=generator)
    save_network(path, bottom, head, genome=GENOME, spec=SPEC, notes={})
    tensors, metadata = read_tensors(path)
    assert set(json.loads(metadata["network"])) >= {"genome", "shape", "norm", "width", "classes"}
    assert {k.partition(".")[0] for k in tensors} == {"bottom", "head"}
    with pytest.raises(BadInput, match="without"):  # facts
        load_network(path).predict(np.zeros((9, 7, 2), np.uint8))
    content = path.read_bytes()
    for changed in (content.replace(b"c8k3", b"c4k3"), content[:-1] + b"\x7f"):
        assert changed != content
        path.write_bytes(changed)
        with pytest.raises(BadInput, match="damaged"):
            load_network(path)
    write_tensors(path, {"w": torch.zeros(2)}, {})
    with pytest.raises(BadInput, match="another safetensors file"):
        load_network(path)


def saved_with(tmp_path: Path, facts: Facts) -> SavedNetwork:
    """A network for these facts, saved and read again."""
    spec = NetworkSpec(shape=facts.shape, classes=facts.classes, width=8)
    generator, genome = torch.Generator().manual_seed(1), Genome.parse("c8k3")
    path = tmp_path / "n.safetensors"
    networks = spec.bottom(genome, generator), spec.head(generator)
    save_network(path, *networks, genome=genome, spec=spec, notes={"facts": facts.to_json()})
    return load_network(path)


def test_a_network_prepares_pictures_and_names_their_classes(tmp_path: Path) -> None:
    facts = Facts(class_names=("cat", "dog", "owl"), shape=(1, 6, 4), dtype="uint8")
    saved = saved_with(tmp_path, facts)
    x = np.random.default_rng(0).integers(0, 256, (5, 6, 4), dtype=np.uint8)
    result = saved.predict(x)
    naive = saved.network(torch.from_numpy(x)[:, None].float() / 127.5 - 1).argmax(1)
    assert result == tuple(facts.class_names[i] for i in naive)
    pictures = [Image.fromarray(image) for image in x]
    assert saved.predict(pictures) == saved.predict(list(x)) == result
    assert saved.predict(torch.from_numpy(x)[:, None]) == result
    pictures[0].save(tmp_path / "a.png")
    assert saved.predict(tmp_path / "a.png") == saved.predict(x[0]) == result[:1]
    assert torch.allclose(saved.probabilities(x).sum(1), torch.ones(5))
    with pytest.raises(BadInput, match="shape"):
        saved.predict(np.zeros((2, 5, 5), np.uint8))


def test_a_network_of_a_table_prepares_rows(tmp_path: Path) -> None:
    saved = saved_with(tmp_path, TABLE)
    with torch.no_grad():
        wanted = saved.network(INPUTS).softmax(1)
    assert torch.allclose(saved.probabilities(ROWS), wanted, atol=1e-6)
    assert set(saved.predict(ROWS[0])) <= {"ill", "well"}
    with pytest.raises(BadInput, match="'sex'"):
        saved.predict({"age": 1})


POOLED = Genome.parse("c4k3-max-c4k3")
WARM = NetworkSpec(shape=(1, 8, 8), classes=4, width=8)
PUBLIC = Samples(
    torch.arange(40).to(torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8),
    torch.arange(40) % 4,
    4,
)


def test_all_clients_deploy_with_the_same_head_but_their_own_bottom():
    def deployed(site: int, warm: OptimizerConfig | None = None, public: Samples = PUBLIC):
        start = WarmStart(genome=POOLED, spec=WARM, optimizer=warm, device=torch.device("cpu"))
        return warm_started(start, public, seed=0, site=site)

    def weights(module: torch.nn.Module) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    (a, head_a), (b, head_b) = deployed(0), deployed(1)
    assert torch.equal(weights(head_a), weights(head_b))
    assert not torch.equal(weights(a), weights(b))
    assert torch.equal(weights(a), weights(deployed(0)[0]))
    adam = OptimizerConfig(optimiser="adam", learning_rate=0.01, epochs=1)
    warm, head = deployed(0, adam)
    assert not torch.equal(weights(a), weights(warm))
    assert torch.equal(weights(head_a), weights(head))
    cold, _ = deployed(0, adam, PUBLIC.take([]))
    assert torch.equal(weights(a), weights(cold))
