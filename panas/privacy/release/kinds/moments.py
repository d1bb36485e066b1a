"""Noised second moments of all classes: A = sum u u^T and B = sum e_y u^T.

A counts a = 1/2 times as much as B, and so has twice its noise: most of A public samples tell, too,
and of B nothing else does. Adding a sample adds u u^T to A and u to one row of B, each of norm at
most 1, so that (a A, B) has sensitivity sqrt(1 + a^2). A group's rows get one weight, at which all
of them together move it by that at most. Of A its upper triangle leaves, with noise s / a;
off-diagonal numbers, each two equal entries, get 1 / sqrt(2) of it.

Where a receiver sees a sum over sites alone, the counts of labels are part of it, times c: adding
a sample adds c to one of them, so that all together have sensitivity sqrt(1 + a^2 + c^2).

Both hold in floating point: sums are exact, or round by less than what rows are shorter than 1
(`panas.privacy.release.rows`).

Source: Dwork and Roth 2014 (Gaussian mechanism); Sheffet 2017 (moments).
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from panas.privacy.accounting.events import Gaussian
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import SECOND_MOMENTS, ArraySpec, Moments, Rows
from panas.privacy.release.rows import (
    counts_by_class,
    grid_rows,
    products,
    sums_by_class,
    unit_weights,
)

CHARGED_AS = Gaussian
SENSITIVITY = math.sqrt(1.0 + SECOND_MOMENTS**2)
COUNTS = 0.25
"""c: A and B have 2.5 % more noise than without counts, and counts 4.6 times the multiplier."""
SUM_SENSITIVITY = math.sqrt(1.0 + SECOND_MOMENTS**2 + COUNTS**2)
READS = "training"
UNIT = True
BARE = "sums of representations leave without noise"


def run(rows: Rows, classes: int, scale: float, noise: NoiseSource) -> dict[str, Tensor]:
    """A, as its upper triangle by rows, and B.

    Args:
        rows: finite z (n, d), y, and groups where they are the privacy unit.
        classes: how many there are.
        scale: s, standard deviation of the noise on each number of B; 0 for none.
        noise: draws it.
    """
    upper, sums, _ = _sums(rows, classes, SENSITIVITY, 0.0)
    d = sums.shape[1]
    B = sums + scale * noise.normal(classes, d)
    A = upper + scale * _spread(d) * noise.normal(len(upper))
    return {"A": A.float(), "B": B.float()}


def numbers(rows: Rows, classes: int) -> Float[Tensor, "k"]:
    """The sums without noise as numbers that take noise of one size: A by its spread, B, and c
    times the count of each label.

    A unit moves them by `SUM_SENSITIVITY` in L2 norm at most. Sums of several sites add up.
    """
    upper, sums, counts = _sums(rows, classes, SUM_SENSITIVITY, COUNTS)
    return torch.cat([upper / _spread(sums.shape[1]), sums.flatten(), COUNTS * counts])


def from_numbers(numbers: Float[Tensor, "k"], classes: int, scale: float) -> Moments:
    """The moments and counts that `numbers` hold.

    Args:
        numbers: what `numbers` returned, noised, of one site or added up.
        classes: how many there are.
        scale: standard deviation of the noise on each number.
    """
    d = _width(len(numbers), classes)
    upper, B, counts = numbers.double().split([d * (d + 1) // 2, classes * d, classes])
    A = unpack_symmetric(upper * _spread(d), d)
    known = (counts / COUNTS).float()
    return Moments(A, B.reshape(classes, d), scale**2, known, (scale / COUNTS) ** 2)


def to_numbers(moments: Moments) -> Float[Tensor, "k"]:
    """The numbers that say this: what `from_numbers` takes."""
    assert moments.counts is not None
    d = len(moments.A)
    upper = moments.A.double()[tuple(torch.triu_indices(d, d))] / _spread(d)
    return torch.cat([upper, moments.B.double().flatten(), COUNTS * moments.counts.double()])


def numbers_of(width: int, classes: int) -> int:
    """How many these numbers are."""
    return width * (width + 1) // 2 + classes * width + classes


def _width(size: int, classes: int) -> int:
    """d, of d (d + 1) / 2 + classes d + classes numbers."""
    return (math.isqrt((1 + 2 * classes) ** 2 + 8 * (size - classes)) - 1 - 2 * classes) // 2


def _sums(
    rows: Rows, classes: int, most: float, counted: float
) -> tuple[Float[Tensor, "k"], Float[Tensor, "classes d"], Float[Tensor, "classes"]]:
    """The upper triangle of A, by rows, B, and counts, of clipped and weighed rows; float64.

    A unit moves them, counts times `counted`, by `most`.
    """
    u = grid_rows(rows.z)
    d = u.shape[1]
    length = partial(_length, classes, counted)
    weights = unit_weights(rows._replace(z=u), most, length)
    weighted = u * weights[:, None]
    upper = products(weighted, u)[tuple(torch.triu_indices(d, d))]
    counts = counts_by_class(weights, rows.y, classes)
    return upper, sums_by_class(weighted, rows.y, classes), counts


def _length(classes: int, counted: float, u: Float[Tensor, "m d"], y: Int[Tensor, "m"]) -> float:
    """How far rows move (A, B) and so much of the counts together."""
    counts = counted * torch.bincount(y, minlength=classes).double()
    second = SECOND_MOMENTS * (u.T @ u).norm()
    return math.hypot(second, sums_by_class(u, y, classes).norm(), counts.norm())


def arrays(classes: int, d: int) -> dict[str, ArraySpec]:
    """A (d (d + 1) / 2,) and B (classes, d)."""
    ones = torch.ones(classes, d, dtype=torch.float64)
    spread = _spread(d)
    return {"A": ArraySpec(tuple(spread.shape), spread), "B": ArraySpec((classes, d), ones)}


def estimate(arrays: Mapping[str, Tensor], classes: int, scale: float) -> Moments:
    """The noised moments as they are: their noise has mean 0.

    Args:
        arrays: A and B, as `run` returned them.
        classes: how many there are; not read.
        scale: s, standard deviation of the noise on B.
    """
    A = unpack_symmetric(arrays["A"].double(), arrays["B"].shape[1])
    return Moments(A, arrays["B"].double(), scale**2)


def _spread(d: int) -> Float[Tensor, "k"]:
    row, column = torch.triu_indices(d, d)
    each = torch.tensor([math.sqrt(0.5), 1.0], dtype=torch.float64) / SECOND_MOMENTS
    return each[(row == column).long()]


def unpack_symmetric(upper: Float[Tensor, "k"], d: int) -> Float[Tensor, "d d"]:
    """The symmetric matrix whose upper triangle, by rows, is `upper`."""
    row, column = torch.triu_indices(d, d)
    A = torch.zeros(d, d, dtype=upper.dtype)
    A[row, column] = A[column, row] = upper
    return A
