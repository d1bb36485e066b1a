from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import session_of

from dprbft.secure_sum.session import Session
from dprbft.secure_sum.shares import combine, split
from panas.runtime.errors import BadInput


def of(session: Session) -> tuple[int, tuple[int, ...]]:
    """How many shares open a secret, and who holds them."""
    return session.graph.opens, session.sites


@settings(deadline=None, max_examples=25)
@given(secret=st.binary(min_size=16, max_size=16), sites=st.integers(3, 12))
def test_any_threshold_of_shares_opens_the_secret(secret: bytes, sites: int):
    session = session_of(sites)
    shares = split(secret, *of(session))
    assert list(shares) == list(session.sites)
    assert combine(shares, *of(session)) == secret
    last = sorted(shares)[-session.threshold :]
    assert combine({i: shares[i] for i in last}, *of(session)) == secret


def test_every_choice_of_sites_opens_it():
    session, secret = Session(b"x", (2, 3, 5, 7, 11, 13, 17), 2), bytes(range(16))
    shares = split(secret, *of(session))
    for chosen in combinations(shares, session.threshold):
        assert combine({i: shares[i] for i in chosen}, *of(session)) == secret


def test_too_few_shares_open_nothing():
    session = session_of(7)
    shares = split(bytes(16), *of(session))
    del shares[0], shares[1], shares[2]
    with pytest.raises(BadInput, match="shares of 5 holders"):
        combine(shares, *of(session))


def test_a_wrong_share_gives_another_secret():
    session = session_of(4)
    shares = split(bytes(16), *of(session))
    assert combine(shares | {0: bytes(16)}, *of(session)) != bytes(16)


def test_secrets_and_shares_of_other_sizes_and_strangers_are_refused():
    session = session_of(4)
    with pytest.raises(BadInput, match="16 bytes"):
        split(bytes(32), *of(session))
    shares = split(bytes(16), *of(session))
    with pytest.raises(BadInput, match="16 bytes"):
        combine(shares | {0: bytes(15)}, *of(session))
    with pytest.raises(BadInput, match="shares of 3 holders"):
        combine({9 + i: share for i, share in shares.items()}, *of(session))


def test_shares_are_drawn_anew():
    session = session_of(4)
    assert split(bytes(16), *of(session)) != split(bytes(16), *of(session))
