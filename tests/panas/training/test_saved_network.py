"""A saved network answers exactly as before."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from panas.architecture.genome import Genome
from panas.architecture.head import build_head
from panas.architecture.network import NetworkSpec, Norm, build_bottom
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, write_tensors
from panas.training.checkpoint import load_network, save_network

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
