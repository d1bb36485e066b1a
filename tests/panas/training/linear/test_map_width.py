"""How wide the common map is, and what the label histogram gets, by the budget."""

from dataclasses import replace

import pytest

from panas.privacy.budget import Budget
from panas.training.linear.rules import Pooling, histogram_share, map_width

MOST = 128
USUAL = Pooling(sites=10, samples=150, classes=10, budget=Budget(3.0, 1e-5))


def width(labelled: int = 0, **changes: object) -> int:
    return map_width(replace(USUAL, **changes), labelled, MOST)


def test_a_smaller_budget_gets_a_narrower_map() -> None:
    widths = [width(budget=Budget(e, 1e-5)) for e in (0.1, 1.0, 3.0, 8.0, 50.0)]
    assert widths == sorted(set(widths))
    assert widths[0] == 8
    assert widths[-1] == MOST


@pytest.mark.parametrize(
    "changes", [{"secure_sum": True}, {"samples": 1000}, {"sites": 40}, {"classes": 3}]
)
def test_more_samples_of_a_class_or_less_noise_bear_more_coordinates(changes: dict) -> None:
    assert width(**changes) > width()


def test_it_is_as_wide_as_may_be_without_noise() -> None:
    assert width(budget=Budget(float("inf"), 1e-5)) == MOST
    assert map_width(replace(USUAL, budget=Budget(float("inf"), 1e-5)), 0, 300) == 300


def test_labelled_public_samples_bear_coordinates_by_themselves() -> None:
    assert width(100) == width()
    assert width(400) == 100
    assert width(1000) == MOST
    assert map_width(USUAL, 1000, 6) == 6


def test_a_budget_that_pays_for_no_release_gets_the_narrowest() -> None:
    assert width(budget=Budget(1e-9, 1e-5)) == 8


def test_the_histogram_gets_more_of_a_small_budget() -> None:
    shares = [histogram_share(e) for e in (0.5, 1.0, 3.0, 8.0, 50.0, float("inf"))]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-3:]) == (0.3, [0.1, 0.1, 0.1])
