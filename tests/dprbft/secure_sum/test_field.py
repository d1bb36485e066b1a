from itertools import combinations

import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from dprbft.secure_sum.field import value_at_0, values_at

SECRETS = st.binary(min_size=16, max_size=16)


@settings(deadline=None, max_examples=25)
@given(st.lists(SECRETS, min_size=2, max_size=9), st.integers(0, 4))
def test_another_library_opens_these_shares(coefficients: list[bytes], more: int):
    points = range(1, len(coefficients) + more + 1)
    pieces = list(zip(points, values_at(coefficients, points), strict=True))
    for chosen in (pieces[: len(coefficients)], pieces[-len(coefficients) :]):
        assert Shamir.combine(chosen, ssss=False) == coefficients[0]


@settings(deadline=None, max_examples=15)
@given(SECRETS, st.integers(2, 6))
def test_the_shares_of_another_library_are_opened(secret: bytes, opens: int):
    pieces = dict(Shamir.split(opens, 7, secret, ssss=False))
    for points in combinations(pieces, opens):
        assert value_at_0(points, [pieces[p] for p in points]) == secret


@pytest.mark.parametrize("opens", [90, 200])
def test_many_and_large_points(opens: int):
    coefficients = [bytes([i] * 16) for i in range(opens)]
    points = tuple(range(5, 4000, 4000 // opens))[:opens]
    assert value_at_0(points, values_at(coefficients, points)) == coefficients[0]


def test_one_share_too_few_gives_another_value():
    coefficients = [bytes(range(i, i + 16)) for i in range(5)]
    shares = values_at(coefficients, range(1, 5))
    assert value_at_0((1, 2, 3, 4), shares) != coefficients[0]
