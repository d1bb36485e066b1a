"""Nothing is opened before n - t sites have signed one list of survivors."""

import numpy as np
import pytest
from secure_sums import play, session_of, signing, vectors_of

from dprbft.secure_sum.answer import UnmaskAnswer
from dprbft.secure_sum.keys import key_pair, read_keys
from dprbft.secure_sum.masks import pair_mask, self_mask
from dprbft.secure_sum.party import PAIR_KEY, Party
from dprbft.secure_sum.shares import combine
from panas.runtime.errors import BadInput

SITES = 7  # of which two help the server
HELPERS = (5, 6)
LISTS = {
    0: (0, 1, 2, 5, 6),
    1: (0, 1, 3, 4, 5, 6),
    2: (0, 2, 3, 4, 5, 6),
    3: (0, 3, 4, 5, 6),
    4: (0, 3, 4, 5, 6),
}
"""Of survivors, as told to each honest site: each of a size that it takes."""


def split_view(signed: bool) -> tuple[dict[int, Party], dict[int, bytes], np.ndarray]:
    """Site 0 masks its vector with four peers only, as the server has it."""
    session, vectors = session_of(SITES), vectors_of(SITES)
    parties = {i: Party.new(session, i, signing(i) if signed else None) for i in range(SITES)}
    keys = {i: p.keys() for i, p in parties.items()}
    sealed = {i: p.shares(keys) for i, p in parties.items()}
    first = np.zeros(0, np.uint64)
    for i, party in parties.items():
        senders = LISTS[0] if i == 0 else range(SITES)
        masked = party.mask(vectors[i], {j: sealed[j][i] for j in senders if j != i})
        first = masked if i == 0 else first
    return parties, keys, first


def opened(parties, keys, first, answers: dict[int, UnmaskAnswer]) -> np.ndarray:
    """The vector of site 0, from what the sites answer and what the helpers hold."""
    session, size = session_of(SITES), len(first)
    held = {i: parties[i]._held for i in HELPERS}
    of_self = {i: a.of_self[0] for i, a in answers.items() if 0 in a.of_self and i != 0}
    seed = combine(of_self | {i: held[i][0][:16] for i in HELPERS}, session.threshold, range(SITES))
    result = first - self_mask(seed, session, 0, size)
    public = read_keys(session, keys)[0].pair
    for peer in (1, 2, *HELPERS):
        if peer in HELPERS:
            seed = parties[peer]._seeds.pair
        else:
            shares = {i: a.of_pair[peer] for i, a in answers.items() if peer in a.of_pair}
            seed = combine(
                shares | {i: held[i][peer][16:] for i in HELPERS}, session.threshold, range(SITES)
            )
        key = key_pair(seed, session, PAIR_KEY, peer)
        result = result + pair_mask(key, session, peer, (0, public), size)
    return result[:-1]


def test_without_signatures_lists_that_differ_open_a_vector():
    """What the agreement is for: the limit where the server may tell sites different things."""
    parties, keys, first = split_view(signed=False)
    answers = {i: UnmaskAnswer.from_bytes(parties[i].unmask(LISTS[i]), i) for i in LISTS}
    assert (opened(parties, keys, first, answers) == vectors_of(SITES)[0]).all()


def test_with_signatures_no_such_list_is_opened():
    parties, _, _ = split_view(signed=True)
    signed = {i: parties[i].agree(LISTS[i]) for i in LISTS}
    for i in LISTS:
        for helper in HELPERS:  # they sign whatever the server likes
            copy = Party.from_bytes(parties[helper].to_bytes(), signing(helper))
            signed[helper] = copy.agree(LISTS[i])
        with pytest.raises(BadInput, match="signatures of one list of survivors of at least 5"):
            parties[i].unmask(LISTS[i], signed)


def test_a_sum_with_signatures_is_opened():
    session, vectors = session_of(SITES), vectors_of(SITES)
    gone = {"keys": [6], "mask": [2]}
    played = play(session, vectors, gone, signed=True)
    summed = [vectors[i] for i in (0, 1, 3, 4, 5)]
    assert played.sum().tolist() == np.add.reduce(summed).tolist()


def test_too_few_or_foreign_signatures_open_nothing():
    played = play(session_of(4), vectors_of(4), {"unmask": range(4)}, signed=True)
    everyone, party = (0, 1, 2, 3), played.parties[0]
    signed = {i: p.agree(everyone) for i, p in played.parties.items()}
    for few in ({}, {i: signed[i] for i in (0, 1)}, dict.fromkeys(everyone, signed[0])):
        with pytest.raises(BadInput, match="signatures"):
            party.unmask(everyone, few)
    with pytest.raises(BadInput, match="signatures"):
        party.unmask(everyone)
    party.unmask(everyone, {i: signed[i] for i in (1, 2, 3)})


def test_a_signature_of_one_list_is_the_only_one():
    played = play(session_of(4), vectors_of(4), {"unmask": range(4)}, signed=True)
    party = played.parties[0]
    assert party.agree([0, 1, 2]) == party.agree([2, 1, 0])
    again = Party.from_bytes(party.to_bytes(), signing(0))
    for one in (party, again):
        with pytest.raises(BadInput, match="got a second"):
            one.agree([0, 1, 2, 3])
        with pytest.raises(BadInput, match="got a second"):
            one.unmask([0, 1, 3])
