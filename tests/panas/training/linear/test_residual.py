"""DP-SGD of a residual: plain gradient descent in the limit, and no more than a clip for a row."""

from dataclasses import replace

import torch
from noises import NoNoise
from torch import Tensor, nn
from torch.nn import functional as F

from panas.privacy.plan import Plan
from panas.privacy.release.estimate import Rows
from panas.training.linear.residual import fit_residual, zero_residual

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
    found = fitted(rows, offset, PLAN)
    torch.testing.assert_close(found.weight.detach(), V.detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.bias.detach(), v.detach(), atol=1e-5, rtol=1e-4)


def test_one_strange_row_moves_a_step_by_no_more_than_the_clip():
    rows, offset = data()
    plan = replace(PLAN, clip=0.1, epochs=1)
    whole = fitted(rows, offset, plan, 1.0)
    for strange in (1e30, float("nan"), -1e4):
        z, other = rows.z.clone(), offset.clone()
        z[3], other[3] = strange, strange
        found = fitted(rows._replace(z=z), other, plan, 1.0)
        moved = torch.cat([found.weight - whole.weight, (found.bias - whole.bias)[:, None]], 1)
        assert moved.norm() <= 2 * plan.clip / N * 1.001


def test_rows_of_one_group_move_a_step_like_one():
    rows, offset = data()
    plan = replace(PLAN, clip=1e-3, epochs=1)
    groups = torch.arange(N) // 4
    grouped = replace(plan, samples=N // 4, batch_size=N // 4)
    found = fitted(rows._replace(groups=groups), offset, grouped, 1.0)
    step = torch.cat([found.weight, found.bias[:, None]], 1).norm()
    assert 0 < step <= plan.clip * 1.001
