"""Gradient canaries: what they are to DP-SGD, and which bugs of it they find."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from attacks.epsilon.gradient_canaries import (
    DiracCanaries,
    _flat,
    _loss,
    _Planted,
    dirac_scores,
    diracs,
    train_with_dirac_canaries,
)
from attacks.epsilon.one_run import OneRunAudit, OneRunConfig, audit_training
from panas.data.samples import Samples
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan
from panas.privacy.schedule import TrainingSchedule
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream, torch_generator

CLAIM = 1.0
CANARIES = 300
BUDGET = Budget(CLAIM, 1e-5)


def samples(n: int = 40) -> Samples:
    generator = torch_generator(stream(0, "samples"))
    x = torch.rand(n, 1, 4, 4, generator=generator) * 2 - 1
    return Samples(x, (x.mean((1, 2, 3)) > 0).long(), 2)


def network() -> nn.Sequential:
    """Two layers of 16 x 24 + 24 and 24 x 2 + 2 weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 2))


def planned(budget: Budget, batch_size: int, epochs: int) -> Plan:
    schedule = TrainingSchedule(samples=40 + CANARIES, epochs=epochs)
    return calibrate(budget, schedule, batch_size=batch_size, clip=0.7)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned(BUDGET, 170, 5)


@pytest.mark.filterwarnings("ignore:per-sample gradients by torch.func")
def test_a_canary_is_a_whole_clip_along_its_weight_and_others_are_what_they_were():
    net, data = network(), samples()
    gradient = PrivateGradient(_Planted(net, (1, 4, 4)), _loss)

    def clipped(rows: Tensor, y: Tensor) -> Tensor:
        return torch.cat([g.flatten() for g in gradient.clipped_sum(rows, y, 0.2)])

    for j in (0, 5, 407, 408, 457):
        row = torch.zeros(1, 17)
        row[0, 0] = 1 + j
        found = clipped(row, torch.zeros(1, dtype=torch.int64))
        assert found.nonzero().tolist() == [[j]]
        assert float(found[j]) == pytest.approx(0.2, rel=1e-5)
    plain = PrivateGradient(net).clipped_sum(data.x, data.y, 0.2)
    genuine = torch.cat([torch.zeros(40, 1), data.x.flatten(1)], dim=1)
    alone = torch.cat([g.flatten() for g in plain])
    assert torch.allclose(clipped(genuine, data.y), alone, atol=1e-5)


def test_without_noise_a_canary_moves_its_weight_by_what_theory_says():
    # A network whose data have no gradient: all inputs 0, no bias.
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 24, bias=False))
    data = Samples(torch.zeros(10, 1, 4, 4), torch.zeros(10, dtype=torch.int64), 24)
    plan = Plan(samples=20, batch_size=20, clip=0.5, noise_multiplier=1e-9, epochs=3, rounds=1)
    planted = DiracCanaries(torch.tensor([3, 70]))
    noise = ReproducibleNoise(stream(0, "noise"))
    descent = train_with_dirac_canaries(
        net, data, planted, plan=plan, learning_rate=0.1, noise=noise
    )
    expected = torch.zeros(16 * 24)
    expected[[3, 70]] = 0.1 * 3 * 0.5 / 20
    assert torch.allclose(descent, expected, atol=1e-7)
    assert torch.allclose(dirac_scores(descent, planted), expected[[3, 70]], atol=1e-7)


def audit(
    plan: Plan,
    seed: int = 0,
    *,
    canaries: DiracCanaries | None = None,
    source: type[ReproducibleNoise] = ReproducibleNoise,
) -> OneRunAudit:
    net, data, noise = network(), samples(), source(stream(seed, "noise"))
    return audit_training(
        lambda included: train_with_dirac_canaries(
            net, data, included, plan=plan, learning_rate=0.5, noise=noise
        ),
        canaries or diracs(net, CANARIES, stream(seed, "canaries")),
        dirac_scores,
        OneRunConfig(delta=BUDGET.delta, claim=CLAIM),
        rng=stream(seed, "coins"),
    )


@pytest.mark.slow
def test_dp_sgd_keeps_its_claim(plan: Plan):
    assert not any(audit(plan, seed).refuted for seed in range(5))


def test_noise_that_is_far_too_small_is_caught(plan: Plan):
    assert audit(replace(plan, noise_multiplier=plan.noise_multiplier / 8)).refuted


def test_no_clip_is_caught(plan: Plan, monkeypatch: pytest.MonkeyPatch):
    real = PrivateGradient._clipped_sum
    monkeypatch.setattr(
        PrivateGradient, "_clipped_sum", lambda self, x, y, _, groups: real(self, x, y, 1e9, groups)
    )
    assert audit(plan).refuted


class HalfBare(ReproducibleNoise):
    """Noise that misses the first half of the weights."""

    def normal(self, *shape: int) -> Tensor:
        drawn = super().normal(*shape)
        drawn[: len(drawn) // 2] = 0.0
        return drawn


def test_weights_without_noise_are_caught_by_canaries_on_them(plan: Plan):
    there = DiracCanaries(torch.arange(200))
    assert not audit(plan, canaries=there).refuted
    assert audit(plan, canaries=there, source=HalfBare).refuted


@pytest.mark.slow
def test_dp_sgd_at_epsilon_8_is_seen_at_work():
    budget = Budget(8.0, 1e-5)
    plan = planned(budget, 170, 5)
    bounds = [audit(plan, seed).lower_bound for seed in range(3)]
    assert all(0.5 < b < 8.0 for b in bounds)


@pytest.mark.slow
def test_a_batch_that_leaves_nobody_to_chance_is_seen(monkeypatch: pytest.MonkeyPatch):
    # At a small rate most of the privacy is in the sampling.
    plan = planned(BUDGET, 34, 2)
    assert not audit(plan).refuted
    name = "panas.privacy.noise.poisson_batch"
    monkeypatch.setattr(name, lambda n, rate, noise: torch.arange(n))
    assert audit(plan).refuted


def test_canaries_own_different_weights_of_all_layers_that_train():
    net = network()
    net[1].bias.requires_grad_(False)
    found = diracs(net, 300, stream(0, "canaries"))
    assert len(found) == len(set(found.coordinates.tolist())) == 300
    assert 0 <= int(found.coordinates.min()) <= int(found.coordinates.max()) < len(_flat(net))
    assert len(_flat(net)) == 458 - 24
    assert math.isclose(float((found.coordinates >= 384).float().mean()), 50 / 434, abs_tol=0.07)
    assert torch.equal(found.take([2, 0]).coordinates, found.coordinates[[2, 0]])


def test_too_many_canaries_and_a_plan_for_too_few_are_refused(plan: Plan):
    with pytest.raises(BadInput, match="fewer canaries"):
        diracs(network(), 459, stream(0, "canaries"))
    noise = ReproducibleNoise(stream(0, "noise"))
    short = replace(plan, samples=41)
    with pytest.raises(BadInput, match="all canaries"):
        train_with_dirac_canaries(
            network(),
            samples(),
            DiracCanaries(torch.tensor([1, 2])),
            plan=short,
            learning_rate=0.1,
            noise=noise,
        )
