"""Private gradients: one autograd call a sample, clipped and summed, is what they must equal."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from noises import HalfNoise, NoNoise
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from plans import plan_of
from sample_gradients import data, genome_network
from torch import Tensor, nn
from torch.nn import functional as F

from panas.architecture.genome import Genome
from panas.architecture.network import build_bottom
from panas.privacy.gradients.private import STEP, PrivateGradient
from panas.privacy.noise import NoiseSource, ReproducibleNoise, SystemNoise, poisson_batch
from panas.runtime.errors import BadInput

GENOMES = ["c8k3", "c8k3-max-c12k5", "c5k5-avg-c7k3-max-c7k3", "c16k3-c16k3-avg-c8k5"]


def network(genome: str, shape: tuple[int, int, int], seed: int = 1) -> nn.Module:
    """With rows of length 1 for an odd seed."""
    return genome_network(Genome.parse(genome), shape, seed)


def naive(model: nn.Module, x: Tensor, y: Tensor, clip: float) -> list[Tensor]:
    """The sum of clipped gradients, one sample at a time by plain autograd."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
    for i in range(len(y)):
        loss = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
        grads = [g.double() for g in torch.autograd.grad(loss, parameters)]
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
        for t, g in zip(total, grads, strict=True):
            t += min(1.0, clip / max(norm, 1e-12)) * g
    return total


def difference(a: list[Tensor], b: list[Tensor]) -> float:
    """Euclidean distance over the length of b."""
    flat = [torch.cat([t.detach().double().flatten() for t in ts]) for ts in (a, b)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm().clamp(min=1e-12))


@pytest.mark.parametrize("genome", GENOMES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7)])
@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_the_clipped_sum_is_that_of_a_loop(genome: str, shape: tuple[int, int, int], clip: float):
    model = network(genome, shape)
    x, y = data(9, *shape)
    expected = naive(model, x, y, clip)
    assert difference(PrivateGradient(model).clipped_sum(x, y, clip), expected) < 1e-5
    if clip < 1:
        assert difference(expected, naive(model, x, y, 1e6)) > 0.1  # the clip does bite


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, STEP, STEP + 1, 257])
def test_every_batch_size(size: int) -> None:
    model = network("c4k3-max-c4k3", (1, 6, 5), 0)
    x, y = data(size, 1, 6, 5)
    got = PrivateGradient(model).clipped_sum(x, y, 0.3)
    if size:
        assert difference(got, naive(model, x, y, 0.3)) < 1e-5
    else:
        assert all(not t.any() for t in got)
    assert [t.shape for t in got] == [p.shape for p in model.parameters()]


@pytest.mark.slow
def test_one_sample_moves_the_sum_by_the_clip_at_most() -> None:
    model = network("c8k3-max-c12k5", (1, 8, 8))
    x, y = data(12, 1, 8, 8)
    x[3] *= 1e4
    whole = PrivateGradient(model).clipped_sum(x, y, 0.01)
    for i in range(12):
        rest = torch.arange(12) != i
        without = PrivateGradient(model).clipped_sum(x[rest], y[rest], 0.01)
        moved = sum(float((a - b).square().sum()) for a, b in zip(whole, without, strict=True))
        assert math.sqrt(moved) <= 0.01 * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("genome", ["c8k3-max-c12k5", "c4k5-c6k3-avg-c6k1"])
def test_training_is_opacus_training_step_by_step(genome: str, monkeypatch: pytest.MonkeyPatch):
    """Same batches and same noise, from two equal test generators: same weights at every step."""
    shape, n, steps = (3, 9, 7), 60, 8
    x, y = data(n, *shape)
    plan = plan_of(n, 15, clip=0.3, sigma=0.8)
    ours, theirs = network(genome, shape), network(genome, shape)
    sizes = [p.numel() for p in theirs.parameters()]
    here, there = (ReproducibleNoise(np.random.default_rng(5)) for _ in range(2))
    pending: list[Tensor] = []

    def same_noise(std: float, reference: Tensor, **_: object) -> Tensor:
        if not pending:
            pending.extend(there.normal(sum(sizes)).split(sizes))
        return (std * pending.pop(0)).float().view_as(reference)

    monkeypatch.setattr("opacus.optimizers.optimizer._generate_noise", same_noise)
    wrapped = GradSampleModule(theirs, loss_reduction="mean")
    opacus = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.2, momentum=0.5),
        noise_multiplier=plan.noise_multiplier,
        max_grad_norm=plan.clip,
        expected_batch_size=15,
    )
    plain = torch.optim.SGD(ours.parameters(), lr=0.2, momentum=0.5)
    gradient = PrivateGradient(ours)
    start = [p.detach().clone() for p in ours.parameters()]
    for _ in range(steps):
        mine, other = (poisson_batch(n, plan.rate, source) for source in (here, there))
        assert torch.equal(mine, other)
        gradient.step(x[mine], y[mine], plan.clip_and_noise, here)
        plain.step()
        opacus.zero_grad()
        F.cross_entropy(wrapped(x[other]), y[other]).backward()
        opacus.step()
        assert difference(list(ours.parameters()), list(theirs.parameters())) < 1e-5
    assert difference(list(ours.parameters()), start) > 0.02


def noise_ratio(source: NoiseSource) -> float:
    """Standard deviation of an empty batch's gradient over sigma C / (q n)."""
    model = network("c16k3-c16k3-c16k5", (1, 8, 8))
    x, y = data(0, 1, 8, 8)
    gradient = PrivateGradient(model)
    gradient.step(x, y, plan_of(200, 40, 0.7, sigma=3.0).clip_and_noise, source)
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert len(flat) > 1000
    return float(flat.std()) / (3.0 * 0.7 / 40)


def test_an_empty_batch_is_noise_of_the_right_size_alone_and_batch_norm_is_refused() -> None:
    assert noise_ratio(SystemNoise()) == pytest.approx(1.0, abs=0.12)
    assert noise_ratio(HalfNoise()) != pytest.approx(1.0, abs=0.12)
    bottom = build_bottom(Genome.parse("c8k3"), shape=(1, 8, 8), width=4, norm="batch")
    with pytest.raises(BadInput, match='norm="group"'):
        PrivateGradient(bottom)


def test_the_divisor_is_the_expected_size_whatever_the_real_one() -> None:
    model = network("c8k3", (1, 8, 8))
    x, y = data(7, 1, 8, 8)
    expected = naive(model, x, y, 0.1)
    gradient = PrivateGradient(model)
    gradient.step(x, y, plan_of(100, 20, 0.1).clip_and_noise, NoNoise())
    got = [20 * p.grad for p in model.parameters() if p.grad is not None]
    assert difference(got, expected) < 1e-5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_sample_that_is_not_finite_contributes_nothing(value: float) -> None:
    model = network("c8k3-max-c12k5", (1, 8, 8))
    x, y = data(6, 1, 8, 8)
    rest = torch.tensor([0, 1, 3, 4, 5])
    expected = naive(model, x[rest], y[rest], 0.1)
    x[2, 0, 4, 4] = value
    got = PrivateGradient(model).clipped_sum(x, y, 0.1)
    assert all(bool(torch.isfinite(t).all()) for t in got)
    assert difference(got, expected) < 1e-5


def test_a_fixed_head_gets_no_gradient_and_no_noise() -> None:
    model = network("c8k3", (1, 8, 8))
    head = model[1]
    assert isinstance(head, nn.Module)
    head.requires_grad_(False)
    x, y = data(5, 1, 8, 8)
    gradient = PrivateGradient(model)
    gradient.step(x, y, plan_of(5, 5, 1.0).clip_and_noise, SystemNoise())
    assert all(p.grad is None for p in head.parameters())
    assert all(p.grad is not None for p in model[0].parameters())


def test_the_model_is_left_as_it_was() -> None:
    model = network("c8k3", (1, 8, 8))
    x, y = data(5, 1, 8, 8)
    for _ in range(2):
        PrivateGradient(model).clipped_sum(x, y, 1.0)
    assert not any("forward" in m.__dict__ or m._forward_hooks for m in model.modules())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    F.cross_entropy(model(x), y).backward()
    assert all(p.grad is not None for p in model.parameters())


class _Outputs(nn.Module):
    """Two outputs, in a tuple or a dictionary; the second may mix samples."""

    def __init__(self, named: bool, mixes: bool) -> None:
        super().__init__()
        self.body, self.named, self.mixes = nn.Linear(4, 3), named, mixes

    def forward(self, x: torch.Tensor) -> object:
        z = self.body(x)
        other = z[:, 2] - z[:, 2].mean() if self.mixes else z[:, 2]
        return {"one": z[:, :2], "other": other} if self.named else (z[:, :2], other)


def _both(outputs: Any, y: torch.Tensor) -> torch.Tensor:
    one, other = outputs.values() if isinstance(outputs, dict) else outputs
    return F.cross_entropy(one, y, reduction="none") + other**2


@pytest.mark.parametrize("named", [False, True])
def test_a_network_of_several_outputs_has_the_gradients_of_a_loop(named: bool) -> None:
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 1, 0, 1])
    model = _Outputs(named, mixes=False)
    whole = torch.zeros(15)
    for i in range(5):
        loss = _both(model(x[i : i + 1]), y[i : i + 1]).sum()
        g = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        whole += g * min(1.0, float(0.5 / g.norm()))
    values = PrivateGradient(model, _both).clipped_sum(x, y, 0.5)
    assert torch.allclose(torch.cat([g.flatten() for g in values]), whole, atol=1e-4)
    with pytest.raises(BadInput, match="do not mix"):
        PrivateGradient(_Outputs(named, mixes=True), _both).clipped_sum(x, y, 0.5)


def test_a_batch_with_too_few_targets_or_groups_is_refused() -> None:
    gradient = PrivateGradient(nn.Linear(4, 2))
    x, y = torch.randn(5, 4), torch.zeros(5, dtype=torch.int64)
    # Not by `clipped_sum`, whose shapes are checked in tests alone.
    with pytest.raises(BadInput, match="a target for each sample"):
        gradient._clipped_sum(x, y[:3], 1.0, None)
    with pytest.raises(BadInput, match="a group for each sample"):
        gradient._clipped_sum(x, y, 1.0, y[:3])
