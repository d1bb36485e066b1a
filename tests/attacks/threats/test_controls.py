import numpy as np
import torch

from attacks.threats import controls
from attacks.threats.knowledge import WhiteBox
from attacks.threats.observation import Observation
from panas.architecture.genome import Genome
from panas.architecture.network import build_bottom
from panas.data.samples import Samples
from panas.training.evaluate import represent


def _samples(n: int, seed: int) -> Samples:
    """Three classes of random patterns around different means."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    means = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(99)) - 0.5
    return Samples(means[y] + 0.2 * torch.randn(n, 1, 4, 4, generator=g), y, 3)


def _r2(truth: torch.Tensor, images: torch.Tensor, mean: torch.Tensor) -> float:
    return 1 - float((truth - images).square().mean() / (truth - mean).square().mean())


def test_blind_controls_are_means_of_public_images() -> None:
    public = _samples(50, 0)
    assert torch.allclose(controls.mean_image(public), public.x.sum(0) / 50, atol=1e-6)
    by_class = controls.same_class_mean(public, torch.tensor([2, 0]))
    assert torch.allclose(by_class[0], public.x[public.y == 2].mean(0), atol=1e-6)
    assert torch.allclose(by_class[1], public.x[public.y == 0].mean(0), atol=1e-6)


def test_unrelated_images_are_public_and_worse_than_the_mean() -> None:
    public, private = _samples(50, 0), _samples(40, 1)
    drawn = controls.unrelated_image(public, 40, rng=np.random.default_rng(0))
    assert all(bool((public.x == x).flatten(1).all(1).any()) for x in drawn)
    assert _r2(private.x, drawn, controls.mean_image(public)) < 0


def test_shuffling_even_perfect_reconstructions_leaves_nothing() -> None:
    public, private = _samples(300, 0), _samples(200, 1)
    mixed = controls.shuffled(private.x, private.y, rng=np.random.default_rng(0))
    assert _r2(private.x, mixed, controls.mean_image(public)) <= 0


def test_shuffling_crosses_classes_even_where_one_rules() -> None:
    y = torch.tensor([0] * 30 + [1])
    images = y.float().view(-1, 1, 1, 1).expand(31, 1, 2, 2)
    mixed = controls.shuffled(images, y, rng=np.random.default_rng(0))
    assert bool((mixed != images).all())
    alone = controls.shuffled(images[:30], y[:30], rng=np.random.default_rng(0))
    assert torch.equal(alone, images[:30])


def test_ceiling_and_random_extractor_are_noiseless_rows() -> None:
    g = torch.Generator().manual_seed(0)
    bottom = build_bottom(Genome.parse("c8k3"), shape=(1, 4, 4), width=6, unit=True, generator=g)
    public, private = _samples(50, 0), _samples(20, 1)
    sums = {"A": torch.zeros(21), "B": torch.zeros(3, 6)}
    seen = Observation("north", "moments", sums, 2.0, WhiteBox(bottom), public)
    ceiling = controls.raw_rows(seen, private, bottom)
    assert (ceiling.kind, ceiling.noise_multiplier) == ("raw_rows", None)
    assert torch.equal(ceiling.arrays["z"], represent(bottom, private))
    before = bottom.adapt.weight.clone()
    fresh = controls.random_extractor(bottom, rng=np.random.default_rng(0))
    assert torch.equal(bottom.adapt.weight, before)
    assert not torch.equal(fresh.adapt.weight, before)
