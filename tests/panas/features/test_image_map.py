"""The map of images: a filter's answer by hand, symmetries, and every shape."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from panas.features.gabor import (
    COPY_WEIGHT,
    FILTER_STEP,
    ORIENTATIONS,
    PIXEL_STEP,
    WAVES,
    bank_of,
    gabor_features,
    gabor_filters,
    mirrored,
)
from panas.features.images import SYMMETRIC, asymmetry, dead_leaves, fit_gabor
from panas.runtime.seeds import stream

GREY = bank_of((1, 8, 8))
FILTERS = gabor_filters(5)


def pictures(n: int, shape: tuple[int, int, int], seed: int = 0) -> torch.Tensor:
    return dead_leaves(n, shape, stream(seed, "test"))


def test_an_answer_is_the_sum_that_its_definition_says():
    x = pictures(1, (1, 8, 8))
    which, row, column = 3, 4, 5  # the third orientation but one of the first scale; a pixel
    wavelength, deviation = WAVES[5][0]
    angle = math.pi * which / ORIENTATIONS
    places = [(v, u) for v in range(-2, 3) for u in range(-2, 3)]
    window = {p: math.exp(-(p[0] ** 2 + p[1] ** 2) / (2 * deviation**2)) for p in places}

    def wave(p: tuple[int, int], f) -> float:
        along = p[1] * math.cos(angle) + p[0] * math.sin(angle)
        return window[p] * f(2 * math.pi * along / wavelength)

    flat = sum(wave(p, math.cos) for p in places) / sum(window.values())
    even = {p: wave(p, math.cos) - flat * window[p] for p in places}
    odd = {p: wave(p, math.sin) for p in places}
    for i, filter_ in enumerate((even, odd)):
        norm = math.sqrt(sum(value**2 for value in filter_.values()))
        expected = 0.0
        for (v, u), value in filter_.items():
            inside = 0 <= row + v < 8 and 0 <= column + u < 8
            expected += value / norm * float(x[0, 0, row + v, column + u]) if inside else 0.0
        got = F.conv2d(x, FILTERS, padding=2)[0, 2 * which + i, row, column]
        assert float(got) == pytest.approx(expected, abs=25 * FILTER_STEP / 2)


def test_grey_pictures_in_colour_have_no_opponent_answers_and_the_copy_comes_last():
    x = pictures(2, (1, 8, 8))
    copy = gabor_features(x, GREY, FILTERS)[:, -49:].reshape(2, 1, 7, 7)
    assert torch.allclose(copy, COPY_WEIGHT * F.adaptive_avg_pool2d(x, 7), atol=PIXEL_STEP)
    f = gabor_features(x.expand(-1, 3, -1, -1), bank_of((3, 8, 8)), FILTERS)
    one = gabor_features(x * 3**0.5, GREY, FILTERS)
    pooled = f[:, : -3 * 49].reshape(2, 3, -1)
    assert torch.allclose(pooled[:, 0], one[:, :-49], atol=1e-5)
    assert pooled[:, 1:].max() < 1e-2


def moduli(x: torch.Tensor) -> torch.Tensor:
    """(n, scales, orientations, 5, 5) of 8 x 8 grey images."""
    return gabor_features(x, GREY, FILTERS)[:, :-49].reshape(len(x), 2, ORIENTATIONS, 5, 5)


def test_a_negative_has_the_same_moduli_and_a_flat_image_answers_at_its_border():
    x = pictures(3, (1, 8, 8))
    assert torch.allclose(moduli(x), moduli(-x), atol=1e-6)
    answers = moduli(torch.full((1, 1, 8, 8), 0.7))
    assert answers[..., 2, 2].abs().max() < 1e-2 < answers[..., 0, 0].max()


def test_a_mirrored_or_turned_image_has_such_orientations_and_places():
    x = pictures(3, (1, 8, 8))
    mirrored = [(ORIENTATIONS - i) % ORIENTATIONS for i in range(ORIENTATIONS)]
    assert torch.allclose(moduli(x.flip(-1)), moduli(x)[:, :, mirrored].flip(-1), atol=1e-5)
    turned = moduli(x.rot90(1, (-2, -1)))
    by_a_right_angle = moduli(x).roll(-ORIENTATIONS // 2, dims=2).rot90(1, (-2, -1))
    assert torch.allclose(turned, by_a_right_angle, atol=1e-5)


SHAPES = [(c, side, side) for c in (1, 3) for side in (4, 7, 8, 14, 20, 28, 32, 47, 64)]


@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 1), (1, 3, 40), (2, 40, 17), (1, 96, 96)])
def test_every_shape_has_its_bank(shape: tuple[int, int, int]):
    bank = bank_of(shape)
    f = gabor_features(pictures(2, shape), bank, gabor_filters(bank.side))
    assert f.shape == (2, bank.features)
    assert f.isfinite().all()


def test_large_images_are_averaged_first():
    assert bank_of((1, 96, 64)).averaged == (48, 32)
    assert bank_of((3, 96, 96)).macs == bank_of((3, 32, 32)).macs
    assert bank_of((1, 28, 28)).macs == 14 * 14 * 32 * 50


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 40])
def test_classes_of_patterns_are_told_apart_by_their_directions(n: int):
    """Gratings of two directions and random phase have the same mean image."""
    rng = np.random.default_rng(0)
    y = torch.arange(60) % 2
    axis = torch.arange(14.0)
    waves = [torch.sin(axis * 2 + rng.uniform(0, 2 * math.pi)) for _ in range(60)]
    tilted = [w.expand(14, 14) if i % 2 else w[:, None].expand(14, 14) for i, w in enumerate(waves)]
    x = torch.stack(tilted)
    phi = fit_gabor((1, 14, 14), x[:n, None], 32)(x[:, None])
    centres = torch.stack([phi[y == c].mean(0) for c in (0, 1)])
    assert ((phi @ centres.T).argmax(1) == y).all()


@pytest.mark.parametrize("c", [1, 3])
def test_features_of_a_mirror_image_are_those_of_the_image_in_another_order(c: int):
    x, bank = pictures(3, (c, 13, 16)), bank_of((c, 13, 16))
    features = gabor_features(x, bank, FILTERS)
    of_mirror_images = gabor_features(x.flip(-1), bank, FILTERS)
    # Where an image is flat, the square root of a rounding error is left.
    assert torch.allclose(of_mirror_images, features[:, mirrored(bank)], atol=1e-3)
    assert not torch.allclose(of_mirror_images, features, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("side", [12, 28, 32])
def test_a_set_is_symmetric_where_mirror_images_are_as_frequent(side: int):
    shape = (1, side, side)
    bank, x = bank_of(shape), pictures(300, shape)
    filters = gabor_filters(bank.side)
    assert asymmetry(gabor_features(x, bank, filters), bank) < SYMMETRIC
    lit = x + torch.linspace(-1, 1, side)  # from the right
    assert asymmetry(gabor_features(lit, bank, filters), bank) > 2 * SYMMETRIC


@pytest.mark.slow
@pytest.mark.parametrize(
    ("c", "n", "alike"),
    [(3, 0, True), (3, 40, True), (1, 0, False), (1, 40, False), (1, 120, True)],
)
def test_mirror_images_are_alike_in_colour_or_where_public_images_say_so(
    c: int, n: int, alike: bool
):
    x = pictures(n + 20, (c, 12, 12))
    phi = fit_gabor((c, 12, 12), x[:n], 32)
    apart = (phi(x[n:]) - phi(x[n:].flip(-1))).norm(dim=1)
    assert (apart.max() < 1e-3) == alike
    if c == 3 and n:  # public images may say that they differ
        x = pictures(200, (3, 12, 12)) + torch.linspace(-1, 1, 12)
        phi = fit_gabor((3, 12, 12), x, 32)
        assert (phi(x) - phi(x.flip(-1))).norm(dim=1).min() > 0.1
