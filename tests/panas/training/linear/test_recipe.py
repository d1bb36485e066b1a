"""The rule by which a residual is trained: what it holds to at any size and budget."""

import math
from itertools import pairwise

import pytest

from panas.training.linear import recipe
from panas.training.linear.recipe import alone_recipe, joined_recipe

RULES = [alone_recipe, joined_recipe]
SIZES = [1, 3, 40, 150, 499, 500, 1500, 6000, 10**6]


def reach(found: recipe.Recipe, n: int) -> float:
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
        found = rule(n, epsilon)
        assert recipe.SLOWEST <= found.learning_rate <= recipe.FASTEST
        assert 1 <= found.batch_size <= n
        assert found.epochs <= 48 * recipe.LONGEST / recipe.SMALLER


@pytest.mark.parametrize(("n", "epsilon"), [(1500, 8.0), (6000, 3.0), (6000, 8.0)])
def test_what_a_rate_may_not_be_steps_make_up_for(n, epsilon):
    wanted = n * epsilon / 600 * 48 * 2
    assert reach(alone_recipe(n, epsilon), n) == pytest.approx(wanted, rel=0.03)


def test_the_more_a_release_takes_the_less_far_a_residual_gets():
    reached = [reach(joined_recipe(6000, 8.0, share), 6000) for share in (0.3, 0.7, 0.85)]
    assert reached == sorted(reached, reverse=True)
    assert reached[-1] < reach(alone_recipe(6000, 8.0), 6000)
