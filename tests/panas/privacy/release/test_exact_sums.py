"""Sums of rows change by one row's own part, whatever the others are and however many.

At commit 4a98628 rows of norm 1 were added in the order of a library.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from panas.features.projection import GRID, SHORTER
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.release import rows as release_rows
from panas.privacy.release.estimate import Rows
from panas.privacy.release.histogram import unit_counts
from panas.privacy.release.kinds import class_sums, moments
from panas.privacy.release.rows import grid_rows, products, unit_weights

CLASSES, D = 4, 24


def drawn(n: int) -> Rows:
    g = torch.Generator().manual_seed(0)
    return Rows(torch.randn(n, D, generator=g), torch.randint(CLASSES, (n,), generator=g), None)


def test_rows_on_the_grid_are_shorter_than_one_and_near_to_what_they_were():
    z = torch.cat([drawn(500).z, 1e-9 * drawn(5).z, torch.zeros(1, D), 1e30 * drawn(5).z])
    u = grid_rows(z)
    assert (u.square().sum(1) <= SHORTER**2 * (1 + 1e-15)).all()  # squares on the grid are exact
    assert torch.equal((u / GRID).round() * GRID, u)
    clipped = z.double() / z.double().norm(dim=1, keepdim=True).clamp(min=1.0)
    assert (u - clipped).abs().max() <= 2.1 * GRID
    assert torch.equal(grid_rows(u), u)


@pytest.mark.parametrize("n", [2, 255, 257, 300])
def test_one_row_moves_sums_by_its_own_part_exactly(n: int):
    data = drawn(n)
    with_all = moments.numbers(data, CLASSES)
    for i in (0, n // 2, n - 1):
        rest = torch.arange(n) != i
        without = moments.numbers(Rows(data.z[rest], data.y[rest], None), CLASSES)
        alone = moments.numbers(Rows(data.z[i : i + 1], data.y[i : i + 1], None), CLASSES)
        assert torch.allclose(with_all - without, alone, rtol=0, atol=1e-13)
        assert (with_all - without).norm() < moments.SUM_SENSITIVITY


def test_products_are_exact_in_every_order():
    u = grid_rows(drawn(3000).z)
    found = products(u, u)
    for order in (torch.arange(3000).flip(0), torch.randperm(3000)):
        assert torch.equal(products(u[order], u[order]), found)
    steps = (u / GRID).long()
    whole = (steps[:, :, None] * steps[:, None, :]).sum(0)  # whole numbers of 64 bits
    assert torch.equal((found / GRID**2).long(), whole)


def test_parts_of_many_rows_add_up(monkeypatch: pytest.MonkeyPatch):
    u = grid_rows(drawn(100).z)
    whole = products(u, u)
    monkeypatch.setattr(release_rows, "AT_ONCE", 7)
    assert torch.equal(products(u, u), whole)


def summed(data: Rows) -> Tensor:
    found = class_sums.run(data, CLASSES, 0.0, ReproducibleNoise(np.random.default_rng(0)))
    return torch.cat([t.double().flatten() for t in found.values()])


def test_class_sums_move_by_no_more_than_is_claimed():
    data = drawn(260)
    rest = Rows(data.z[:-1], data.y[:-1], None)
    assert (summed(data) - summed(rest)).norm() <= class_sums.SENSITIVITY + 1e-4  # 32 bits


@pytest.mark.parametrize("size", [2, 3, 7, 50])
def test_a_group_moves_sums_by_no_more_than_is_claimed(size: int):
    z, y = drawn(200 + size).z, drawn(200 + size).y
    groups = torch.cat([torch.arange(200), torch.full((size,), 999)])
    for alike in (False, True):
        if alike:
            z[200:], y[200:] = z[200], y[200]
        rest = groups != 999
        both = [Rows(z, y, groups), Rows(z[rest], y[rest], groups[rest])]
        first, second = (moments.numbers(rows, CLASSES) for rows in both)
        assert (first - second).norm() <= moments.SUM_SENSITIVITY
        counts = [unit_counts(rows.y, rows.groups, CLASSES) for rows in both]
        assert (counts[0] - counts[1]).norm() <= 1.0


def test_weights_are_whole_steps_so_that_counts_are_exact():
    y = torch.zeros(9, dtype=torch.int64)
    rows = Rows(torch.ones(9, 1).double(), y, torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3]))
    weights = unit_weights(rows, 1.0, lambda z, _: float(len(z)))
    assert torch.equal((weights * 2**30).round(), weights * 2**30)
    assert torch.allclose(
        weights, torch.tensor([1 / 3] * 3 + [0.5] * 2 + [1.0] + [1 / 3] * 3).double()
    )
    assert math.isclose(float(weights.sum()), 4.0, rel_tol=1e-8)
