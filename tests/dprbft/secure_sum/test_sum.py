import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import play, session_of, vectors_of

from dprbft.secure_sum.answer import read_answer, short_of_shares
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session, most_missing
from dprbft.secure_sum.total import total
from panas.runtime.errors import BadInput

STEPS = ("keys", "shares", "mask", "unmask")


def plain(vectors, sites) -> np.ndarray:
    """The oracle: an addition modulo 2^64, in Python's own integers."""
    columns = zip(*([int(x) for x in vectors[i]] for i in sites), strict=True)
    return np.array([sum(column) % 2**64 for column in columns], dtype=np.uint64)


@pytest.mark.parametrize("sites", [4, 10, pytest.param(50, marks=pytest.mark.thorough)])
def test_the_sum_is_the_plain_sum(sites: int):
    vectors = vectors_of(sites)
    assert play(session_of(sites), vectors).sum().tolist() == plain(vectors, vectors).tolist()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sites", [4, 10, pytest.param(50, marks=pytest.mark.thorough)])
def test_up_to_t_may_drop_out_at_any_step(sites: int, step: str):
    session, vectors = session_of(sites), vectors_of(sites)
    gone = range(1, 1 + session.missing)
    played = play(session, vectors, {step: gone})
    summed = [i for i in range(sites) if step == "unmask" or i not in gone]
    assert played.sum().tolist() == plain(vectors, summed).tolist()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sites", [4, 10])
def test_one_more_ends_the_sum(sites: int, step: str):
    session = session_of(sites)
    with pytest.raises(BadInput, match=f"at least {session.threshold} of {sites} sites"):
        play(session, vectors_of(sites), {step: range(session.missing + 1)}).sum()


def test_dropouts_at_different_steps_count_together():
    session, vectors = session_of(10), vectors_of(10)
    played = play(session, vectors, {"keys": [9], "shares": [3], "mask": [5]})
    assert played.sum().tolist() == plain(vectors, [0, 1, 2, 4, 6, 7, 8]).tolist()


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.data())
def test_any_sites_any_numbers_any_dropouts(data: st.DataObject):
    numbers = st.lists(st.integers(0, 99), min_size=3, max_size=7, unique=True)
    sites = tuple(sorted(data.draw(numbers)))
    t = data.draw(st.integers(0, most_missing(len(sites))))
    session = Session(data.draw(st.binary(min_size=1, max_size=9)), sites, t)
    steps = st.integers(-(2**49), 2**49)
    vectors = {
        i: np.array(data.draw(st.lists(steps, min_size=3, max_size=3)), np.int64).view(np.uint64)
        for i in sites
    }
    lost = data.draw(st.permutations(sites))[:t]
    at = [data.draw(st.sampled_from(STEPS)) for _ in lost]
    gone = {step: [i for i, s in zip(lost, at, strict=True) if s == step] for step in STEPS}
    summed = [i for i in sites if all(i not in gone[s] for s in STEPS[:3])]
    assert play(session, vectors, gone).sum().tolist() == plain(vectors, summed).tolist()


@pytest.mark.parametrize("change", [1, 1 << 63, 12345678901234567])
@pytest.mark.parametrize("at", [0, 4, 9])
def test_a_changed_number_is_found(change: int, at: int):
    played = play(session_of(4), vectors_of(4))
    played.masked[2][at : at + 1] += np.uint64(change)
    with pytest.raises(BadInput, match="check number"):
        played.sum()


def test_a_masked_vector_of_another_session_is_found():
    vectors = vectors_of(4)
    one, other = (play(session_of(4, id), vectors) for id in (b"1", b"2"))
    one.masked[2] = other.masked[2]
    with pytest.raises(BadInput, match="of another session"):
        one.sum()


def test_a_sum_out_of_range_is_found():
    vectors = vectors_of(4) | {1: np.full(9, 1 << 60, np.uint64)}
    with pytest.raises(BadInput, match="out of range"):
        play(session_of(4), vectors).sum()


def spoilt(content: bytes) -> bytes:
    """An answer whose last share, of a self seed or of a pair seed, is another."""
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("sites", [4, 10, pytest.param(50, marks=pytest.mark.thorough)])
def test_wrong_answers_are_left_out_while_enough_are_right(sites: int):
    session, vectors = session_of(sites), vectors_of(sites)
    played = play(session, vectors)
    for site in range(session.missing):  # among those that come first
        played.answers[site] = spoilt(played.answers[site])
    assert played.sum().tolist() == plain(vectors, vectors).tolist()
    played.answers[session.missing] = spoilt(played.answers[session.missing])
    with pytest.raises(BadInput, match="expected from site 0 the share that site"):
        played.sum()


@pytest.mark.parametrize(("step", "owner"), [("mask", 1), ("unmask", 3)])
def test_a_wrong_answer_is_named_where_all_have_to_be_right(step: str, owner: int):
    played = play(session_of(4), vectors_of(4), {step: [1]})
    played.answers[0] = spoilt(played.answers[0])
    with pytest.raises(BadInput, match=f"from site 0 the share that site {owner} has dealt"):
        played.sum()


def test_every_share_of_an_answer_is_checked():
    played = play(session_of(7), vectors_of(7), {"mask": [3, 5]})
    content = played.answers[0]
    read_answer(played.session, content, 0, played.sealed, played.masked)
    for start in range(0, len(content), 21):
        changed = bytearray(content)
        changed[start + 7] ^= 1
        with pytest.raises(BadInput, match="from site 0 the share"):
            read_answer(played.session, bytes(changed), 0, played.sealed, played.masked)


@pytest.mark.parametrize("gone", [{}, {"mask": [2]}])
def test_a_share_that_was_dealt_wrong_costs_its_owner_alone(gone: dict[str, list[int]]):
    """What site 2 dealt to two of ten does not open; the eight other shares of it do."""
    session, vectors = session_of(10), vectors_of(10)
    played = play(session, vectors, {"mask": range(10)})
    for site in (0, 9):
        part = bytearray(played.sealed[2][site])
        part[20] ^= 1
        played.sealed[2] = played.sealed[2] | {site: bytes(part)}
    there = [i for i in range(10) if i not in gone.get("mask", ())]
    played.masked = {i: played.parties[i].mask(vectors[i], played.received(i)) for i in there}
    assert [i for i in there if played.parties[i].wrongly_dealt == (2,)] == [0, 9]
    played.answers = {i: played.parties[i].unmask(there) for i in there}
    assert played.sum().tolist() == plain(vectors, there).tolist()
    read = {
        i: read_answer(session, content, i, played.sealed, there)
        for i, content in played.answers.items()
    }
    assert short_of_shares(session, read, played.sealed) == []
    for i in (7, 8):
        del played.answers[i], read[i]
    assert short_of_shares(session, read, played.sealed) == [2]
    with pytest.raises(BadInput, match="right shares of site 2 of at least 7 of 10 sites"):
        played.sum()


@pytest.mark.parametrize(
    "content",
    [bytes(20), bytes(21), b"\2" + bytes(20), bytes(42), b"\0\0\0\0\7" + bytes(16)],
)
def test_an_answer_of_another_form_is_refused(content: bytes):
    played = play(session_of(4), vectors_of(4))
    with pytest.raises(BadInput):
        read_answer(played.session, content, 0, played.sealed, played.masked)
    changed = dict.fromkeys(played.answers, content)
    with pytest.raises(BadInput):
        total(played.session, played.keys, played.sealed, played.masked, changed)


def test_answers_and_vectors_of_strangers_are_refused():
    played = play(session_of(4), vectors_of(4), {"mask": [3]})
    answers = played.answers | {3: played.answers[0]}
    with pytest.raises(BadInput, match="whose masked vectors arrived"):
        total(played.session, played.keys, played.sealed, played.masked, answers)
    masked = played.masked | {7: played.masked[0]}
    with pytest.raises(BadInput, match="announced keys"):
        total(played.session, played.keys, played.sealed, masked, answers)
    short = played.masked | {1: played.masked[1][:4]}
    with pytest.raises(BadInput, match="one length"):
        total(played.session, played.keys, played.sealed, short, played.answers)


def test_answers_to_different_lists_do_not_make_a_sum():
    session, vectors = session_of(4), vectors_of(4)
    played = play(session, vectors, {"unmask": [0, 1, 2, 3]})
    for site in (0, 1):
        played.answers[site] = played.parties[site].unmask([0, 1, 2, 3])
    played.answers[2] = played.parties[2].unmask([0, 1, 2])
    with pytest.raises(BadInput, match="site 2 to answer for the sites of the sum"):
        played.sum()


@pytest.mark.parametrize(
    ("sites", "missing", "id"),
    [
        ((0, 1), 0, b"x"),
        ((0, 1, 2), 1, b"x"),
        ((0, 1, 2, 3), 2, b"x"),
        ((0, 1, 2, 3), -1, b"x"),
        ((0, 2, 1), 0, b"x"),
        ((0, 1, 1), 0, b"x"),
        ((-1, 1, 2), 0, b"x"),
        ((0, 1, 2), 0, b""),
        (tuple(range(4097)), 0, b"x"),
    ],
)
def test_a_session_that_cannot_be_is_refused(sites: tuple[int, ...], missing: int, id: bytes):
    with pytest.raises(BadInput, match="expected"):
        Session(id, sites, missing)


def test_two_lists_cannot_both_gather_answers():
    for n in range(3, 60):
        t = most_missing(n)
        # n - t answers to each of two lists, of sites that answer one, and t that answer both
        assert 2 * (n - t) > (n - t) + 2 * t


def test_a_stranger_takes_no_part():
    with pytest.raises(BadInput, match="one of the 4 sites"):
        Party.new(session_of(4), 4)
