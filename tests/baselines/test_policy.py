"""REINFORCE over choices: its gradient against a naive one, and what it finds."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from baselines.common import policy
from baselines.common.policy import (
    Baseline,
    Choice,
    Policies,
    drawn,
    learnt,
    likeliest,
    score,
)

MENUS = [(1, 2), (3, 5, 7), (9,)]
CHOICES = list(itertools.product(range(2), range(3), range(1)))
LOGITS = np.array([0.3, -0.8, 0.1, 1.2, -0.4, 0.7])


def log_chance(logits: torch.Tensor, choice: Choice) -> torch.Tensor:
    """The oracle: the sum of log-softmaxes."""
    parts = logits.split([len(menu) for menu in MENUS])
    return sum((p.log_softmax(0)[at] for p, at in zip(parts, choice, strict=True)), torch.zeros(()))


def test_the_score_is_the_gradient_of_the_log_chance():
    for choice in CHOICES:
        logits = torch.tensor(LOGITS, requires_grad=True)
        log_chance(logits, choice).backward()
        assert logits.grad is not None
        np.testing.assert_allclose(score(LOGITS, MENUS, choice), logits.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("baseline", [0.0, 0.4])
def test_the_policy_gradient_is_that_of_the_expected_reward(baseline: float):
    reward = {choice: float(i) ** 2 / 9 for i, choice in enumerate(CHOICES)}
    logits = torch.tensor(LOGITS, requires_grad=True)
    expected = sum(log_chance(logits, c).exp() * r for c, r in reward.items())
    assert isinstance(expected, torch.Tensor)
    expected.backward()
    with torch.no_grad():
        chance = {c: float(log_chance(logits, c).exp()) for c in CHOICES}
    naive = sum(chance[c] * (reward[c] - baseline) * score(LOGITS, MENUS, c) for c in CHOICES)
    assert logits.grad is not None
    np.testing.assert_allclose(np.asarray(naive), logits.grad.numpy(), atol=1e-6)


@pytest.mark.slow
def test_choices_are_drawn_by_their_chances():
    rng = np.random.default_rng(3)
    counts = dict.fromkeys(CHOICES, 0)
    for _ in range(4000):
        counts[drawn(LOGITS, MENUS, rng)] += 1
    for choice, count in counts.items():
        chance = float(log_chance(torch.tensor(LOGITS), choice).exp())
        assert abs(count / 4000 - chance) < 4 * (chance * (1 - chance) / 4000) ** 0.5
    assert likeliest(LOGITS, MENUS) == (0, 1, 0)


def found(baseline: Baseline, noise: float, rounds: int = 150) -> list[Choice]:
    """What three sites end with, each of which has another best choice."""
    rng, policies = np.random.default_rng(0), Policies.fresh(3, MENUS)
    for _ in range(rounds):
        rewards = {}
        for site in range(3):
            choice = drawn(policies.logits[site], MENUS, rng)
            right = (choice[0] == site % 2) + (choice[1] == site)
            rewards[site] = choice, right / 2 + noise * float(rng.standard_normal())
        policies = learnt(policies, MENUS, rewards, rate=0.1, baseline=baseline)
    return [likeliest(policies.logits[site], MENUS) for site in range(3)]


BEST = [(0, 0, 0), (1, 1, 0), (0, 2, 0)]


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("baseline", ["mean", "best"])
def test_each_site_finds_its_planted_best_choice(baseline: Baseline, noise: float):
    assert found(baseline, noise) == BEST


def test_a_broken_update_does_not(monkeypatch: pytest.MonkeyPatch):
    def flipped(real: Callable[..., object]) -> Callable[..., object]:
        return lambda *args: -np.asarray(real(*args))

    monkeypatch.setattr(policy, "score", flipped(policy.score))
    assert found("mean", 0.0) != BEST


def test_steps_are_those_of_torchs_adam():
    policies, expected = Policies.fresh(2, MENUS), torch.zeros(6, dtype=torch.float64)
    parameter = torch.nn.Parameter(expected)
    adam = torch.optim.Adam([parameter], lr=0.3, betas=policy.BETAS, eps=policy.TINY)
    mean = 0.0
    for step, (choice, reward) in enumerate(zip(CHOICES, [0.1, 0.9, 0.4, 0.7], strict=False)):
        logits = parameter.detach().numpy().copy()
        mean = reward if step == 0 else mean
        parameter.grad = torch.from_numpy(-(reward - mean) * score(logits, MENUS, choice))
        adam.step()
        mean = policy.KEPT * mean + (1 - policy.KEPT) * reward
        policies = learnt(policies, MENUS, {1: (choice, reward)}, rate=0.3, baseline="mean")
        np.testing.assert_allclose(policies.logits[1], parameter.detach().numpy(), atol=1e-9)
    assert not policies.logits[0].any()
    assert policies.steps.tolist() == [0, 4]


def test_the_published_baseline_is_the_mean_of_the_best_rewards():
    policies = Policies.fresh(2, MENUS)
    first = {0: (CHOICES[0], 0.2), 1: (CHOICES[1], 0.6)}
    policies = learnt(policies, MENUS, first, rate=0.5, baseline="best")
    assert policies.logits[0, 0] < 0 < policies.logits[1, 0]  # 0.2 and 0.6 against 0.4
    policies = learnt(policies, MENUS, {0: (CHOICES[0], 0.1)}, rate=0.5, baseline="best")
    assert policies.rewards.tolist() == [0.2, 0.6]


def test_policies_come_back_from_their_arrays():
    policies = learnt(
        Policies.fresh(2, MENUS), MENUS, {1: (CHOICES[2], 0.5)}, rate=0.5, baseline="best"
    )
    again = Policies.of(policies.arrays())
    for name, array in again.arrays().items():
        assert torch.equal(array, policies.arrays()[name])
    assert Policies.fresh(0, MENUS).logits.shape == (0, 6)
