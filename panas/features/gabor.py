"""Features of images: moduli of Gabor filters beside a small copy of the image.

| symbol | meaning |
|---|---|
| k | pixels that are averaged to one, so that about 32 a side are left |
| g | Gabor filters: pairs of a cosine and a sine wave in a Gaussian window |
| r1, r2 | the answers of a pair to the image |

Features: sqrt(|r1 + i r2|) of 8 orientations and 2 wavelengths, averaged to 5 x 5, and the image
averaged to 7 x 7, times .5. Filters read every second pixel of images of 20 pixels and more. A
colour image becomes its luminance and two opponent colours, each filtered alike.

An image has its features bit for bit whatever is beside it: averages add up each window in one
order, filters and averaged pixels lie on grids on which answers are exact (`PIXEL_STEP`), and the
rest is single additions, products and square roots (`panas.features.exact`).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from panas.features.exact import MapCost, on_grid

ORIENTATIONS = 8
SIDE = 32  # pixels a side, about, that larger images are averaged to
LARGE = 20  # pixels a side from which filters are 7 x 7 and read every second pixel
WAVES = {7: ((3.5, 1.6), (6.0, 2.6)), 5: ((3.0, 1.2), (5.0, 1.6))}
"""Wavelength and deviation of the window, in pixels, of the two scales, by a filter's side."""
POOLED, COPY, COPY_WEIGHT = 5, 7, 0.5
BRIGHTEST = 16.0  # inputs are cut to plus and minus this: none is so large, and none overflows
FILTER_STEP, PIXEL_STEP, BRIGHT = 2.0**-9, 2.0**-11, 2.0
"""Steps of filters and of averaged images, and where these are cut. An answer is a whole number of
2^-20, below 2^24 of them: float32 holds it exactly, whichever way the products are added."""
CHUNK = 256  # images at a time, and fewer where they are large
LARGEST = 8.0  # no feature is: sqrt(BRIGHT times the sum of a filter, times sqrt(2)), or a copy


@dataclass(frozen=True, kw_only=True)
class Bank:
    """How images of one shape are filtered; decided by the shape alone."""

    shape: tuple[int, int, int]  # (channels, height, width)
    averaged: tuple[int, int]  # (height, width) after averaging
    side: int  # of a filter, in pixels
    stride: int

    @property
    def answers(self) -> tuple[int, int]:
        """(height, width) of a filter's answers."""
        h, w = ((pixels - 1) // self.stride + 1 for pixels in self.averaged)
        return h, w

    @property
    def pooled(self) -> tuple[int, int]:
        """(height, width) of the averaged moduli."""
        return min(POOLED, self.answers[0]), min(POOLED, self.answers[1])

    @property
    def copy(self) -> tuple[int, int]:
        """(height, width) of the small copy of the image."""
        return min(COPY, self.averaged[0]), min(COPY, self.averaged[1])

    @property
    def features(self) -> int:
        """Number of features of an image."""
        moduli = len(WAVES[self.side]) * ORIENTATIONS * math.prod(self.pooled)
        return self.shape[0] * (moduli + math.prod(self.copy))

    @property
    def macs(self) -> int:
        """Multiply-accumulates an image, of filters and squares."""
        filters = 2 * len(WAVES[self.side]) * ORIENTATIONS
        return self.shape[0] * filters * math.prod(self.answers) * (self.side**2 + 1)


def bank_of(shape: tuple[int, int, int]) -> Bank:
    """The filters of images of a shape (channels, height, width), at least 1 pixel each."""
    c, h, w = shape
    k = max(1, round(min(h, w) / SIDE))
    averaged = (max(1, round(h / k)), max(1, round(w / k)))
    large = min(averaged) >= LARGE
    return Bank(
        shape=(c, h, w), averaged=averaged, side=7 if large else 5, stride=2 if large else 1
    )


def cost_of_images(shape: tuple[int, int, int], d: int) -> MapCost:
    """What a map of images of a shape (channels, height, width) to d coordinates needs."""
    bank = bank_of(shape)
    filters = 2 * len(WAVES[bank.side]) * ORIENTATIONS
    answers = shape[0] * filters * math.prod(bank.answers)
    numbers = 4 * math.prod(shape) + 3 * answers + 8 * bank.features + 6 * d
    return MapCost(
        macs=bank.macs + bank.features * d,
        row_bytes=4 * numbers,
        most_rows=CHUNK,
        fixed_bytes=4 * (filters * bank.side**2 + bank.features + 3 * bank.features * d),
    )


def gabor_filters(side: int) -> Float[Tensor, "filters 1 side side"]:
    """Pairs of a cosine and a sine filter, of norm 1 and sum 0 on a grid of `FILTER_STEP`."""
    axis = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    filters = []
    for wavelength, deviation in WAVES[side]:
        window = torch.exp(-(x**2 + y**2) / (2 * deviation**2))
        for i in range(ORIENTATIONS):
            angle = math.pi * i / ORIENTATIONS
            phase = 2 * math.pi / wavelength * (x * math.cos(angle) + y * math.sin(angle))
            even, odd = window * torch.cos(phase), window * torch.sin(phase)
            even = even - window * even.sum() / window.sum()
            even, odd = (on_grid(wave / wave.norm(), FILTER_STEP) for wave in (even, odd))
            even[side // 2, side // 2] -= even.sum()
            filters += [even, odd]
    return torch.stack(filters)[:, None].float()


def gabor_features(
    x: Float[Tensor, "n c h w"],
    bank: Bank,
    filters: Float[Tensor, "filters 1 side side"],
    least: float = 0.0,
) -> Float[Tensor, "n f"]:
    """Features of finite images; each depends on its own image alone, bit for bit.

    Args:
        x: images (n, c, h, w) in [-1, 1].
        bank: that of their shape (`bank_of`).
        filters: those of the bank's side (`gabor_filters`).
        least: squared moduli below it count as that, at least 0. Above 0 gradients are finite, and
            pixels are not rounded.

    """
    x = F.adaptive_avg_pool2d(_opponent(x), bank.averaged).clamp(-BRIGHT, BRIGHT)
    x = x if least else on_grid(x, PIXEL_STEP)
    n, c = x.shape[:2]
    answers = F.conv2d(
        x.reshape(n * c, 1, *bank.averaged), filters, padding=bank.side // 2, stride=bank.stride
    )
    even, odd = answers[:, 0::2], answers[:, 1::2]
    squares = even * even + odd * odd
    moduli = squares.clamp(min=least).sqrt().sqrt()  # rounded alike everywhere; powers are not
    pooled = F.adaptive_avg_pool2d(moduli, bank.pooled).reshape(n, -1)
    copy = COPY_WEIGHT * F.adaptive_avg_pool2d(x, bank.copy).reshape(n, -1)
    return torch.cat([pooled, copy], dim=1)


def _opponent(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Luminance, red against green, and both against blue; other than 3 channels stay."""
    if x.shape[1] != 3:
        return x
    r, g, b = x.unbind(1)
    colours = ((r + g + b) / 3**0.5, (r - g) / 2**0.5, (r + g - 2 * b) / 6**0.5)
    return torch.stack(colours, dim=1)


def features_of(
    x: Float[Tensor, "n c h w"], bank: Bank, filters: Float[Tensor, "filters 1 side side"]
) -> Float[Tensor, "n f"]:
    """Features of any images: what is not finite counts as 0, what is too bright is cut.

    Args:
        x: images in [-1, 1]; others are cut.
        bank: frequencies, orientations and grid.
        filters: the bank's, as convolution kernels.
    """
    finite = torch.where(x.isfinite(), x.float(), 0.0).clamp(-BRIGHTEST, BRIGHTEST)
    return gabor_features(finite, bank, filters)


def mirrored(bank: Bank) -> Int[Tensor, "f"]:
    """The order of an image's features that gives those of its mirror image.

    They are of the mirrored orientation, at the mirrored place; up to a pixel where filters skip
    every second one.
    """
    c, scales, (h, w) = bank.shape[0], len(WAVES[bank.side]), bank.pooled
    number = torch.arange(bank.features)
    moduli = number[: c * scales * ORIENTATIONS * h * w].reshape(c, scales, ORIENTATIONS, h, w)
    copy = number[moduli.numel() :].reshape(c, *bank.copy)
    turned = [-i % ORIENTATIONS for i in range(ORIENTATIONS)]
    return torch.cat([moduli[:, :, turned].flip(-1).flatten(), copy.flip(-1).flatten()])
