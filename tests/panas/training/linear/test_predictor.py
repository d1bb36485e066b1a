"""A predictor as a file: all of it comes back, prepares raw data and names classes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from patients import INPUTS, ROWS, TABLE
from torch import Tensor, nn

import panas
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts, infer
from panas.data.samples import Samples
from panas.data.sources import Reading, read
from panas.features.map import fit_map
from panas.runtime.errors import BadInput
from panas.runtime.store import write_tensors
from panas.training.checkpoint import SavedNetwork
from panas.training.linear.predictor import (
    Candidates,
    Predictor,
    read_predictor,
    weighed,
    write_predictor,
)
from panas.training.linear.residual import zero_residual


@pytest.fixture(scope="module")
def facts() -> Facts:
    return infer(read("digits", Reading()))


def made(facts: Facts, *, network: bool, over: str | None = "shared") -> Predictor:
    g = torch.Generator().manual_seed(0)
    phi, classes = fit_map(facts, facts.no_samples(), 12), facts.classes
    residual = nn.Linear(12, classes)
    spec = NetworkSpec(shape=facts.shape, classes=classes, width=12)
    genome = Genome.parse("c4k3")
    bottom, head = spec.bottom(genome, g).eval(), spec.head(g).eval()
    candidates = Candidates(
        phi=phi,
        heads={name: torch.randn(classes, 12, generator=g) for name in ("shared", "own")},
        log_prior=torch.randn(classes, generator=g),
        residual=residual.requires_grad_(False),
        over=over,
        network=SavedNetwork(bottom, head, genome, spec, {}) if network else None,
    )
    x = torch.rand(20, *facts.shape, generator=g)
    valid = Samples(x, torch.arange(20) % classes, classes)
    return weighed(candidates, valid, {"facts": facts.to_json()}, worth=30.0)


@pytest.mark.slow
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("over", ["shared", None])
def test_all_of_it_comes_back(facts: Facts, tmp_path: Path, network: bool, over: str | None):
    before = made(facts, network=network, over=over)
    write_predictor(tmp_path / "p.safetensors", before)
    after = read_predictor(tmp_path / "p.safetensors")
    x = torch.rand(30, *facts.shape)
    assert torch.equal(before.probabilities_of(x), after.probabilities_of(x))
    torch.testing.assert_close(after.probabilities_of(x).sum(1), torch.ones(30).double())
    assert after.class_names == facts.class_names


def test_logits_are_what_the_table_says(facts: Facts):
    c, x = made(facts, network=True).candidates, torch.rand(7, *facts.shape)
    z = c.phi(x)
    values = c.logits(x)
    assert set(values) == {"shared", "own", "residual", "network"}
    shared = 12 * z @ c.heads["shared"].T
    torch.testing.assert_close(values["shared"], shared)
    torch.testing.assert_close(values["residual"], shared + c.log_prior + c.residual(z))
    alone = replace(c, over=None).logits(x)["residual"]
    torch.testing.assert_close(alone, c.log_prior + c.residual(z))
    assert c.logits(x[:0])["network"].shape == (0, 10)


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
    write_predictor(
        path,
        weighed(candidates, Samples(x, y, facts.classes), {"facts": facts.to_json()}, worth=0.0),
    )
    result = panas.load(path)
    assert isinstance(result, Predictor)
    return result


def named(facts: Facts, probabilities: Tensor) -> tuple[str, ...]:
    return tuple(facts.class_names[i] for i in probabilities.argmax(1).tolist())


def test_a_predictor_prepares_pictures_and_names_their_classes(tmp_path: Path):
    facts = Facts(class_names=("cat", "dog", "owl"), shape=(1, 8, 8), dtype="uint8")
    predictor = loaded(tmp_path / "p.safetensors", facts)
    x = np.random.default_rng(0).integers(0, 256, (9, 8, 8), dtype=np.uint8)
    by_hand = predictor.probabilities_of(torch.from_numpy(x)[:, None].float() / 127.5 - 1)
    assert torch.allclose(predictor.probabilities(x), by_hand)
    assert predictor.predict(x) == named(facts, by_hand)
    assert len(set(predictor.predict(x))) > 1
    assert predictor.class_names == facts.class_names
    with pytest.raises(BadInput, match="shape"):
        predictor.predict(np.zeros((2, 5, 5), np.uint8))


def test_a_predictor_of_a_table_prepares_rows(tmp_path: Path):
    predictor = loaded(tmp_path / "p.safetensors", TABLE)
    wanted = predictor.probabilities_of(INPUTS)
    assert torch.allclose(predictor.probabilities(ROWS), wanted, atol=1e-6)
    assert predictor.predict(ROWS) == named(TABLE, wanted)


def test_another_file_is_refused_in_a_line(tmp_path: Path):
    path = tmp_path / "other.safetensors"
    write_tensors(path, {"x": torch.zeros(2)}, {"note": "mine"})
    with pytest.raises(BadInput, match="expected a predictor saved by panas"):
        read_predictor(path)
    for says in (r"expected a network .* got another safetensors file", "expected"):
        with pytest.raises(BadInput, match=says) as e:
            panas.load(path)
        assert "\n" not in str(e.value)
        path.write_bytes(b"no safetensors at all")
