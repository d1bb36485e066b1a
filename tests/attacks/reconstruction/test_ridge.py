"""Inversion by ridge regression and by a decoder: closed forms, and what is learnt of images."""

import numpy as np
import pytest
import torch
from observed import observed, raw
from planted import image_in_clear, pictures
from torch import nn

from attacks.reconstruction.inverters import (
    decoder,
    decoder_inverter,
    fit,
    ridge_inverter,
    ridge_on_noise,
    solve,
)
from attacks.threats.observation import class_means
from panas.architecture.network import Bottom, initialise
from panas.data.samples import Samples
from panas.training.evaluate import represent


def _linear_bottom(values: int, width: int) -> Bottom:
    """A bottom that is an affine bijection: what it says of an image is all of the image."""
    reshape: list[nn.Module] = [nn.Flatten(), nn.Unflatten(1, (values, 1, 1))]
    bottom = Bottom(reshape, values, width, unit=False)
    initialise(bottom, torch.Generator().manual_seed(0))
    with torch.no_grad():
        bottom.adapt.bias.fill_(10.0)  # far from the kink of the ReLU
    return bottom.eval()


def _samples(n: int, seed: int) -> Samples:
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, 4, 4, generator=g) * 1.6 - 0.8
    y = torch.randint(3, (n,), generator=g)
    return Samples(x, y, 3)


def test_solve_equals_the_naive_closed_form() -> None:
    g = torch.Generator().manual_seed(0)
    z, x = torch.randn(40, 5, generator=g) + 3, torch.randn(40, 7, generator=g) - 1
    strengths = torch.tensor([1e-3, 1.0, 50.0], dtype=torch.float64)
    for strength, linear in zip(strengths, solve(z, x, strengths), strict=True):
        Z, X = (z - z.mean(0)).double(), (x - x.mean(0)).double()
        gram = Z.T @ Z
        W = torch.linalg.inv(gram + strength * gram.trace() / 5 * torch.eye(5)) @ Z.T @ X
        # Means are taken in float64 by the code under test, in float32 here.
        assert torch.allclose(linear.weights, W, atol=1e-5)
        naive = x.double().mean(0) + (z.double() - z.double().mean(0)) @ W
        assert torch.allclose(linear(z), naive, atol=1e-5)


def test_lambda_is_small_without_noise_and_large_on_pure_noise() -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(200, 6, generator=g)
    W = torch.randn(6, 9, generator=g)
    assert torch.allclose(fit(z, z @ W).weights.float(), W, atol=1e-4)
    noise = fit(z, torch.randn(200, 9, generator=g))
    assert float(noise.weights.abs().max()) < 0.2
    x = torch.rand(30, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(fit(torch.ones(30, 3), x)(torch.ones(1, 3))[0], x.double().mean(0))


def test_a_planted_bijection_is_inverted_from_raw_rows() -> None:
    public, private = _samples(200, 0), _samples(60, 1)
    bottom = _linear_bottom(16, 16)
    seen = raw(bottom, private, public)
    images = ridge_inverter(seen, rng=np.random.default_rng(0))(seen.released())
    assert float((images - private.x).square().mean()) < 1e-4
    # The planted bug: rows that say nothing of the samples must not be inverted.
    z = torch.randn(60, 16, generator=torch.Generator().manual_seed(2))
    seen = observed("raw_rows", bottom, public, z=z, y=private.y)
    images = ridge_inverter(seen, rng=np.random.default_rng(0))(seen.released())
    assert float((images - private.x).square().mean()) > float(private.x.square().mean())


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_sums_of_one_sample_a_class_leak_it_without_noise_and_nothing_under_noise(kind: str):
    public, lonely = _samples(400, 0), _samples(3, 5)
    lonely = Samples(lonely.x, torch.arange(3), 3)
    bottom = _linear_bottom(16, 16)
    bottom.adapt.weight.data *= 20  # representations of one class differ in direction
    bottom.unit = True
    u = represent(bottom, lonely)
    blind = class_means(public.x, public)
    gain = {}
    for m in (1e-6, 10.0):
        noise = m * torch.randn(u.shape, generator=torch.Generator().manual_seed(0))
        arrays = {"S": u + noise, "counts": torch.ones(3)}
        if kind == "moments":
            arrays = {"B": u + noise, "A": torch.zeros(16 * 17 // 2)}
        seen = observed(kind, bottom, public, m, **arrays)
        images = ridge_on_noise(seen, rng=np.random.default_rng(0))
        error = float((images - lonely.x).square().mean())
        gain[m] = 1 - error / float((blind - lonely.x).square().mean())
    assert gain[1e-6] > 0.6
    assert abs(gain[10.0]) < 0.15


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 28), (1, 6, 6), (2, 1, 5)])
def test_any_image_shape(shape: tuple[int, int, int]) -> None:
    images = decoder(12, shape)(torch.randn(3, 12)).detach()
    assert images.shape == (3, *shape)
    assert float(images.abs().max()) <= 1


def test_the_same_generator_gives_the_same_decoder() -> None:
    seen = image_in_clear("raw_rows", pictures(60, 1), pictures(300, 0))
    first, second, other = (
        decoder_inverter(seen, epochs=1, rng=np.random.default_rng(s))(seen.released())
        for s in (4, 4, 5)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
