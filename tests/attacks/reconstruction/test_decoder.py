import numpy as np
import pytest
import torch
from torch import nn

from attacks.reconstruction.decoder import decoder, decoder_inverter
from attacks.threats.knowledge import WhiteBox
from attacks.threats.observation import Observation
from panas.architecture.network import Bottom, initialise
from panas.data.samples import Samples
from panas.training.evaluate import represent


def _samples(n: int, seed: int) -> Samples:
    """Smooth images of four numbers each, so that a few public samples teach how they look."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 1, 2, 2, generator=g) * 1.6 - 0.8
    x = nn.functional.interpolate(coarse, size=(6, 6), mode="bilinear")
    return Samples(x, torch.randint(2, (n,), generator=g), 2)


def _observation(z: torch.Tensor | None = None) -> tuple[Observation, Samples]:
    reshape: list[nn.Module] = [nn.Flatten(), nn.Unflatten(1, (36, 1, 1))]
    bottom = Bottom(reshape, 36, 36, unit=False)
    initialise(bottom, torch.Generator().manual_seed(0))
    bottom.adapt.bias.data.fill_(10.0)
    private = _samples(80, 1)
    rows = represent(bottom, private) if z is None else z
    arrays = {"z": rows, "y": private.y}
    return Observation(
        "north", "raw_rows", arrays, None, WhiteBox(bottom), _samples(300, 0)
    ), private


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 28), (1, 6, 6), (2, 1, 5)])
def test_any_image_shape(shape: tuple[int, int, int]) -> None:
    images = decoder(12, shape)(torch.randn(3, 12)).detach()
    assert images.shape == (3, *shape)
    assert float(images.abs().max()) <= 1


@pytest.mark.slow
def test_a_planted_bijection_is_inverted_and_noise_is_not() -> None:
    seen, private = _observation()
    invert = decoder_inverter(seen, epochs=30, rng=np.random.default_rng(0))
    total = float((private.x - seen.public.x.mean(0)).square().mean())
    assert 1 - float((invert(seen.released()) - private.x).square().mean()) / total > 0.9
    blank, _ = _observation(torch.randn(80, 36, generator=torch.Generator().manual_seed(3)))
    assert 1 - float((invert(blank.released()) - private.x).square().mean()) / total <= 0


def test_the_same_generator_gives_the_same_decoder() -> None:
    seen, _ = _observation()
    first, second, other = (
        decoder_inverter(seen, epochs=1, rng=np.random.default_rng(s))(seen.released())
        for s in (4, 4, 5)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
