"""Groups as the privacy unit: one clipped gradient each, drawn and trained on as a whole."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_samples import random_bytes
from sample_gradients import data, seeded
from torch import Tensor, nn

from attacks.epsilon.mechanism import lower_bound
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.data.samples import Samples
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.gradients.per_sample import cross_entropy
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import ReproducibleNoise, SystemNoise, poisson_batch
from panas.privacy.plan import Plan
from panas.training.any_model import fit_private
from panas.training.sgd import OptimizerConfig

CLIP = 0.3


def model() -> nn.Module:
    return seeded(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def naive(x: Tensor, y: Tensor, groups: Tensor) -> Tensor:
    """Plain autograd: the mean loss of each group, its gradient clipped once."""
    network = model()
    total = torch.zeros(sum(p.numel() for p in network.parameters()))
    for group in groups.unique():
        rows = groups == group
        loss = cross_entropy(network(x[rows]), y[rows]).mean()
        g = flat(list(torch.autograd.grad(loss, list(network.parameters()))))
        total += g * min(1.0, CLIP / float(g.norm()))
    return total


def clipped(x: Tensor, y: Tensor, groups: Tensor | None, chunk: int = 0) -> Tensor:
    gradient = PrivateGradient(model())
    gradient.chunk = chunk
    return flat(gradient.clipped_sum(x, y, CLIP, groups))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 1, 16, 48])
@pytest.mark.parametrize("sizes", [[3, 1, 5, 2], [100, 2], [1, 1, 40, 1, 33, 7]])
def test_a_group_has_one_gradient_that_is_clipped_once(chunk: int, sizes: list[int]) -> None:
    n = sum(sizes)
    groups = torch.repeat_interleave(7 - torch.arange(len(sizes)), torch.tensor(sizes))
    groups = groups[torch.randperm(n, generator=torch.Generator().manual_seed(3))]
    x, y = data(n, 4)
    torch.testing.assert_close(clipped(x, y, groups, chunk), naive(x, y, groups))


def test_a_group_moves_the_sum_by_the_clip_at_most_and_its_samples_apart_by_more() -> None:
    x, y = data(40, 4)
    x[:20], y[:20] = x[0], y[0]
    groups = torch.arange(40).clamp(min=19)
    moved = [
        float((clipped(x, y, g) - clipped(x[20:], y[20:], None if g is None else g[20:])).norm())
        for g in (groups, None)
    ]
    assert moved[0] <= CLIP
    assert moved[1] > 2 * CLIP  # sample-level clipping, the planted bug


def test_a_sample_that_is_not_finite_counts_as_zero_in_its_group() -> None:
    x, y = data(6, 4)
    groups = torch.tensor([0, 0, 0, 1, 1, 2])
    x[1] = math.nan
    x[5] = math.inf
    values = clipped(x, y, groups)
    assert bool(values.isfinite().all())
    network = model()
    kept = torch.tensor([0, 2])
    loss = cross_entropy(network(x[kept]), y[kept]).sum() / 3
    g = flat(list(torch.autograd.grad(loss, list(network.parameters()))))
    expected = g * min(1.0, CLIP / float(g.norm())) + naive(x[3:5], y[3:5], groups[3:5])
    torch.testing.assert_close(values, expected)


PLAN = Plan(samples=30, batch_size=10, clip=CLIP, noise_multiplier=1.0, epochs=3, rounds=1)


def trained(samples: Samples, plan: Plan) -> Tensor:
    spec = NetworkSpec(shape=(1, 6, 6), classes=3, width=8)
    genome, g = Genome.parse("c4k3"), torch.Generator().manual_seed(0)
    bottom, head = spec.bottom(genome, g), spec.head(g)
    noise = ReproducibleNoise(np.random.default_rng(1))
    fit_private(bottom, head, samples, plan=plan, config=OptimizerConfig(), noise=noise)
    return flat(list(bottom.parameters())).detach()


@pytest.mark.slow
def test_groups_of_one_train_what_samples_do_to_the_bit() -> None:
    samples = random_bytes(30, shape=(1, 6, 6))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(2))
    groups = replace(samples, groups=order)
    assert torch.equal(trained(samples, PLAN), trained(groups, PLAN))
    pairs = replace(samples, groups=torch.arange(30) // 2)
    assert not torch.equal(trained(samples, PLAN), trained(pairs, replace(PLAN, samples=15)))


def test_a_group_comes_whole_and_at_the_rate_of_the_plan_however_many_there_are() -> None:
    groups = torch.arange(90) % 30
    noise = [ReproducibleNoise(np.random.default_rng(1)) for _ in range(2)]
    for batch in PLAN.batches(noise[0], 90, groups):
        drawn = poisson_batch(30, PLAN.rate, noise[1])
        assert batch.tolist() == sorted(int(i) + 30 * k for i in drawn for k in range(3))
    for number in (20, 45):
        groups, source = torch.arange(90) % number, ReproducibleNoise(np.random.default_rng(2))
        sizes = [len(groups[b].unique()) for b in PLAN.batches(source, 90, groups)]
        assert len(sizes) == PLAN.steps
        assert max(sizes) <= number
    assert PLAN.clip_and_noise.batch_size == PLAN.rate * PLAN.samples


Step = Callable[[PrivateGradient, Tensor, Tensor, Tensor], None]


def group_level(gradient: PrivateGradient, x: Tensor, y: Tensor, groups: Tensor) -> None:
    gradient.step(x, y, PLAN.clip_and_noise, SystemNoise(), groups)


def sample_level(gradient: PrivateGradient, x: Tensor, y: Tensor, groups: Tensor) -> None:
    """The planted bug: the same noise, each sample of a group clipped by itself."""
    gradient.step(x, y, PLAN.clip_and_noise, SystemNoise())


def audited(step: Step, draws: int) -> float:
    """The lower bound of epsilon for one whole group of ten, at delta .01, over `draws` steps."""
    x, y = data(14, 4)
    x[:10], y[:10] = 3.0, 1
    groups = torch.tensor([0] * 10 + [1, 1, 2, 3])
    network = model()
    gradient, noise = PrivateGradient(network), SystemNoise()

    def mean(rows: Tensor) -> Tensor:
        return flat(gradient.clipped_sum(x[rows], y[rows], CLIP, groups[rows]))

    every = torch.arange(14)
    direction = mean(every) - mean(every[10:])

    def scores(units: int) -> Tensor:
        results = []
        for _ in range(draws):
            # World "out" lacks group 0, which has ten samples.
            drawn = poisson_batch(units, PLAN.rate, noise) + 4 - units
            rows = every[torch.isin(groups, drawn)]
            step(gradient, x[rows], y[rows], groups[rows])
            grads = [p.grad for p in network.parameters() if p.grad is not None]
            results.append(float(flat(grads) @ direction))
        return torch.tensor(results)

    return lower_bound(scores(4), scores(3), 0.01)


@pytest.mark.thorough
def test_a_whole_group_stays_under_the_claim_and_sample_level_noise_is_caught() -> None:
    one_step = replace(PLAN.training_event, steps=1)
    claim = epsilon([one_step], 0.01)
    sound, bare = audited(group_level, 1500), audited(sample_level, 1500)  # bare: 3.8, +- 0.1
    assert sound < claim  # a lower bound, which may be 0
    assert bare > 1.5 * claim
