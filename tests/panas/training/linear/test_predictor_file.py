"""A predictor's file: read again, it prepares raw data and names classes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import panas
from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.features.map import fit_map
from panas.runtime.errors import BadInput
from panas.runtime.store import write_tensors
from panas.training.linear.predictor import Candidates, Predictor, weighed, write_predictor
from panas.training.linear.residual import zero_residual


def loaded(path: Path, facts: Facts) -> Predictor:
    """Two heads and a residual, weighed, written, and read again."""
    generator = torch.Generator().manual_seed(0)
    phi = fit_map(facts, facts.no_samples(), 6)
    heads = {
        name: torch.randn(facts.classes, phi.width, generator=generator).double()
        for name in ("shared", "own")
    }
    residual = zero_residual(phi.width, facts.classes).requires_grad_(False)
    residual.bias.copy_(torch.arange(facts.classes) / 2)
    prior = torch.zeros(facts.classes)
    candidates = Candidates(phi=phi, heads=heads, log_prior=prior, residual=residual)
    x = torch.rand(8, *facts.shape, generator=generator) * 2 - 1
    y = torch.arange(8) % facts.classes
    write_predictor(path, weighed(candidates, x, y, {"facts": facts.to_json()}))
    found = panas.load(path)
    assert isinstance(found, Predictor)
    return found


def named(facts: Facts, probabilities: Tensor) -> tuple[str, ...]:
    return tuple(facts.class_names[i] for i in probabilities.argmax(1).tolist())


def test_a_predictor_prepares_pictures_and_names_their_classes(tmp_path: Path):
    facts = Facts(class_names=("cat", "dog", "owl"), shape=(1, 8, 8), dtype="uint8")
    found = loaded(tmp_path / "p.safetensors", facts)
    x = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    by_hand = found.probabilities_of(torch.from_numpy(x)[:, None].float() / 127.5 - 1)
    assert torch.allclose(found.probabilities(x), by_hand)
    assert found.predict(x) == named(facts, by_hand)
    assert len(set(found.predict(x))) > 1
    assert found.class_names == facts.class_names
    with pytest.raises(BadInput, match="shape"):
        found.predict(np.zeros((2, 5, 5), np.uint8))


def test_a_predictor_of_a_table_prepares_rows(tmp_path: Path):
    columns = (
        Column(name="age", centre=50.0, reach=50.0, missing=True),
        Column(name="sex", kind="text", categories=("f", "m")),
    )
    facts = Facts(class_names=("ill", "well"), shape=(1, 3, 3), dtype="float32", columns=columns)
    found = loaded(tmp_path / "p.safetensors", facts)
    inputs = torch.zeros(2, 1, 3, 3)
    inputs[:, 0, 0] = torch.tensor([[0.5, -1.0, -1.0], [0.0, 1.0, 1.0]])
    inputs[:, 0, 1] = torch.tensor([[1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]])
    rows = [{"age": 75, "sex": "m"}, {"age": None, "sex": "f"}]
    wanted = found.probabilities_of(inputs)
    assert torch.allclose(found.probabilities(rows), wanted, atol=1e-6)
    assert found.predict(rows) == named(facts, wanted)


def test_another_file_is_refused_in_a_line(tmp_path: Path):
    path = tmp_path / "other.safetensors"
    write_tensors(path, {"x": torch.zeros(2)}, {"note": "mine"})
    with pytest.raises(BadInput, match=r"expected a network .* got another safetensors file") as e:
        panas.load(path)
    assert "\n" not in str(e.value)
    path.write_bytes(b"no safetensors at all")
    with pytest.raises(BadInput, match="expected") as e:
        panas.load(path)
    assert "\n" not in str(e.value)
