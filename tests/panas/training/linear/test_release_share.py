"""By rule: the share of a budget that is released, the public head, a residual's training."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from drawn_rows import around
from torch.nn import functional as F

from panas.privacy.budget import Budget
from panas.privacy.release.estimate import Rows
from panas.training.linear import rules
from panas.training.linear.ridge import (
    FOR_FEW,
    PENALTIES,
    best_penalty,
    exact_moments,
    fit_public_head,
    least_penalty,
    logits,
    ridge,
)
from panas.training.linear.rules import (
    FEWEST,
    LARGE_SHARE,
    RELEASE_SHARE,
    Pooling,
    alone_recipe,
    doubling,
    expected_gain,
    joined_recipe,
    release_share,
)

TEN = Pooling(sites=10, samples=150, classes=5, budget=Budget(8.0, 1e-5))


@pytest.mark.slow
def test_the_share_where_public_labels_teach_nothing_or_all_or_there_is_nobody():
    assert release_share(TEN, around(0, 1.0)) == RELEASE_SHARE
    assert release_share(TEN, around(FEWEST - 1, 0.0)) == RELEASE_SHARE
    assert release_share(replace(TEN, sites=1), around(0, 1.0)) == 0.0
    easy = around(400, 0.05)
    assert doubling(easy, 5) < 0.005
    assert release_share(TEN, easy) == 0.0
    hard = around(100, 0.6)
    assert doubling(hard, 5) > 0.03
    many = replace(TEN, sites=400, samples=100)
    assert len(hard.y) >= FEWEST
    assert release_share(many, hard) == RELEASE_SHARE


def test_sites_whose_moments_are_hardly_hidden_release_less():
    large = replace(TEN, sites=40, samples=6000)
    assert release_share(large, around(0, 1.0)) == LARGE_SHARE < RELEASE_SHARE
    for small in (replace(large, samples=100), replace(large, budget=Budget(0.5, 1e-5))):
        assert release_share(small, around(0, 1.0)) == RELEASE_SHARE
    some = replace(TEN, samples=300)
    assert release_share(some, around(0, 1.0)) == RELEASE_SHARE
    assert release_share(replace(some, secure_sum=True), around(0, 1.0)) == LARGE_SHARE


def test_a_doubling_is_what_a_head_learns_from_twice_the_samples():
    public, test = around(200, 0.6), around(4000, 0.6, seed=1)

    def right(n: int) -> float:
        head = ridge(exact_moments(public.z[:n], public.y[:n], 5), least_penalty(200))
        return float((logits(head, test.z).argmax(1) == test.y).double().mean())

    assert doubling(public, 5) == pytest.approx((right(160) - right(40)) / 2, abs=0.03)
    guessed = Rows(public.z, torch.randint(5, (200,), generator=torch.manual_seed(0)))
    assert doubling(guessed, 5) < 0.02


def test_a_site_that_has_much_of_its_own_needs_the_others_less():
    public = around(200, 0.6)
    few, many = (replace(TEN, sites=k, samples=n) for k, n in ((100, 100), (10, 1000)))
    assert expected_gain(many, public) < 0.6 * expected_gain(few, public)


@pytest.mark.parametrize(
    "more",
    [{"sites": 40}, {"budget": Budget(80.0, 1e-5)}, {"secure_sum": True}],
    ids=["sites", "epsilon", "secure sum"],
)
def test_more_to_pool_and_less_noise_promise_more(more: dict):
    public = around(200, 0.6)
    assert expected_gain(replace(TEN, **more), public) > expected_gain(TEN, public)


@pytest.mark.slow
def test_hard_samples_ask_for_more_ridge_than_easy_ones_and_few_decide_nothing():
    assert best_penalty(around(200, 0.8), 5) > best_penalty(around(200, 0.1), 5)
    public = around(10, 0.8)
    assert best_penalty(public, 5) == FOR_FEW
    expected = ridge(exact_moments(public.z, public.y, 5), FOR_FEW)
    assert torch.equal(fit_public_head(public, 5), expected)


def test_unseen_samples_are_likelier_than_with_the_least_penalty():
    public, test = around(200, 0.8), around(4000, 0.8, seed=1)
    least = ridge(exact_moments(public.z, public.y, 5), PENALTIES[0])
    losses = [
        float(F.cross_entropy(logits(head, test.z), test.y))
        for head in (fit_public_head(public, 5), least)
    ]
    assert losses[0] < losses[1] - 0.02


RULES = [alone_recipe, joined_recipe]
SIZES = [1, 3, 40, 150, 499, 500, 1500, 6000, 10**6]


def reach(found: rules.Recipe, n: int) -> float:
    """How far training gets: rate times steps."""
    return found.learning_rate * found.epochs * n / found.batch_size


@pytest.mark.parametrize("rule", RULES)
def test_more_samples_or_budget_never_get_less_far(rule):
    for epsilon in (0.1, 1.0, 8.0, math.inf):
        reached = [reach(rule(n, epsilon), n) for n in SIZES[2:] if n != 499]
        assert all(more >= 0.9 * less for less, more in pairwise(reached))
    for n in SIZES[3:]:
        assert reach(rule(n, 8.0), n) >= reach(rule(n, 1.0), n)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", SIZES)
def test_no_step_is_too_fast_and_no_batch_empty(rule, n):
    for epsilon in (1e-3, 1.0, 50.0, math.inf):
        result = rule(n, epsilon)
        assert rules.SLOWEST <= result.learning_rate <= rules.FASTEST
        assert 1 <= result.batch_size <= n
        assert result.epochs <= 48 * rules.LONGEST / rules.SMALLER


@pytest.mark.parametrize(("n", "epsilon"), [(1500, 8.0), (6000, 3.0), (6000, 8.0)])
def test_what_a_rate_may_not_be_steps_make_up_for(n, epsilon):
    wanted = n * epsilon / 600 * 48 * 2
    assert reach(alone_recipe(n, epsilon), n) == pytest.approx(wanted, rel=0.03)


def test_the_more_a_release_takes_the_less_far_a_residual_gets():
    reached = [reach(joined_recipe(6000, 8.0, share), 6000) for share in (0.3, 0.7, 0.85)]
    assert reached == sorted(reached, reverse=True)
    assert reached[-1] < reach(alone_recipe(6000, 8.0), 6000)
