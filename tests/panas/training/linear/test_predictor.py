"""A predictor as a file: everything of it comes back, and what is another file is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts, infer
from panas.data.sources import Reading, read
from panas.features.map import fit_map, write_map
from panas.runtime.errors import BadInput
from panas.training.checkpoint import SavedNetwork
from panas.training.linear.predictor import (
    Candidates,
    Predictor,
    read_predictor,
    weighed,
    write_predictor,
)


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
    return weighed(candidates, x, torch.arange(20) % classes, {"facts": facts.to_json()})


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
    found = c.logits(x)
    assert set(found) == {"shared", "own", "residual", "network"}
    shared = 12 * z @ c.heads["shared"].T
    torch.testing.assert_close(found["shared"], shared)
    torch.testing.assert_close(found["residual"], shared + c.log_prior + c.residual(z))
    alone = replace(c, over=None).logits(x)["residual"]
    torch.testing.assert_close(alone, c.log_prior + c.residual(z))
    assert c.logits(x[:0])["network"].shape == (0, 10)


def test_another_file_is_refused(facts: Facts, tmp_path: Path):
    write_map(tmp_path / "map.safetensors", fit_map(facts, facts.no_samples(), 4))
    with pytest.raises(BadInput, match="expected a predictor saved by panas"):
        read_predictor(tmp_path / "map.safetensors")
