"""Principal axes and unit rows, against their definitions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from panas.features.projection import Cloud, cloud, filled_up, principal, unit_rows


def rows(seed: int, n: int = 200, f: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    spread = torch.linspace(0.1, 3, f)
    return torch.randn(n, f, generator=generator) * spread + 1


@given(st.integers(0, 20))
def test_whitened_coordinates_have_equal_variance_and_no_covariance(seed: int):
    x = rows(seed)
    z = principal(cloud(x), 4, power=1.0)(x).double()
    assert torch.allclose(z.T @ z / len(z), torch.eye(4, dtype=torch.float64), atol=5e-3)
    assert torch.allclose(z.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-4)


def test_without_whitening_distances_stay_and_axes_come_by_their_variance():
    x = rows(1)
    z = principal(cloud(x), 6, power=0.0)(x)
    distances = [torch.cdist(r.double(), r.double()) for r in (z, x)]
    assert torch.allclose(*distances, atol=2e-2)
    z = principal(cloud(x), 99, power=0.0)(x)  # no more than there are
    assert z.shape == (200, 6)
    assert (z.std(0).diff() < 0).all()


def test_few_samples_are_filled_up():
    seen, synthetic = cloud(rows(3, n=2)), cloud(rows(4))
    both = filled_up(seen, synthetic, 30.0)
    assert torch.equal(both.mean, seen.mean)
    assert math.isclose(float(both.covariance.trace()), float(seen.covariance.trace()))
    assert torch.linalg.matrix_rank(seen.covariance) == 1
    assert torch.linalg.matrix_rank(both.covariance) == 6
    many = filled_up(Cloud(1e9, seen.mean, seen.covariance), synthetic, 30.0)
    assert torch.allclose(many.covariance, seen.covariance, atol=1e-5)


@pytest.mark.parametrize("largest", [1e-30, 1e-3, 1.0, 1e30])
def test_rows_have_length_one_and_never_more(largest: float):
    z = torch.randn(2000, 128, generator=torch.Generator().manual_seed(0)) * largest
    norms = unit_rows(z, torch.ones(2000, dtype=torch.bool)).double().norm(dim=1)
    if largest < 1e-12:
        assert not norms.any()
    else:
        assert norms.max() <= 1
        assert norms.min() > 1 - 1e-5


def test_a_row_without_length_or_use_is_zero():
    z = torch.tensor([[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [3.0, 4.0], [3.0, 4.0]])
    unit = unit_rows(z, torch.tensor([True, True, True, False, True]))
    assert not unit[:4].any()
    assert torch.allclose(unit[4], torch.tensor([0.6, 0.8]), atol=1e-5)
