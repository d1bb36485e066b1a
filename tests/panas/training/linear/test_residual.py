"""Residuals: DP-SGD is plain gradient descent in the limit, and without noise scikit-learn's."""

from dataclasses import replace

import pytest
import torch
from noises import NoNoise
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional as F

from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.runtime.seeds import stream, torch_generator
from panas.training.linear.residual import (
    cross_validated,
    fit_logistic,
    fit_residual,
    zero_residual,
)

N, D, CLASSES = 40, 5, 3
PLAN = Plan(samples=N, batch_size=N, clip=1e3, noise_multiplier=1e-9, epochs=7, rounds=1)


def data(seed: int = 0) -> tuple[Rows, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z, y = torch.randn(N, D, generator=g), torch.randint(CLASSES, (N,), generator=g)
    return Rows(z / z.norm(dim=1, keepdim=True), y), torch.randn(N, CLASSES, generator=g)


def fitted(rows: Rows, offset: Tensor, plan: Plan, learning_rate: float = 0.7) -> nn.Linear:
    residual = zero_residual(D, CLASSES)
    fit_residual(residual, rows, offset, plan=plan, learning_rate=learning_rate, noise=NoNoise())
    return residual


def test_without_clip_and_noise_it_is_gradient_descent_over_the_offset():
    rows, offset = data()
    V, v = torch.zeros(CLASSES, D, requires_grad=True), torch.zeros(CLASSES, requires_grad=True)
    for _ in range(PLAN.epochs):
        loss = F.cross_entropy(offset + rows.z @ V.T + v, rows.y)
        for p, g in zip((V, v), torch.autograd.grad(loss, (V, v)), strict=True):
            p.data -= 0.7 * g
    result = fitted(rows, offset, PLAN)
    torch.testing.assert_close(result.weight.detach(), V.detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(result.bias.detach(), v.detach(), atol=1e-5, rtol=1e-4)


def test_one_strange_row_moves_a_step_by_no_more_than_the_clip():
    rows, offset = data()
    plan = replace(PLAN, clip=0.1, epochs=1)
    whole = fitted(rows, offset, plan, 1.0)
    for strange in (1e30, float("nan"), -1e4):
        z, other = rows.z.clone(), offset.clone()
        z[3], other[3] = strange, strange
        result = fitted(rows._replace(z=z), other, plan, 1.0)
        moved = torch.cat([result.weight - whole.weight, (result.bias - whole.bias)[:, None]], 1)
        assert moved.norm() <= 2 * plan.clip / N * 1.001


def test_rows_of_one_group_move_a_step_like_one():
    rows, offset = data()
    plan = replace(PLAN, clip=1e-3, epochs=1)
    groups = torch.arange(N) // 4
    grouped = replace(plan, samples=N // 4, batch_size=N // 4)
    result = fitted(rows._replace(groups=groups), offset, grouped, 1.0)
    step = torch.cat([result.weight, result.bias[:, None]], 1).norm()
    assert 0 < step <= plan.clip * 1.001


def blobs(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch_generator(stream(seed, "blobs"))
    y = torch.randint(3, (n,), generator=g)
    return torch.eye(3)[y].repeat(1, 2) + torch.randn(n, 6, generator=g), y


def test_without_an_offset_it_is_logistic_regression():
    z, y = blobs(200)
    mine = fit_logistic(z, y, torch.zeros(200, 3), 2.0)
    theirs = LogisticRegression(C=0.5, tol=1e-8, max_iter=1000).fit(z.numpy(), y.numpy())
    with torch.no_grad():
        result = mine(z).softmax(1)
    torch.testing.assert_close(
        result, torch.from_numpy(theirs.predict_proba(z.numpy())).float(), atol=2e-3, rtol=1e-2
    )


@pytest.mark.slow
def test_a_good_head_is_kept_and_a_bad_one_is_not():
    z, y = blobs(60)
    good, bad = 6 * torch.eye(3)[y], 6 * torch.eye(3)[(y + 1) % 3]
    chosen = cross_validated(z, y, {"good": good, "bad": bad, "": 0 * good}, stream(0))
    assert chosen.over == "good"
    assert cross_validated(z, y, {"bad": bad, "": 0 * bad}, stream(0)).over == ""


@pytest.mark.slow
def test_few_or_no_samples_are_enough():
    z, y = blobs(3)
    assert (
        cross_validated(z, y, {"": torch.zeros(3, 3)}, stream(0)).residual.weight.isfinite().all()
    )
    z, y = blobs(0)
    chosen = cross_validated(z, y, {"shared": torch.zeros(0, 3), "": torch.zeros(0, 3)}, stream(0))
    assert chosen.over == "shared"
    assert not chosen.residual.weight.any()
    assert not chosen.residual.bias.any()
