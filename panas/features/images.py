"""The feature map of images: moduli of Gabor filters beside a small copy of the image.

| symbol | meaning |
|---|---|
| k | pixels that are averaged to one, so that about 32 a side are left |
| g | Gabor filters: pairs of a cosine and a sine wave in a Gaussian window |
| r1, r2 | the answers of a pair to the image |

Features: sqrt(|r1 + i r2|) of 8 orientations and 2 wavelengths, averaged to 5 x 5, and the image
averaged to 7 x 7, times .5. Filters read every second pixel of images of 20 pixels and more. A
colour image becomes its luminance and two opponent colours, each filtered alike.

Then `panas.features.projection`, of the features of public images, filled up with synthetic ones.

Where mirror images show the same, as in most photographs, the axes are those of the mean of an
image's features and its mirror image's. A mirror image's features are the image's in another order
(`mirrored`), so that this costs nothing: the projection has it in it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from panas.features.dead_leaves import dead_leaves
from panas.features.projection import (
    GradientPath,
    Projection,
    cloud,
    filled_up,
    principal,
    unit_rows,
)
from panas.runtime.seeds import one_thread, stream

KIND = "gabor"
ORIENTATIONS = 8
SIDE = 32  # pixels a side, about, that larger images are averaged to
LARGE = 20  # pixels a side from which filters are 7 x 7 and read every second pixel
WAVES = {7: ((3.5, 1.6), (6.0, 2.6)), 5: ((3.0, 1.2), (5.0, 1.6))}
"""Wavelength and deviation of the window, in pixels, of the two scales, by a filter's side."""
POOLED, COPY, COPY_WEIGHT = 5, 7, 0.5
BRIGHTEST = 16.0  # inputs are cut to plus and minus this: none is so large, and none overflows
DARKEST = 1e-12  # of squared moduli, where a gradient is asked for: a root has none at 0
CHUNK = 256  # images at a time
SYNTHETIC = 8  # chunks of dead leaves that stand in for public images
FEWEST = 10  # public images; fewer are not looked at
BESIDE = 30.0  # synthetic images that count beside the public ones
POWER, SYNTHETIC_POWER = 0.6, 1.0  # of whitening
FEWEST_MIRRORED = 100  # public images from which on they say whether mirror images are alike
SYMMETRIC = 0.03  # asymmetry up to which they are


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


def gabor_filters(side: int) -> Float[Tensor, "filters 1 side side"]:
    """Pairs of a cosine and a sine filter of norm 1, whose answer to a flat image is 0."""
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
            filters += [even / even.norm(), odd / odd.norm()]
    return torch.stack(filters)[:, None].float()


def gabor_features(
    x: Float[Tensor, "n c h w"],
    bank: Bank,
    filters: Float[Tensor, "filters 1 side side"],
    least: float = 0.0,
) -> Float[Tensor, "n f"]:
    """Features of finite images; each depends on its own image alone.

    Squared moduli below `least` count as that: above 0 it keeps gradients finite.
    """
    x = F.adaptive_avg_pool2d(_opponent(x), bank.averaged)
    n, c = x.shape[:2]
    answers = F.conv2d(
        x.reshape(n * c, 1, *bank.averaged), filters, padding=bank.side // 2, stride=bank.stride
    )
    squares = answers[:, 0::2] ** 2 + answers[:, 1::2] ** 2
    moduli = squares.clamp(min=least) ** 0.25
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


@dataclass(frozen=True)
class GaborMap:
    """Images of one shape as unit vectors; see the module."""

    bank: Bank
    filters: Float[Tensor, "filters 1 side side"]
    projection: Projection

    @property
    def width(self) -> int:
        """Number of coordinates d."""
        return self.projection.width

    @property
    def macs(self) -> int:
        """Multiply-accumulates an image."""
        return self.bank.macs + self.projection.macs

    @property
    def numbers(self) -> int:
        """Fixed numbers that it holds."""
        return self.filters.numel() + self.projection.numbers

    def __call__(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Unit rows (n, d) of images (n, c, h, w) in [-1, 1]; zero of one that is not finite."""
        rows = [torch.empty(0, self.width)]
        x = x.reshape(len(x), *self.bank.shape).cpu()
        with one_thread(), torch.no_grad():
            for images in x.split(CHUNK) if len(x) else ():
                usable = images.isfinite().flatten(1).all(1)
                z = self.projection(features_of(images, self.bank, self.filters))
                rows.append(unit_rows(z, usable))
        return torch.cat(rows)

    @property
    def gradient_path(self) -> GradientPath:
        """The same rows of finite images (n, c, h, w), up to about 1e-2, with gradients."""

        def rows(x: Tensor) -> Tensor:
            features = gabor_features(x, self.bank, self.filters, DARKEST)
            return F.normalize(self.projection(features), dim=1)

        return rows

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        shape, averaged = list(self.bank.shape), list(self.bank.averaged)
        return {"kind": KIND, **asdict(self.bank), "shape": shape, "averaged": averaged}

    def arrays(self) -> dict[str, Tensor]:
        """The fixed numbers, by name."""
        p = self.projection
        return {"filters": self.filters, "mean": p.mean, "matrix": p.matrix}

    @staticmethod
    def restored(record: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> "GaborMap":
        """What `to_json` and `arrays` hold."""
        c, h, w = record["shape"]
        tall, wide = record["averaged"]
        bank = Bank(
            shape=(c, h, w),
            averaged=(tall, wide),
            side=record["side"],
            stride=record["stride"],
        )
        return GaborMap(bank, arrays["filters"], Projection(arrays["mean"], arrays["matrix"]))


def features_of(
    x: Float[Tensor, "n c h w"], bank: Bank, filters: Float[Tensor, "filters 1 side side"]
) -> Float[Tensor, "n f"]:
    """Features of any images: what is not finite counts as 0, what is too bright is cut."""
    finite = torch.where(x.isfinite(), x.float(), 0.0).clamp(-BRIGHTEST, BRIGHTEST)
    return gabor_features(finite, bank, filters)


def fit_gabor(shape: tuple[int, int, int], public: Float[Tensor, "n c h w"], d: int) -> GaborMap:
    """The map of images of a shape, of at most d coordinates, fitted on public images (n may be 0)
    in [-1, 1].

    Privacy: it reads nothing but its arguments, which are public, and draws from a fixed seed.
    """
    bank = bank_of(shape)
    filters = gabor_filters(bank.side)
    with one_thread():
        synthetic = _synthetic_features(bank, filters)
        public = public[public.isfinite().flatten(1).all(1)]
        chunks = public.split(CHUNK) if len(public) >= FEWEST else ()
        seen = torch.cat([synthetic[:0], *(features_of(x, bank, filters) for x in chunks)])
        if _mirror(bank, seen):
            order = mirrored(bank)
            synthetic, seen = ((f + f[:, order]) / 2 for f in (synthetic, seen))
            d = min(d, bank.features // 2)  # the axes of what mirror images have in common
        drawn = cloud(synthetic)
        if not len(seen):
            return GaborMap(bank, filters, principal(drawn, d, SYNTHETIC_POWER))
        both = filled_up(cloud(seen), drawn, BESIDE)
        return GaborMap(bank, filters, principal(both, d, POWER))


def mirrored(bank: Bank) -> Int[Tensor, "f"]:
    """Which features of an image are, in this order, those of its mirror image: of the mirrored
    orientation, at the mirrored place; up to a pixel where filters skip every second one."""
    c, scales, (h, w) = bank.shape[0], len(WAVES[bank.side]), bank.pooled
    number = torch.arange(bank.features)
    moduli = number[: c * scales * ORIENTATIONS * h * w].reshape(c, scales, ORIENTATIONS, h, w)
    copy = number[moduli.numel() :].reshape(c, *bank.copy)
    turned = [-i % ORIENTATIONS for i in range(ORIENTATIONS)]
    return torch.cat([moduli[:, :, turned].flip(-1).flatten(), copy.flip(-1).flatten()])


def asymmetry(features: Float[Tensor, "n f"], bank: Bank) -> float:
    """How far the mean image is from its mirror image, as a share of the variance of how far single
    images are; about 0 where mirror images are as frequent as images. n >= 2."""
    apart = (features - features[:, mirrored(bank)]).double()
    variance = float(apart.var(0).sum())
    excess = float(apart.mean(0).square().sum()) - variance / len(features)
    return excess / max(variance, 1e-12)


def _mirror(bank: Bank, seen: Float[Tensor, "n f"]) -> bool:
    """Whether mirror images are taken to show the same: if public images are as frequent as theirs,
    or by rule: pictures in colour are photographs, mostly."""
    if len(seen) >= FEWEST_MIRRORED:
        return asymmetry(seen, bank) <= SYMMETRIC
    return bank.shape[0] == 3


def _synthetic_features(
    bank: Bank, filters: Float[Tensor, "filters 1 side side"]
) -> Float[Tensor, "m f"]:
    """Features of dead leaves, drawn in the size that images are averaged to."""
    rng = stream(0, "features", "images")
    shape = (bank.shape[0], *bank.averaged)
    chunks = (dead_leaves(CHUNK, shape, rng) for _ in range(SYNTHETIC))
    return torch.cat([features_of(images, bank, filters) for images in chunks])
