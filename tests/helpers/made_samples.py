"""Samples that are drawn, without a data set; and settings of which one is changed."""

from collections.abc import Iterable
from typing import Any

import torch

from panas.data.samples import Samples

Shape = tuple[int, int, int]


def random_bytes(
    n: int, seed: int = 0, shape: Shape = (1, 8, 8), classes: int = 3, unit: int = 256
) -> Samples:
    """Pictures that say nothing of their class; classes take turns."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(unit, (n, *shape), generator=g)
    return Samples(x.to(torch.uint8), torch.arange(n) % classes, classes)


def by_brightness(n: int, seed: int = 2, shape: Shape = (1, 8, 8), classes: int = 3) -> Samples:
    """Noisy pictures, brighter from class to class."""
    noise = random_bytes(n, seed, shape, classes, 120)
    return Samples(noise.x + (60 * noise.y).byte()[:, None, None, None], noise.y, classes)


def bright_rows(n: int, seed: int = 1, shape: Shape = (1, 4, 4), classes: int = 3) -> Samples:
    """Noisy pictures, of which the class is the row that is bright."""
    noise = random_bytes(n, seed, shape, classes, 100)
    noise.x[torch.arange(n), 0, noise.y] += 150
    return noise


def one_at_a_time(**fields: Iterable[Any]) -> list[dict[str, Any]]:
    """One changed setting each, of all the values that are given."""
    return [{name: value} for name, values in fields.items() for value in values]
