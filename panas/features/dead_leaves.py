"""Synthetic images of no data set: opaque shapes that cover each other, as dead leaves do.

Their edges and flat parts resemble those of pictures more than noise of a 1/f spectrum does.
Source: Lee, Mumford and Huang 2001 (occlusion models); Baradad and others 2021 (learning to see
by looking at noise).
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LEAVES = 40  # a picture
SMALLEST, LARGEST = 0.04, 0.5  # radius, in sides of the picture; its logarithm is uniform
STEP = 2.0**-16  # of radii, cosines and sines
THINNEST = 0.3  # least ratio of the two radii


def dead_leaves(
    count: int, shape: tuple[int, int, int], rng: np.random.Generator
) -> Float[Tensor, "n c h w"]:
    """Images (count, c, h, w) of ellipses and boxes of random place, size and colour, in [-1, 1];
    float32."""
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
        logarithm = drawn(math.log(SMALLEST), math.log(LARGEST)).astype(np.float64)
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
