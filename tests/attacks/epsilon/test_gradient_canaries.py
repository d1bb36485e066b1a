"""Gradient canaries: whole clips along their own directions, scored by last network and rounds."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from attacks.epsilon.gradient_canaries import (
    DiracCanaries,
    GradientCanaries,
    _loss,
    _Planted,
    diracs,
    final_scores,
    orthogonal,
    round_scores,
    train_with_gradient_canaries,
)
from attacks.epsilon.one_run import OneRunAudit, OneRunConfig, audit_training
from panas.data.samples import Samples
from panas.privacy.budget import Budget
from panas.privacy.calibration import calibrate
from panas.privacy.gradients.private import PrivateGradient
from panas.privacy.noise import ReproducibleNoise
from panas.privacy.plan import Plan, TrainingSchedule
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
    gradient = PrivateGradient(_Planted(net, (1, 4, 4), DiracCanaries(torch.arange(458))), _loss)

    def clipped(rows: Tensor, y: Tensor) -> Tensor:
        return torch.cat([g.flatten() for g in gradient.clipped_sum(rows, y, 0.2)])

    for j in (0, 5, 407, 408, 457):
        row = torch.zeros(1, 17)
        row[0, 0] = 1 + j
        values = clipped(row, torch.zeros(1, dtype=torch.int64))
        assert values.nonzero().tolist() == [[j]]
        assert float(values[j]) == pytest.approx(0.2, rel=1e-5)
    plain = PrivateGradient(net).clipped_sum(data.x, data.y, 0.2)
    genuine = torch.cat([torch.zeros(40, 1), data.x.flatten(1)], dim=1)
    alone = torch.cat([g.flatten() for g in plain])
    assert torch.allclose(clipped(genuine, data.y), alone, atol=1e-5)


@pytest.mark.filterwarnings("ignore:per-sample gradients by torch.func")
def test_orthogonal_canaries_are_whole_clips_along_directions_that_share_no_weight():
    net = network()
    canaries = orthogonal(net, 100, stream(0, "orthogonal"))
    gradient = PrivateGradient(_Planted(net, (1, 4, 4), canaries), _loss)
    rows = torch.zeros(3, 17)
    rows[:, 0] = 1.0 + torch.tensor([0, 57, 99])
    values = []
    for row in rows:
        parts = gradient.clipped_sum(row[None], torch.zeros(1, dtype=torch.int64), 0.2)
        values.append(torch.cat([g.flatten() for g in parts]))
    moved = torch.stack(values)
    assert torch.allclose(moved @ moved.T, 0.04 * torch.eye(3), atol=1e-6)
    own = canaries.along(moved)
    assert torch.allclose(own[:, [0, 57, 99]], 0.2 * torch.eye(3), atol=1e-6)
    every = canaries.along(torch.eye(458)).T
    assert int((every != 0).sum()) == 458  # each weight is of one canary
    assert torch.allclose(every @ every.T, torch.eye(100), atol=1e-6)


def test_without_noise_a_canary_moves_its_weight_by_what_theory_says():
    # A network whose data have no gradient: all inputs 0, no bias.
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 24, bias=False))
    data = Samples(torch.zeros(10, 1, 4, 4), torch.zeros(10, dtype=torch.int64), 24)
    plan = Plan(samples=20, batch_size=20, clip=0.5, noise_multiplier=1e-9, epochs=3, rounds=1)
    planted = DiracCanaries(torch.tensor([3, 70]))
    noise = ReproducibleNoise(stream(0, "noise"))
    went = train_with_gradient_canaries(
        net, data, planted, plan=plan, learning_rate=0.1, noise=noise
    )
    expected = torch.zeros(16 * 24)
    expected[[3, 70]] = 0.1 * 3 * 0.5 / 20
    assert len(went) == 3
    assert torch.allclose(went.sum(0), expected, atol=1e-7)
    assert torch.allclose(final_scores(went, planted).float(), expected[[3, 70]], atol=1e-7)


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_rounds_are_scored_by_the_likelihood_ratio(rate: float):
    plan = Plan(
        samples=20, batch_size=round(20 * rate), clip=0.5, noise_multiplier=1.5, epochs=2, rounds=1
    )
    unit = 0.1 * 0.5 / (20 * rate)
    x = torch.tensor([[0.3, 1.0, -2.0], [0.0, 1.5, 0.5]])
    values = round_scores(
        unit * x, DiracCanaries(torch.tensor([0, 2])), plan=plan, learning_rate=0.1
    )

    def density(at: float, mean: float) -> float:
        return math.exp(-((at - mean) ** 2) / (2 * 1.5**2))

    for k, j in enumerate((0, 2)):
        ratios = [(1 - rate) + rate * density(v, 1.0) / density(v, 0.0) for v in x[:, j].tolist()]
        assert float(values[k]) == pytest.approx(sum(map(math.log, ratios)), abs=1e-5)


def audit(
    plan: Plan,
    seed: int = 0,
    *,
    canaries: GradientCanaries | None = None,
    rounds: bool = False,
    source: type[ReproducibleNoise] = ReproducibleNoise,
) -> OneRunAudit:
    net, data, noise = network(), samples(), source(stream(seed, "noise"))

    def score(went: Tensor, planted: GradientCanaries) -> Tensor:
        if rounds:
            return round_scores(went, planted, plan=plan, learning_rate=0.5)
        return final_scores(went, planted)

    return audit_training(
        lambda included: train_with_gradient_canaries(
            net, data, included, plan=plan, learning_rate=0.5, noise=noise
        ),
        canaries or diracs(net, CANARIES, stream(seed, "canaries")),
        score,
        OneRunConfig(delta=BUDGET.delta, claim=CLAIM),
        rng=stream(seed, "coins"),
    )


@pytest.mark.slow
def test_dp_sgd_keeps_its_claim(plan: Plan):
    assert not any(audit(plan, seed).refuted for seed in range(5))


class HalfBare(ReproducibleNoise):
    """Noise that misses the first half of the weights."""

    def normal(self, *shape: int) -> Tensor:
        drawn = super().normal(*shape)
        drawn[: len(drawn) // 2] = 0.0
        return drawn


@pytest.mark.slow
def test_small_noise_no_clip_and_weights_without_noise_are_caught(plan: Plan):
    assert audit(replace(plan, noise_multiplier=plan.noise_multiplier / 8)).refuted
    there = DiracCanaries(torch.arange(200))
    assert not audit(plan, canaries=there).refuted
    assert audit(plan, canaries=there, source=HalfBare).refuted
    real = PrivateGradient._clipped_sum
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            PrivateGradient,
            "_clipped_sum",
            lambda self, x, y, _, groups: real(self, x, y, 1e9, groups),
        )
        assert audit(plan).refuted


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
    result = diracs(net, 300, stream(0, "canaries"))
    assert len(result) == len(set(result.coordinates.tolist())) == 300
    weights = sum(p.numel() for p in net.parameters() if p.requires_grad)
    assert weights == 458 - 24
    assert 0 <= int(result.coordinates.min()) <= int(result.coordinates.max()) < weights
    assert math.isclose(float((result.coordinates >= 384).float().mean()), 50 / 434, abs_tol=0.07)
    assert torch.equal(result.take([2, 0]).coordinates, result.coordinates[[2, 0]])


def test_too_many_canaries_and_a_plan_for_too_few_are_refused(plan: Plan):
    with pytest.raises(BadInput, match="fewer canaries"):
        diracs(network(), 459, stream(0, "canaries"))
    noise = ReproducibleNoise(stream(0, "noise"))
    short = replace(plan, samples=41)
    with pytest.raises(BadInput, match="all canaries"):
        train_with_gradient_canaries(
            network(),
            samples(),
            DiracCanaries(torch.tensor([1, 2])),
            plan=short,
            learning_rate=0.1,
            noise=noise,
        )
