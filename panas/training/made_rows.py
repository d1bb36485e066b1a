"""Rows of a table made of public ones, for students to learn from and to be judged by.

Forty rows cannot teach a network what its teacher knows. So the teacher is asked about thousands of
rows that are made of them:

| what is made | of which rows | how |
|---|---|---|
| a blend | half | numbers at a random point between two rows; texts of one or the other |
| swaps | half | a random share of the columns, each from a row of its own |

Both are drawn apart, so that a quarter of the rows stay as they are. A column moves as a whole:
signs of one text, or a number, its angle and the sign that it is missing, are never torn apart. A
vector has one column for each of its numbers.

Privacy: what is made depends on its arguments alone. Of public rows and a protected teacher it is
post-processing and costs nothing.

Source: Zhang et al. 2018 (blends); swaps are those of permutation importance (Breiman 2001), which
keep each column's distribution and break what ties columns together.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.training.distillation import SoftSamples, Teacher

HALF = 0.5
AT_ONCE = 1024  # rows that are made, and asked about, at a time


@dataclass(frozen=True)
class Layout:
    """Which features of a padded row belong together."""

    column: Int[Tensor, "f"]  # of each feature, from 0; what pads a row is a column, too
    is_number: Bool[Tensor, "f"]  # whether values between two others make sense

    @staticmethod
    def of(facts: Facts) -> "Layout":
        """The layout of rows of these facts."""
        size = math.prod(facts.shape)
        if not facts.columns:
            return Layout(torch.arange(size), torch.ones(size, dtype=torch.bool))
        widths = [column.width for column in facts.columns]
        numbers = [c.kind != "text" and not c.missing and c.numbers == 1 for c in facts.columns]
        widths.append(size - sum(widths))
        each = torch.tensor(widths)
        column = torch.arange(len(widths)).repeat_interleave(each)
        return Layout(column, torch.tensor([*numbers, False]).repeat_interleave(each))

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.column.max()) + 1


def made_rows(
    rows: Samples, layout: Layout, n: int, *, teacher: Teacher, rng: np.random.Generator
) -> SoftSamples:
    """n rows made of others, and what a teacher answers to them.

    Args:
        rows: at least one.
        layout: of their features.
        n: how many to make, 0 or more.
        teacher: answers to rows by probabilities (b, classes).
        rng: draws rows, shares and columns.
    """
    made = rows_of_rows(rows, layout, n, rng)
    parts = torch.arange(n).split(AT_ONCE) if n else ()
    answers = [teacher(made.inputs(part)) for part in parts]
    return SoftSamples(made, torch.cat([torch.zeros(0, rows.classes), *answers]))


def rows_of_rows(rows: Samples, layout: Layout, n: int, rng: np.random.Generator) -> Samples:
    """n rows made of others; their labels are all 0, which means nothing.

    Args:
        rows: at least one; their labels are not read.
        layout: of their features.
        n: how many to make, 0 or more.
        rng: draws rows, shares and columns.
    """
    flat = rows.inputs().flatten(1)
    parts = torch.arange(n).split(AT_ONCE) if n else ()
    made = [made_of_rows(flat, layout, len(part), rng) for part in parts]
    x = torch.cat(made or [flat[:0]]).view(-1, *rows.shape)
    return Samples(x, torch.zeros(n, dtype=torch.int64), rows.classes)


def made_of_rows(
    flat: Float[Tensor, "m f"], layout: Layout, n: int, rng: np.random.Generator
) -> Float[Tensor, "n f"]:
    """n rows made of m >= 1 others; see the module.

    Args:
        flat: rows, unfolded.
        layout: of their features.
        n: how many to make.
        rng: draws rows, shares and columns.
    """
    m, f = flat.shape
    first, second = (flat[torch.from_numpy(rng.integers(m, size=n))] for _ in range(2))
    share = _shares(rng, n)
    other = _columns(rng, share, layout)
    between = first + share * (second - first)
    x = torch.where(layout.is_number, between, torch.where(other, second, first))
    source = torch.from_numpy(rng.integers(m, size=(n, layout.columns)))[:, layout.column]
    swapped = _columns(rng, _shares(rng, n), layout)
    return torch.where(swapped, flat[source, torch.arange(f)], x)


def _shares(rng: np.random.Generator, n: int) -> Float[Tensor, "n 1"]:
    """For each row a share in [0, 1): 0 for half of them."""
    drawn = np.where(rng.random(n) < HALF, rng.random(n), 0.0)
    return torch.from_numpy(drawn.astype(np.float32))[:, None]


def _columns(
    rng: np.random.Generator, share: Float[Tensor, "n 1"], layout: Layout
) -> Bool[Tensor, "n f"]:
    """Features of a random share of each row's columns."""
    drawn = torch.from_numpy(rng.random((len(share), layout.columns)))
    return (drawn < share)[:, layout.column]
