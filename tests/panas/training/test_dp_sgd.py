"""DP training without noise is a naive per-sample loop."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_networks import FIXED_HEAD, SGD, data, flat, networks
from torch import Tensor
from torch.nn import functional as F

from panas.architecture.head import Head
from panas.architecture.network import Bottom
from panas.data.samples import Samples
from panas.privacy.noise import ReproducibleNoise, SystemNoise
from panas.privacy.plan import Plan
from panas.training.dp_sgd import fit_private
from panas.training.sgd import fit


class NoNoise(ReproducibleNoise):
    """Poisson batches that repeat, and zeros in place of noise."""

    def normal(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64)


def plan_for(n: int, batch_size: int, clip: float, epochs: int) -> Plan:
    return Plan(
        samples=n,
        batch_size=batch_size,
        clip=clip,
        noise_multiplier=1.0,
        epochs=epochs,
        rounds=1,
    )


def naive_dp_sgd(
    bottom: Bottom, head: Head, samples: Samples, plan: Plan, rate: float, rng: np.random.Generator
) -> list[Tensor]:
    """Abadi et al.'s algorithm 1 without noise, a sample at a time; the weights after each step."""
    parameters = [*bottom.parameters(), *head.parameters()]
    x, y = samples.x.float() / 127.5 - 1, samples.y
    path = []
    for _ in range(plan.steps):
        members = [i for i, u in enumerate(rng.random(len(y))) if u < plan.batch_size / len(y)]
        total = [torch.zeros_like(p) for p in parameters]
        for i in members:
            loss = F.cross_entropy(head(bottom(x[i : i + 1])), y[i : i + 1])
            grads = torch.autograd.grad(loss, parameters)
            norm = math.sqrt(sum(float(g.double().square().sum()) for g in grads))
            for t, g in zip(total, grads, strict=True):
                t += g * min(1.0, plan.clip / norm)
        with torch.no_grad():
            for p, t in zip(parameters, total, strict=True):
                p -= rate * t / plan.batch_size
        path.append(flat(bottom, head))
    return path


@pytest.mark.parametrize("clip", [0.3, 1e6])
@pytest.mark.parametrize("batch_size", [4, 15, 40])
def test_without_noise_dp_training_is_a_naive_loop_step_by_step(
    clip: float, batch_size: int
) -> None:
    samples = data(15)
    longest = plan_for(15, batch_size, clip, epochs=2)
    if batch_size > 15:
        # A batch above n is the full batch, divided by n.
        longest = replace(longest, batch_size=15)
    expected = naive_dp_sgd(*networks(), samples, longest, 0.5, np.random.default_rng(8))
    moved = (expected[-1] - flat(*networks())).norm()
    for epochs in (1, 2):
        bottom, head = networks()
        plan = plan_for(15, batch_size, clip, epochs)
        noise = NoNoise(np.random.default_rng(8))
        fit_private(bottom, head, samples, plan=plan, config=SGD, noise=noise)
        error = (flat(bottom, head) - expected[plan.steps - 1]).norm()
        assert float(error) < 1e-5 * float(moved)


def test_rate_one_and_a_huge_clip_are_full_batch_gradient_descent() -> None:
    samples = data(15)
    bottom, head = networks()
    plan = plan_for(15, 15, 1e6, epochs=4)
    fit_private(
        bottom, head, samples, plan=plan, config=SGD, noise=NoNoise(np.random.default_rng(0))
    )
    b, h = networks()
    optimiser = torch.optim.SGD([*b.parameters(), *h.parameters()], lr=0.5)
    for _ in range(4):
        optimiser.zero_grad()
        F.cross_entropy(h(b(samples.inputs())), samples.y).backward()
        optimiser.step()
    torch.testing.assert_close(flat(bottom, head), flat(b, h), rtol=1e-4, atol=1e-5)


def test_dp_training_repeats_from_a_seed_and_never_from_the_systems_entropy() -> None:
    ends = []
    for noise in (
        ReproducibleNoise(np.random.default_rng(1)),
        ReproducibleNoise(np.random.default_rng(1)),
        SystemNoise(),
        SystemNoise(),
    ):
        bottom, head = networks()
        fit_private(bottom, head, data(15), plan=plan_for(15, 5, 1.0, 1), config=SGD, noise=noise)
        ends.append(flat(bottom, head))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[2], ends[3])


@pytest.mark.parametrize("private", [True, False])
def test_a_fixed_head_stays_where_it_is(private: bool) -> None:
    bottom, head = networks()
    before, bottom_before = flat(head), flat(bottom)
    if private:
        fit_private(
            bottom,
            head,
            data(15),
            plan=plan_for(15, 5, 1.0, 1),
            config=FIXED_HEAD,
            noise=SystemNoise(),
        )
    else:
        rng = np.random.default_rng(0)
        fit(bottom, head, data(15), config=FIXED_HEAD, rng=rng)
    assert torch.equal(flat(head), before)
    assert not torch.equal(flat(bottom), bottom_before)
