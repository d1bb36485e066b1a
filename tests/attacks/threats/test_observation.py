"""What an adversary observes, and what he knows beside it."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from made_samples import bright_rows, random_bytes
from observed import observed

from attacks.threats.observation import (
    MAX_PAIRS,
    LeakedPairs,
    Observation,
    Shadow,
    class_means,
    estimate_means,
    shadow,
)
from panas.architecture.genome import Genome
from panas.architecture.network import Bottom, NetworkSpec, build_bottom
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.training.evaluate import represent
from panas.training.sgd import OptimizerConfig


def _bottom() -> Bottom:
    g = torch.Generator().manual_seed(0)
    return build_bottom(Genome.parse("c8k3"), shape=(1, 4, 4), width=6, unit=True, generator=g)


def _samples(n: int, classes: int = 3) -> Samples:
    return random_bytes(n, 1, (1, 4, 4), classes)


def test_an_observation_is_frozen_and_sees_one_row_a_sample_or_a_class() -> None:
    rows = {"z": torch.rand(5, 6), "y": torch.tensor([0, 1, 2, 0, 1])}
    seen = observed("raw_rows", _bottom(), _samples(30), **rows)
    assert seen.released().shape == (5, 6 + 3)
    assert torch.equal(seen.released()[:, :6], rows["z"])
    assert seen.noise_scale == 0.0
    sums = {"A": torch.rand(21), "B": torch.rand(3, 6)}
    seen = observed("moments", _bottom(), _samples(30), 1.5, **sums)
    assert seen.released().shape == (3, 6 + 3)
    assert seen.noise_scale == pytest.approx(1.5 * math.sqrt(1.25))
    with pytest.raises(FrozenInstanceError):
        seen.site = "south"  # type: ignore[misc]


def test_estimates_recover_class_means_from_noiseless_sums() -> None:
    public = _samples(60)
    seen = observed("moments", _bottom(), public, 1.0, A=torch.zeros(21), B=torch.zeros(3, 6))
    mu = seen.known_means
    counts = torch.tensor([4.0, 20.0, 7.0])
    sums = mu * counts[:, None]
    assert torch.allclose(estimate_means(sums, None, mu), mu, atol=1e-6)
    assert torch.allclose(estimate_means(sums, counts, mu), mu, atol=1e-6)
    again = observed("moments", _bottom(), public, 1.0, A=torch.zeros(21), B=sums)
    assert torch.allclose(again.counts(), counts, atol=1e-3)
    mu = torch.ones(2, 3)
    zero = torch.zeros(2, 3)
    assert torch.isfinite(estimate_means(zero, None, mu)).all()
    negative = torch.tensor([-3.0, 0.0])
    assert float(estimate_means(zero + 9, negative, mu).norm(dim=1).max()) <= 1 + 1e-6


def test_pairs_are_capped_and_match() -> None:
    public = _samples(MAX_PAIRS + 50)
    seen = observed("raw_rows", _bottom(), public, z=torch.rand(1, 6), y=torch.tensor([0]))
    z, x = seen.pairs(np.random.default_rng(0))
    assert len(z) == len(x) == MAX_PAIRS
    assert torch.allclose(z[:, :6], _bottom().eval()(x), atol=1e-6)


def test_useless_knowledge_is_refused() -> None:
    rows = {"z": torch.rand(1, 6), "y": torch.tensor([0])}
    with pytest.raises(BadInput, match="public samples"):
        observed("raw_rows", _bottom(), _samples(3), **rows)
    broken = _bottom()
    broken.adapt.weight.data.fill_(float("nan"))
    with pytest.raises(BadInput, match="NaN"):
        observed("raw_rows", broken, _samples(30), **rows)


def test_public_rows_show_no_more_than_class_means_of_the_public() -> None:
    public = _samples(30)
    z = torch.nn.functional.normalize(torch.rand(30, 6), dim=1)
    seen = observed("public_rows", _bottom(), public, z=z, y=public.y)
    assert seen.by_class
    assert not seen.noised_sums
    assert seen.released().shape == (3, 6 + 3)
    expected = torch.stack([z[public.y == c].mean(0) for c in range(3)])
    torch.testing.assert_close(seen.released()[:, :6], expected)
    # A class without rows has the mean of all.
    public = replace(_samples(30, classes=2), classes=3)
    seen = observed("public_rows", _bottom(), public, z=z, y=public.y)
    torch.testing.assert_close(seen.estimates(), class_means(z, public))
    assert torch.allclose(seen.estimates()[2], z.mean(0))
    samples = Samples(_samples(4).x, torch.tensor([0, 0, 2, 2]), 4)
    rows = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
    assert class_means(rows, samples).flatten().tolist() == [2.0, 4.0, 6.0, 4.0]


GENOME = Genome.parse("c8k3-max-c8k3")
BLUEPRINT = NetworkSpec(shape=(1, 4, 4), classes=3, width=6)


def test_leaked_pairs_are_all_that_is_learnt_from() -> None:
    private, z = bright_rows(9, 2), torch.rand(9, 6) / 6
    arrays = {"z": torch.rand(1, 6), "y": torch.tensor([0])}
    seen = Observation("north", "raw_rows", arrays, None, LeakedPairs(z, private), bright_rows(30))
    assert torch.equal(seen.known_z, z)
    assert seen.known is private
    features, images = seen.pairs(np.random.default_rng(0))
    assert len(features) == len(images) == 9
    with pytest.raises(BadInput, match="each leaked sample"):
        LeakedPairs(z[:3], private)


@pytest.mark.slow
def test_a_shadow_is_another_network_that_serves_the_same_head() -> None:
    public, g = bright_rows(60), torch.Generator().manual_seed(0)
    head = BLUEPRINT.head(g)
    before = [p.clone() for p in head.parameters()]
    bottom = BLUEPRINT.bottom(GENOME, g)
    optimizer = OptimizerConfig(learning_rate=0.01, optimiser="adam", batch_size=16, epochs=60)

    def attempt(seed: int) -> Shadow:
        rng = np.random.default_rng(seed)
        return shadow(GENOME, BLUEPRINT, head, public, rng=rng, optimizer=optimizer)

    first, second = attempt(0), attempt(1)
    assert all(torch.equal(a, b) for a, b in zip(before, head.parameters(), strict=True))
    # What they have in common is the head: two shadows agree with each other more than with an
    # untrained network, because each sends a class where the head wants it.
    a, b, c = (represent(b, public) for b in (first.bottom, second.bottom, bottom))
    assert float((a * b).sum(1).mean()) > float((a * c).sum(1).mean()) + 0.05
