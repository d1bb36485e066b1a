"""The share of a budget that goes into the release: by rule, from public facts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from panas.privacy.budget import Budget
from panas.privacy.release.estimate import Rows
from panas.training.linear.ridge import exact_moments, least_penalty, logits, ridge
from panas.training.linear.split import (
    FEWEST,
    LARGE_SHARE,
    RELEASE_SHARE,
    Pooling,
    doubling,
    expected_gain,
    release_share,
)

TEN = Pooling(sites=10, samples=150, classes=5, budget=Budget(8.0, 1e-5))


def rows(n: int, spread: float, seed: int = 0) -> Rows:
    """Unit rows around one direction a class, the wider the harder."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(5, size=n))
    noise = torch.from_numpy(rng.standard_normal((n, 32))).float()
    return Rows(F.normalize(torch.eye(32)[y] + spread * noise, dim=1), y)


def test_without_public_labels_nearly_all_is_released():
    assert release_share(TEN, rows(0, 1.0)) == RELEASE_SHARE
    assert release_share(TEN, rows(FEWEST - 1, 0.0)) == RELEASE_SHARE


def test_nothing_is_released_where_there_is_nobody_to_join():
    assert release_share(replace(TEN, sites=1), rows(0, 1.0)) == 0.0


def test_nothing_is_released_where_public_labels_have_taught_all():
    easy = rows(400, 0.05)
    assert doubling(easy, 5) < 0.005
    assert release_share(TEN, easy) == 0.0


def test_much_is_released_where_more_samples_teach_more():
    hard = rows(100, 0.6)
    assert doubling(hard, 5) > 0.03
    many = replace(TEN, sites=400, samples=100)
    assert len(hard.y) >= FEWEST
    assert release_share(many, hard) == RELEASE_SHARE


def test_sites_whose_moments_are_hardly_hidden_release_less():
    large = replace(TEN, sites=40, samples=6000)
    assert release_share(large, rows(0, 1.0)) == LARGE_SHARE < RELEASE_SHARE
    for small in (replace(large, samples=100), replace(large, budget=Budget(0.5, 1e-5))):
        assert release_share(small, rows(0, 1.0)) == RELEASE_SHARE


def test_a_secure_sum_hides_the_same_moments_less():
    some = replace(TEN, samples=300)
    assert release_share(some, rows(0, 1.0)) == RELEASE_SHARE
    assert release_share(replace(some, secure_sum=True), rows(0, 1.0)) == LARGE_SHARE


def test_a_doubling_is_what_a_head_learns_from_twice_the_samples():
    public, test = rows(200, 0.6), rows(4000, 0.6, seed=1)

    def right(n: int) -> float:
        head = ridge(exact_moments(public.z[:n], public.y[:n], 5), least_penalty(200))
        return float((logits(head, test.z).argmax(1) == test.y).double().mean())

    assert doubling(public, 5) == pytest.approx((right(160) - right(40)) / 2, abs=0.03)
    guessed = Rows(public.z, torch.randint(5, (200,), generator=torch.manual_seed(0)))
    assert doubling(guessed, 5) < 0.02


def test_a_site_that_has_much_of_its_own_needs_the_others_less():
    public = rows(200, 0.6)
    few, many = (replace(TEN, sites=k, samples=n) for k, n in ((100, 100), (10, 1000)))
    assert expected_gain(many, public) < 0.6 * expected_gain(few, public)


@pytest.mark.parametrize(
    "more",
    [{"sites": 40}, {"budget": Budget(80.0, 1e-5)}, {"secure_sum": True}],
    ids=["sites", "epsilon", "secure sum"],
)
def test_more_to_pool_and_less_noise_promise_more(more: dict):
    public = rows(200, 0.6)
    assert expected_gain(replace(TEN, **more), public) > expected_gain(TEN, public)


def test_it_is_the_same_for_everyone():
    public = rows(200, 0.6)
    assert expected_gain(TEN, public) == expected_gain(TEN, public)
