import numpy as np
import pytest
import torch
from torch import nn

from attacks.reconstruction.ridge import fit, ridge_inverter, ridge_on_noise, solve
from attacks.threats.knowledge import WhiteBox
from attacks.threats.observation import Observation, class_means
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


def test_constant_representations_give_the_mean_image() -> None:
    x = torch.rand(30, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(fit(torch.ones(30, 3), x)(torch.ones(1, 3))[0], x.double().mean(0))


def test_a_planted_bijection_is_inverted_from_raw_rows() -> None:
    public, private = _samples(200, 0), _samples(60, 1)
    bottom = _linear_bottom(16, 16)
    arrays = {"z": represent(bottom, private), "y": private.y}
    seen = Observation("north", "raw_rows", arrays, None, WhiteBox(bottom), public)
    images = ridge_inverter(seen, rng=np.random.default_rng(0))(seen.released())
    assert float((images - private.x).square().mean()) < 1e-4
    # The planted bug: rows that say nothing of the samples must not be inverted.
    blank = {"z": torch.randn(60, 16, generator=torch.Generator().manual_seed(2)), "y": private.y}
    seen = Observation("north", "raw_rows", blank, None, WhiteBox(bottom), public)
    images = ridge_inverter(seen, rng=np.random.default_rng(0))(seen.released())
    assert float((images - private.x).square().mean()) > float(private.x.square().mean())


@pytest.mark.parametrize("kind", ["moments", "class_sums"])
def test_sums_of_one_sample_a_class_leak_it_without_noise_and_nothing_under_noise(
    kind: str,
) -> None:
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
        seen = Observation("north", kind, arrays, m, WhiteBox(bottom), public)  # type: ignore[arg-type]
        images = ridge_on_noise(seen, rng=np.random.default_rng(0))
        error = float((images - lonely.x).square().mean())
        gain[m] = 1 - error / float((blind - lonely.x).square().mean())
    assert gain[1e-6] > 0.6
    assert abs(gain[10.0]) < 0.15
