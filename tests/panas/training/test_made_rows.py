"""Rows made of a table's: what moves together, how many stay, and who answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from panas.data.facts import Facts
from panas.data.files.columns import Column
from panas.data.samples import Samples
from panas.training.made_rows import Layout, made_of_rows, made_rows

COLUMNS = (
    Column(name="a number"),
    Column(name="a text", kind="text", categories=("x", "y")),
    Column(name="a number that may be missing", missing=True),
    Column(name="a code", kind="text"),
)
FACTS = Facts(class_names=("a", "b"), shape=(1, 4, 4), dtype="float32", columns=COLUMNS)
WIDTHS = [1, 3, 2, 8, 2]  # the last is what pads a row
LAYOUT = Layout.of(FACTS)


def rows(n: int, seed: int = 0) -> Samples:
    x = torch.rand(n, 16, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    x[:, 14:] = 0
    return Samples(x.view(n, *FACTS.shape), torch.zeros(n, dtype=torch.int64), 2)


def bright(x: Tensor) -> Tensor:
    mean = x.mean((1, 2, 3))
    return torch.stack([mean, -mean], 1).softmax(1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_layout_keeps_the_features_of_a_column_together() -> None:
    assert LAYOUT.column.tolist() == [i for i, w in enumerate(WIDTHS) for _ in range(w)]
    assert LAYOUT.is_number.nonzero().flatten().tolist() == [0]
    assert LAYOUT.columns == 5
    vectors = replace(FACTS, columns=(), shape=(1, 1, 6))
    layout = Layout.of(vectors)
    assert layout.columns == 6
    assert bool(layout.is_number.all())


def test_a_number_and_its_angle_move_as_a_whole() -> None:
    columns = (Column(name="a", angle=True), Column(name="b", reach=1.0))
    layout = Layout.of(replace(FACTS, columns=columns, shape=(1, 2, 2)))
    assert layout.column.tolist() == [0, 0, 0, 1]
    assert layout.is_number.tolist() == [False, False, False, True]


def test_only_numbers_lie_between_others_and_columns_move_whole() -> None:
    known = rows(7).inputs().flatten(1)
    made = made_of_rows(known, LAYOUT, 500, rng())
    low, high = known[:, 0].min(), known[:, 0].max()
    assert bool((made[:, 0] >= low - 1e-6).all() and (made[:, 0] <= high + 1e-6).all())
    assert len(made[:, 0].unique()) > 100  # not the seven alone
    for part, of in zip(made.split(WIDTHS, dim=1), known.split(WIDTHS, dim=1), strict=True):
        if part.shape[1] > 1:
            assert bool((part[:, None] == of[None]).all(2).any(1).all())


def test_a_quarter_stays_half_is_swapped_and_the_rest_is_blended() -> None:
    known, n = rows(200).inputs().flatten(1), 4000
    made = made_of_rows(known, LAYOUT, n, rng())
    same = (made[:, None] == known[None]).all(2).any(1).double().mean()
    assert float(same) == pytest.approx(0.25, abs=0.08)  # and swaps or blends of no column
    blended = ~(made[:, :1, None] == known[None, :, :1].transpose(1, 2)).any(2)
    assert float(blended.double().mean()) == pytest.approx(0.5 * 0.75, abs=0.05)


def test_one_row_alone_makes_only_itself() -> None:
    known = rows(1).inputs().flatten(1)
    made = made_of_rows(known, LAYOUT, 50, rng())
    torch.testing.assert_close(made, known.expand(50, -1))


def test_made_rows_have_the_teacher_s_answers_and_repeat() -> None:
    found = made_rows(rows(9), LAYOUT, 1500, teacher=bright, rng=rng(3))
    assert (len(found), found.samples.shape) == (1500, FACTS.shape)
    torch.testing.assert_close(found.targets, bright(found.samples.inputs()))
    again = made_rows(rows(9), LAYOUT, 1500, teacher=bright, rng=rng(3))
    other = made_rows(rows(9), LAYOUT, 1500, teacher=bright, rng=rng(4))
    assert torch.equal(found.samples.x, again.samples.x)
    assert not torch.equal(found.samples.x, other.samples.x)
    none = made_rows(rows(9), LAYOUT, 0, teacher=bright, rng=rng(3))
    assert (len(none), none.samples.shape) == (0, FACTS.shape)


def test_labels_are_not_read() -> None:
    known = rows(9)
    other = replace(known, y=1 - known.y)
    first, second = (
        made_rows(part, LAYOUT, 40, teacher=bright, rng=rng()) for part in (known, other)
    )
    assert torch.equal(first.samples.x, second.samples.x)
    assert torch.equal(first.samples.y, second.samples.y)
