"""A saved network answers exactly as before."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from panas.architecture.genome import Genome
from panas.architecture.head import build_head
from panas.architecture.network import NetworkSpec, Norm, build_bottom
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, write_tensors
from panas.training.checkpoint import SavedNetwork, load_network, save_network

GENOME = Genome.parse("c8k3-max-c12k5-avg")
SHAPE = (2, 9, 7)
SPEC = NetworkSpec(shape=SHAPE, classes=4, width=6)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("unit", [True, False])
def test_round_trip(tmp_path: Path, norm: Norm, unit: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    bottom = build_bottom(GENOME, shape=SHAPE, width=6, norm=norm, unit=unit, generator=generator)
    head = build_head(6, 4, init="random", generator=generator)
    x = torch.randn(5, *SHAPE, generator=generator)
    bottom.train()(x)  # moves BatchNorm's running statistics, which must be saved too
    path = tmp_path / "models" / "client.safetensors"
    notes = {"client": 3, "round": None}
    save_network(path, bottom, head, genome=GENOME, spec=replace(SPEC, norm=norm), notes=notes)
    saved = load_network(str(path))
    assert not saved.bottom.training
    assert torch.equal(saved.head(saved.bottom(x)), head(bottom.eval()(x)))
    assert saved.genome == GENOME
    assert saved.notes == notes
    assert saved.spec == replace(SPEC, norm=norm, unit=unit)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(BadInput, match="no such file"):
        load_network(path)
    write_tensors(path, {"w": torch.zeros(2)}, {})
    with pytest.raises(BadInput, match="another safetensors file"):
        load_network(path)


def test_an_edited_weight_or_genome_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    generator = torch.Generator().manual_seed(1)
    bottom = build_bottom(GENOME, shape=SHAPE, width=6, generator=generator)
    head = build_head(6, 4, init="random", generator=generator)
    save_network(path, bottom, head, genome=GENOME, spec=SPEC, notes={})
    content = path.read_bytes()
    for changed in (content.replace(b"c8k3", b"c4k3"), content[:-1] + b"\x7f"):
        assert changed != content
        path.write_bytes(changed)
        with pytest.raises(BadInput, match="damaged"):
            load_network(path)


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    generator = torch.Generator().manual_seed(1)
    bottom = build_bottom(GENOME, shape=SHAPE, width=6, generator=generator)
    head = build_head(6, 4, init="random", generator=generator)
    save_network(path, bottom, head, genome=GENOME, spec=SPEC, notes={})
    tensors, metadata = read_tensors(path)
    assert set(json.loads(metadata["network"])) >= {"genome", "shape", "norm", "width", "classes"}
    assert {k.partition(".")[0] for k in tensors} == {"bottom", "head"}


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
    found = saved.predict(x)
    naive = saved.network(torch.from_numpy(x)[:, None].float() / 127.5 - 1).argmax(1)
    assert found == tuple(facts.class_names[i] for i in naive)
    pictures = [Image.fromarray(image) for image in x]
    assert saved.predict(pictures) == saved.predict(list(x)) == found
    assert saved.predict(torch.from_numpy(x)[:, None]) == found
    pictures[0].save(tmp_path / "a.png")
    assert saved.predict(tmp_path / "a.png") == saved.predict(x[0]) == found[:1]
    assert torch.allclose(saved.probabilities(x).sum(1), torch.ones(5))
    with pytest.raises(BadInput, match="shape"):
        saved.predict(np.zeros((2, 5, 5), np.uint8))


def test_a_network_of_a_table_prepares_rows(tmp_path: Path) -> None:
    columns = (
        Column(name="age", centre=50.0, reach=50.0, missing=True),
        Column(name="sex", kind="text", categories=("f", "m")),
    )
    facts = Facts(class_names=("ill", "well"), shape=(1, 3, 3), dtype="float32", columns=columns)
    saved = saved_with(tmp_path, facts)
    inputs = torch.zeros(2, 1, 3, 3)
    inputs[:, 0, 0] = torch.tensor([[0.5, -1.0, -1.0], [0.0, 1.0, 1.0]])
    inputs[:, 0, 1] = torch.tensor([[1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]])
    rows = [{"age": 75, "sex": "m"}, {"age": None, "sex": "f"}]
    with torch.no_grad():
        wanted = saved.network(inputs).softmax(1)
    assert torch.allclose(saved.probabilities(rows), wanted, atol=1e-6)
    assert set(saved.predict(rows[0])) <= {"ill", "well"}
    with pytest.raises(BadInput, match="'sex'"):
        saved.predict({"age": 1})


def test_a_network_without_facts_says_so(tmp_path: Path) -> None:
    path, generator = tmp_path / "m.safetensors", torch.Generator()
    bottom = build_bottom(GENOME, shape=SHAPE, width=6, generator=generator)
    head = build_head(6, 4, init="random", generator=generator)
    save_network(path, bottom, head, genome=GENOME, spec=SPEC, notes={})
    with pytest.raises(BadInput, match="without"):
        load_network(path).predict(np.zeros((9, 7, 2), np.uint8))
