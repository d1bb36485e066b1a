"""What is taken for the second moments of pooled samples, of noised ones and public samples."""

import pytest
import torch
from torch import Tensor

from panas.privacy.release.estimate import SECOND_MOMENTS, Moments
from panas.training.linear.ridge import balance, shared_head
from panas.training.linear.second_moments import denoised, public_moments

D, CLASSES, N = 12, 3, 1500.0


def rows(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(2, 0.2, D, dtype=torch.float64)
    u = torch.randn(n, D, generator=generator, dtype=torch.float64) * scale
    return torch.nn.functional.normalize(u, dim=1)


def noise(s: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    e = torch.randn(D, D, generator=generator, dtype=torch.float64)
    upper = torch.triu(e, 1) / 2**0.5
    return s / SECOND_MOMENTS * (upper + upper.T + torch.diag(e.diagonal()))


def moments_of(A: Tensor, s: float) -> Moments:
    return Moments(A, torch.zeros(CLASSES, D).double(), s**2, torch.full((CLASSES,), N / CLASSES))


def test_exact_moments_stay_as_they_are() -> None:
    A = rows(1500, 0).T @ rows(1500, 0)
    assert denoised(moments_of(A, 0.0), N, public_moments(rows(50, 1))) is A


@pytest.mark.parametrize("public", [0, 40, 2000])
@pytest.mark.parametrize("s", [5.0, 50.0])
def test_it_is_nearer_than_what_was_released(public: int, s: float) -> None:
    exact = rows(1500, 0).T @ rows(1500, 0)
    seen = public_moments(rows(public, 1)) if public else None
    released, drawn = [], []
    for seed in range(20):
        m = moments_of(exact + noise(s, seed), s)
        released.append((m.A - exact).square().mean())
        drawn.append((denoised(m, N, seen) - exact).square().mean())
    assert sum(drawn) < sum(released)


def test_the_larger_the_noise_the_more_public_samples_tell() -> None:
    seen, exact = public_moments(rows(2000, 1)), rows(1500, 0).T @ rows(1500, 0)
    by_public = N / 2000 * seen.A
    far = [
        (denoised(moments_of(exact, s), N, seen) - by_public).norm() for s in (0.1, 1.0, 10.0, 1e6)
    ]
    assert far == sorted(far, reverse=True)
    assert far[-1] < 0.02 * by_public.norm()


def test_the_shared_head_uses_them() -> None:
    m = moments_of(rows(1500, 0).T @ rows(1500, 0) + noise(20.0, 0), 20.0)
    m = balance(Moments(m.A, torch.randn(CLASSES, D).double(), m.variance, m.counts))
    with_public = shared_head(m, seen=public_moments(rows(2000, 1)))
    assert not torch.allclose(with_public, shared_head(m))
