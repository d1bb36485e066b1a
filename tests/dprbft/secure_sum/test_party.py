import numpy as np
import pytest
from scipy.stats import chisquare
from secure_sums import play, session_of, signing, vectors_of

from dprbft.secure_sum.answer import UnmaskAnswer
from dprbft.secure_sum.keys import ANNOUNCED_BYTES
from dprbft.secure_sum.masks import self_mask
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session
from panas.runtime.errors import BadInput

SIZE = 4096


def uniformity(content: bytes) -> float:
    """The p-value of bytes against the uniform distribution."""
    return float(chisquare(np.bincount(np.frombuffer(content, np.uint8), minlength=256)).pvalue)


@pytest.mark.parametrize("filled", [0, 1, 2**40])
def test_a_masked_vector_is_uniform_whatever_it_holds(filled: int):
    vectors = {i: np.full(SIZE, filled, np.uint64) for i in range(4)}
    masked = play(session_of(4), vectors).masked
    assert min(uniformity(v.tobytes()) for v in masked.values()) > 1e-6
    # The planted bug: the same test finds a vector without a mask.
    assert uniformity(vectors[0].tobytes()) < 1e-6


def test_without_one_self_mask_the_rest_is_uniform():
    vectors = {i: np.zeros(SIZE, np.uint64) for i in range(4)}
    masked = play(session_of(4), vectors).masked
    together = np.add.reduce(list(masked.values()))  # pair masks cancel, self masks do not
    assert uniformity(together.tobytes()) > 1e-6


def test_masks_of_two_sessions_and_of_two_sites_differ():
    vectors = {i: np.zeros(SIZE, np.uint64) for i in range(4)}
    seen = [play(session_of(4, id), vectors).masked[i] for id in (b"1", b"2") for i in range(4)]
    for at, one in enumerate(seen):
        for other in seen[at + 1 :]:
            assert not (one == other).any()
            assert uniformity((one - other).tobytes()) > 1e-6


def test_the_same_seeds_in_another_session_give_other_masks():
    played = play(session_of(4), vectors_of(4))
    old = played.parties[0]
    other = Session(b"another", old.session.sites, old.session.missing)
    new = Party(other, 0, None, old._seeds).keys()
    for part in (slice(0, 32), slice(32, 64), slice(64, 96)):  # both keys, and the commitment
        assert new[part] != old.keys()[part]
    masks = [self_mask(old._seeds.own, session, 0, 9) for session in (old.session, other)]
    assert (masks[0] != masks[1]).all()


@pytest.mark.parametrize("dies", range(4))
def test_a_killed_site_goes_on_from_its_bytes(dies: int):
    """Before each step, and once more after it, one site is what its disk says."""
    session, vectors = session_of(4), vectors_of(4)
    played = play(session, vectors, {"keys": range(4)})
    parties = played.parties

    def again(step: int) -> None:
        if step == dies:
            parties[1] = Party.from_bytes(parties[1].to_bytes())

    again(0)
    played.keys = keys = {i: p.keys() for i, p in parties.items()}
    again(1)
    assert parties[1].keys() == keys[1]
    played.sealed = {i: p.shares(keys) for i, p in parties.items()}
    again(2)
    assert parties[1].shares(keys) == played.sealed[1]
    masked = {i: p.mask(vectors[i], played.received(i)) for i, p in parties.items()}
    again(3)
    assert parties[1].mask(vectors[1], played.received(1)).tolist() == masked[1].tolist()
    answers = {i: p.unmask(masked) for i, p in parties.items()}
    parties[1] = Party.from_bytes(parties[1].to_bytes())
    assert parties[1].unmask(masked) == answers[1]
    played.masked, played.answers = masked, answers
    assert played.sum().tolist() == np.add.reduce(list(vectors.values())).tolist()


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_unmasking_is_refused(killed: bool):
    played = play(session_of(4), vectors_of(4))
    party = played.parties[0]
    if killed:
        party = Party.from_bytes(party.to_bytes())
    assert party.unmask([3, 2, 1, 0]) == played.answers[0]
    with pytest.raises(BadInput, match="got a second"):
        party.unmask([0, 1, 2])


def test_an_erased_party_answers_nothing_more():
    played = play(session_of(4), vectors_of(4))
    erased = played.parties[0].erased()
    for party in (erased, Party.from_bytes(erased.to_bytes())):
        assert party.over
        assert party.keys() == played.keys[0]
        for ask in (
            lambda party=party: party.shares(played.keys),
            lambda party=party: party.mask(vectors_of(4)[0], played.received(0)),
            lambda party=party: party.agree(range(4)),
            lambda party=party: party.unmask(range(4)),
        ):
            with pytest.raises(BadInput, match="that is over"):
                ask()


def test_no_answer_opens_both_secrets_of_a_site():
    played = play(session_of(10), vectors_of(10), {"mask": [4, 7]})
    for site, content in played.answers.items():
        answer = UnmaskAnswer.from_bytes(content, site)
        assert sorted(answer.of_pair) == [4, 7]
        assert sorted([*answer.of_self, *answer.of_pair]) == list(range(10))


@pytest.mark.parametrize("survivors", [[], [0, 1], [1, 2, 3], [0, 1, 9]])
def test_a_list_of_survivors_that_cannot_be_is_refused(survivors: list[int]):
    played = play(session_of(4), vectors_of(4), {"unmask": range(4)})
    with pytest.raises(BadInput, match="expected"):
        played.parties[0].unmask(survivors)


def test_another_vector_under_the_same_mask_is_refused():
    played = play(session_of(4), vectors_of(4))
    party, received = played.parties[0], played.received(0)
    with pytest.raises(BadInput, match="under one mask"):
        party.mask(vectors_of(4, seed=1)[0], received)
    with pytest.raises(BadInput, match="under one mask"):
        party.mask(vectors_of(4)[0], {i: received[i] for i in (1, 2)})


def test_other_keys_than_the_first_time_are_refused():
    played = play(session_of(4), vectors_of(4))
    fewer = {i: played.keys[i] for i in (0, 1, 2)}
    with pytest.raises(BadInput, match="keys of the first time"):
        played.parties[0].shares(fewer)


def test_changed_own_keys_are_refused():
    played = play(session_of(4), vectors_of(4), {"shares": range(4)})
    changed = played.keys | {0: played.keys[1]}
    with pytest.raises(BadInput, match="own keys"):
        played.parties[0].shares(changed)


def test_shares_are_for_their_site_alone_and_unchanged():
    played = play(session_of(4), vectors_of(4), {"mask": range(4)})
    party, vector = played.parties[0], vectors_of(4)[0]
    good = played.received(0)
    tags = good[1][:-1] + bytes([good[1][-1] ^ 1])
    flipped = bytes([good[1][0] ^ 1]) + good[1][1:]
    for wrong in (played.sealed[1][2], good[2], flipped, tags, b"", good[1][:-32]):
        copy = Party.from_bytes(party.to_bytes())
        copy.mask(vector, good | {1: wrong})
        assert copy.wrongly_dealt == (1,)
        assert 1 not in UnmaskAnswer.from_bytes(copy.unmask(range(4)), 0).of_self
        with pytest.raises(BadInput, match="right shares of at least 3 of 4"):
            party.mask(vector, good | {1: wrong, 3: b""})
    for received in (good | {0: good[1]}, good | {9: good[1]}):
        with pytest.raises(BadInput, match="other sites"):
            party.mask(vector, received)
    party.mask(vector, good)
    assert party.wrongly_dealt == ()


@pytest.mark.parametrize("vector", [np.zeros(3), np.zeros((2, 2), np.uint64)])
def test_only_whole_numbers_are_masked(vector: np.ndarray):
    played = play(session_of(4), vectors_of(4), {"mask": range(4)})
    with pytest.raises(BadInput, match="uint64"):
        played.parties[0].mask(vector, played.received(0))


def test_a_point_that_agrees_with_nothing_is_refused():
    played = play(session_of(4), vectors_of(4), {"shares": range(4)})
    weak = played.keys | {2: bytes(ANNOUNCED_BYTES)}
    with pytest.raises(BadInput, match="X25519 key from site 2"):
        played.parties[0].shares(weak)


def test_keys_that_the_server_made_up_are_refused():
    session = session_of(4)
    parties = {i: Party.new(session, i, signing(i)) for i in range(4)}
    keys = {i: p.keys() for i, p in parties.items()}
    forged = Party.new(session, 2, signing(3)).keys()
    with pytest.raises(BadInput, match="signed by site 2 itself"):
        parties[0].shares(keys | {2: forged})
    with pytest.raises(BadInput, match="signed by site 2 itself"):
        parties[0].shares(keys | {2: keys[2][:ANNOUNCED_BYTES]})
    other = Party.new(session_of(4, b"another"), 2, signing(2)).keys()
    with pytest.raises(BadInput, match="signed by site 2 itself"):
        parties[0].shares(keys | {2: other})
    again = Party.from_bytes(parties[0].to_bytes(), signing(0))
    assert again.keys() == keys[0]
    assert again.shares(keys).keys() == {0, 1, 2, 3}


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"session": ["", [0], 0]}'])
def test_a_damaged_state_is_refused(content: bytes):
    with pytest.raises(BadInput, match="damaged"):
        Party.from_bytes(content)


def test_nothing_secret_is_shown():
    party = Party.new(session_of(4), 0)
    for seed in (party._seeds.pair, party._seeds.seal, party._seeds.own):
        assert seed.hex() not in repr(party)
        assert repr(seed) not in repr(party)
