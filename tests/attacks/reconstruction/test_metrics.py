import math

import numpy as np
import pytest
import torch

from attacks.reconstruction.metrics import (
    candidates,
    psnr,
    r2,
    reidentified,
    score,
    squared_errors,
    ssim,
)
from attacks.statistics import mean_interval


def _images(n: int, c: int, h: int, w: int, seed: int) -> torch.Tensor:
    return torch.rand(n, c, h, w, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7), (1, 5, 6), (2, 1, 1)])
def test_ssim_equals_a_naive_loop_over_windows(shape: tuple[int, int, int]) -> None:
    c, h, w = shape
    a, b = _images(3, c, h, w, 0), _images(3, c, h, w, 1)
    side, c1, c2 = min(7, h, w), 0.02**2, 0.06**2
    for i in range(3):
        values = []
        for channel in range(c):
            for top in range(h - side + 1):
                for left in range(w - side + 1):
                    at = (i, channel, slice(top, top + side), slice(left, left + side))
                    p, q = a[at].double().numpy(), b[at].double().numpy()
                    up = (2 * p.mean() * q.mean() + c1) * (
                        2 * ((p - p.mean()) * (q - q.mean())).mean() + c2
                    )
                    down = (p.mean() ** 2 + q.mean() ** 2 + c1) * (p.var() + q.var() + c2)
                    values.append(up / down)
        assert float(ssim(a, b)[i]) == pytest.approx(np.mean(values), abs=1e-9)


def test_perfect_mean_and_constant_images_have_their_scores() -> None:
    x = _images(20, 1, 8, 8, 0)
    s = score("perfect", x, x, x.mean(0), rng=np.random.default_rng(0))
    assert (s.mse, s.r2, s.intervals["r2"]) == (0.0, 1.0, (1.0, 1.0))
    assert s.reidentified == 1.0
    assert s.ssim == pytest.approx(1.0)
    assert s.psnr == pytest.approx(10 * math.log10(4 / 1e-10))
    x = _images(20, 2, 4, 5, 0)
    s = score("mean image", x, x.mean(0).expand_as(x), x.mean(0), rng=np.random.default_rng(0))
    assert (s.r2, s.intervals["r2"]) == (0.0, (0.0, 0.0))
    assert s.mse == pytest.approx(float(x.var(dim=0, correction=0).mean()), rel=1e-5)
    naive = [10 * math.log10(4 / float((v - x.mean(0)).square().mean())) for v in x]
    assert s.psnr == pytest.approx(np.mean(naive), rel=1e-5)
    x = torch.zeros(12, 1, 3, 3)
    record = score("any", x, x, x[0], rng=np.random.default_rng(0)).to_json()
    assert record["r2"] is None
    assert record["r2_interval"] == [None, None]


def test_errors_are_means_over_values() -> None:
    a, b = _images(4, 3, 2, 2, 0), _images(4, 3, 2, 2, 1)
    errors = squared_errors(a, b)
    assert float(errors[2]) == pytest.approx(float(((a[2] - b[2]) ** 2).mean()), rel=1e-6)
    assert r2(errors, errors) == 0.0
    assert torch.isfinite(psnr(errors)).all()


def test_candidates_are_of_the_samples_class_as_far_as_there_are_as_many() -> None:
    y = torch.tensor([0] * 30 + [1] * 4)
    among = candidates(y, rng=np.random.default_rng(0), k=6)
    assert torch.equal(among[:, 0], torch.arange(34))
    assert all(len(set(row)) == 6 for row in among.tolist())
    assert (y[among[:30]] == 0).all()
    assert (y[among[30:]] == 1).sum(1).tolist() == [4] * 4
    assert candidates(y[:3], rng=np.random.default_rng(0)).shape == (3, 3)


def test_reidentification_is_one_in_k_by_chance_and_certain_with_the_image() -> None:
    x, rng = _images(400, 1, 4, 4, 0), np.random.default_rng(0)
    among = candidates(torch.zeros(400, dtype=torch.long), rng=rng, k=5)
    assert float(reidentified(x, x + 0.1, among).mean()) == 1.0
    blind = reidentified(x, x.mean(0).expand_as(x), among)  # the nearest to the mean is chosen
    low, high = mean_interval(blind, rng=rng)
    assert low < 1 / 5 < high
    assert reidentified(x, x * math.nan, among).sum() == 0
    same = reidentified(x[:1].expand_as(x), x, among)
    assert same.tolist() == [1 / 5] * 400  # ties
