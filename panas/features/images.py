"""The feature map of images: Gabor features on principal axes.

First `panas.features.gabor`: moduli of filters beside a small copy of the image. Then
`panas.features.projection`, of the features of public images, filled up with synthetic ones.

Where mirror images show the same, as in most photographs, the axes are those of the mean of an
image's features and its mirror image's. A mirror image's features are the image's in another order
(`mirrored`), so that this costs nothing: the projection has it in it.

Synthetic images of no data set: opaque shapes that cover each other, as dead leaves do.

Their edges and flat parts resemble those of pictures more than noise of a 1/f spectrum does.
Source: Lee, Mumford and Huang 2001 (occlusion models); Baradad and others 2021 (learning to see
by looking at noise).
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.data.samples import Samples
from panas.features.exact import MapCost
from panas.features.gabor import (
    LARGEST,
    Bank,
    bank_of,
    cost_of_images,
    features_of,
    gabor_features,
    gabor_filters,
    mirrored,
)
from panas.features.projection import (
    Cloud,
    GradientPath,
    Projection,
    check_names,
    cloud,
    filled_up,
    principal,
    unit_rows,
)
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread, stream

LEAVES = 40  # a picture
SMALLEST_LEAF, LARGEST_LEAF = 0.04, 0.5  # radius, in sides of the picture; its logarithm is uniform
STEP = 2.0**-16  # of radii, cosines and sines
THINNEST = 0.3  # least ratio of the two radii


def dead_leaves(
    count: int, shape: tuple[int, int, int], rng: np.random.Generator
) -> Float[Tensor, "n c h w"]:
    """Float32 images (count, c, h, w) of random ellipses and boxes, in [-1, 1].

    Args:
        count: how many images, 0 or more.
        shape: (channels, height, width) of each.
        rng: draws shapes, places and colours.
    """
    c, h, w = shape
    images = np.empty((count, c, h, w), np.float32)
    images[:] = rng.uniform(-1, 1, (count, c, 1, 1))
    y, x = (axis.astype(np.float32)[None] for axis in np.mgrid[:h, :w])

    def drawn(lowest: float, highest: float) -> np.ndarray:
        return rng.uniform(lowest, highest, (count, 1, 1)).astype(np.float32)

    def rounded(values: np.ndarray) -> np.ndarray:
        """Libraries differ in the last bits of an exponential or a cosine, and not here."""
        return (np.rint(values / STEP) * STEP).astype(np.float32)

    for _ in range(LEAVES):
        logarithm = drawn(math.log(SMALLEST_LEAF), math.log(LARGEST_LEAF)).astype(np.float64)
        radius = rounded(max(h, w) * np.exp(logarithm))
        across, down = x - drawn(0.0, float(w)), y - drawn(0.0, float(h))
        angle = drawn(0.0, math.pi).astype(np.float64)
        cosine, sine = rounded(np.cos(angle)), rounded(np.sin(angle))
        u = (across * cosine + down * sine) / radius
        v = (down * cosine - across * sine) / (radius * drawn(THINNEST, 1.0))
        box = drawn(0.0, 1.0) < 0.5
        covered = np.where(box, np.maximum(abs(u), abs(v)), u * u + v * v) < 1
        colour = rng.uniform(-1, 1, (count, c, 1, 1)).astype(np.float32)
        images = np.where(covered[:, None], colour, images)
    return torch.from_numpy(images)


KIND = "gabor"
DARKEST = 1e-12  # of squared moduli, where a gradient is asked for: a root has none at 0
LONGEST = 1 << 20  # pixels of a side, and channels
NEAR = 0.05  # of filters in files of before to those that are used, which lie on a grid
SYNTHETIC, DRAWN = 8, 256  # draws of dead leaves that stand in for public images, and their size
FEWEST = 10  # public images; fewer are not looked at
BESIDE = 30.0  # synthetic images that count beside the public ones
POWER, SYNTHETIC_POWER = 0.6, 1.0  # of whitening
FEWEST_MIRRORED = 100  # public images from which on they say whether mirror images are alike
SYMMETRIC = 0.03  # asymmetry up to which they are


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
    def cost(self) -> MapCost:
        """What images need."""
        return cost_of_images(self.bank.shape, self.width)

    def __call__(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Unit rows (n, d) of images (n, c, h, w) in [-1, 1]; zero of one that is not finite."""
        rows = [torch.empty(0, self.width)]
        x = x.reshape(len(x), *self.bank.shape).cpu()
        with one_thread(), torch.no_grad():
            for images in x.split(self.cost.chunk) if len(x) else ():
                usable = images.isfinite().flatten(1).all(1)
                z = self.projection(features_of(images, self.bank, self.filters), LARGEST)
                rows.append(unit_rows(z, usable))
        return torch.cat(rows)

    def of(self, samples: Samples) -> Float[Tensor, "n d"]:
        """Unit rows (n, d) of samples."""
        return self(samples.inputs())

    @property
    def gradient_path(self) -> GradientPath:
        """The same rows of finite images (n, c, h, w), up to about 1e-2, with gradients."""

        def rows(x: Tensor) -> Tensor:
            features = gabor_features(x, self.bank, self.filters, DARKEST)
            return F.normalize(self.projection.smooth(features), dim=1)

        return rows

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        return _record(self.bank)

    def arrays(self) -> dict[str, Tensor]:
        """The fixed numbers, by name."""
        p = self.projection
        return {"filters": self.filters, "mean": p.mean, "matrix": p.matrix}

    @staticmethod
    def restored(record: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> "GaborMap":
        """What `to_json` and `arrays` hold; BadInput if that is no map of images of its shape."""
        bank = bank_of(_shape(record.get("shape")))
        if dict(record) != _record(bank):
            raise BadInput(
                f"expected a map of images of shape {bank.shape}, filtered as that shape asks, got "
                "another; make the map again"
            )
        check_names(arrays, ("filters", "mean", "matrix"))
        filters, own = arrays["filters"], gabor_filters(bank.side)
        if filters.shape != own.shape or not torch.allclose(filters.float(), own, atol=NEAR):
            raise BadInput(
                "expected the filters of a map of images, got others; make the map again"
            )
        projection = Projection.restored(arrays["mean"], arrays["matrix"], bank.features)
        return GaborMap(bank, own, projection)


def _record(bank: Bank) -> dict[str, Any]:
    shape, averaged = list(bank.shape), list(bank.averaged)
    return {"kind": KIND, **asdict(bank), "shape": shape, "averaged": averaged}


def _shape(shape: object) -> tuple[int, int, int]:
    """(channels, height, width) of a record; BadInput if it is none."""
    if not isinstance(shape, list | tuple) or len(shape) != 3:
        raise BadInput("expected a shape of channels, height and width; make the map again")
    if not all(type(size) is int and 1 <= size <= LONGEST for size in shape):
        raise BadInput(f"expected sides of 1 to {LONGEST} in a map's shape; make the map again")
    c, h, w = shape
    return c, h, w


def fit_gabor(shape: tuple[int, int, int], public: Float[Tensor, "n c h w"], d: int) -> GaborMap:
    """The map of images of a shape, fitted on public images.

    Args:
        shape: (channels, height, width) of an image.
        public: images in [-1, 1]; n may be 0.
        d: the most coordinates.

    Privacy: it reads nothing but its arguments, which are public, and draws from a fixed seed.
    """
    bank = bank_of(shape)
    public = public[public.isfinite().flatten(1).all(1)]
    if len(public) < FEWEST:
        return _synthetic_map(bank, d)
    filters = gabor_filters(bank.side)
    with one_thread():
        seen = torch.cat([features_of(x, bank, filters) for x in public.split(DRAWN)])
        mirror = _mirror(bank, seen)
        if mirror:
            seen, d = _symmetric(seen, bank), min(d, bank.features // 2)
        both = filled_up(cloud(seen), _synthetic_cloud(bank, mirror), BESIDE)
        return GaborMap(bank, filters, principal(both, d, POWER))


@lru_cache(maxsize=4)
def _synthetic_map(bank: Bank, d: int) -> GaborMap:
    """The map without public images, remembered: it is the same for all sites of a shape."""
    mirror = _mirror(bank, torch.zeros(0, bank.features))
    with one_thread():
        axes = min(d, bank.features // 2) if mirror else d
        projection = principal(_synthetic_cloud(bank, mirror), axes, SYNTHETIC_POWER)
        return GaborMap(bank, gabor_filters(bank.side), projection)


@lru_cache(maxsize=1)  # its covariance is the largest array of a map
def _synthetic_cloud(bank: Bank, mirror: bool) -> Cloud:
    """Mean and covariance of dead leaves of the averaged size: most of a map's time."""
    filters, rng = gabor_filters(bank.side), stream(0, "features", "images")
    drawn = (dead_leaves(DRAWN, (bank.shape[0], *bank.averaged), rng) for _ in range(SYNTHETIC))
    features = torch.cat([features_of(images, bank, filters) for images in drawn])
    return cloud(_symmetric(features, bank) if mirror else features)


def _symmetric(features: Float[Tensor, "n f"], bank: Bank) -> Float[Tensor, "n f"]:
    """The mean with the mirror image's: no more than half as many axes have any variance."""
    return (features + features[:, mirrored(bank)]) / 2


def asymmetry(features: Float[Tensor, "n f"], bank: Bank) -> float:
    """Distance of the mean image from its mirror image, relative to that of single images.

    It is about 0 where mirror images are as frequent as images; n is at least 2.
    """
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
