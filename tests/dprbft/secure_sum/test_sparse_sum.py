"""Sums of 100 sites and more, whose sites draw the holders of their secrets."""

import numpy as np
import pytest
from secure_sums import Played, play, session_of, signing, vectors_of

from dprbft.secure_sum.answer import UnmaskAnswer
from dprbft.secure_sum.holders import holders, neighbours
from dprbft.secure_sum.keys import Announced, read_keys
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session
from panas.runtime.errors import BadInput

N, T = 100, 5
STEPS = ("keys", "shares", "mask", "unmask")


def plain(vectors, sites) -> list[int]:
    return np.add.reduce([vectors[i] for i in sites]).tolist()


@pytest.fixture(scope="module")
def whole() -> Played:
    """A sum of which no site drops out."""
    return play(session_of(N, missing=T), vectors_of(N))


def test_the_sum_is_the_plain_sum(whole: Played):
    assert whole.session.graph.sparse
    assert whole.sum().tolist() == plain(vectors_of(N), range(N))


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_up_to_t_may_drop_out_at_any_step(step: str):
    vectors, gone = vectors_of(N), range(1, 1 + T)
    played = play(session_of(N, missing=T), vectors, {step: gone})
    summed = [i for i in range(N) if step == "unmask" or i not in gone]
    assert played.sum().tolist() == plain(vectors, summed)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["keys", "mask", "unmask"])
def test_one_more_ends_the_sum(step: str):
    with pytest.raises(BadInput, match=f"at least {N - T} of {N} sites"):
        play(session_of(N, missing=T), vectors_of(N), {step: range(T + 1)}).sum()


@pytest.mark.slow
@pytest.mark.thorough
def test_a_thousand_sites_with_some_missing_at_every_step():
    vectors = vectors_of(1000)
    gone = {step: range(25 * i, 25 * i + 25) for i, step in enumerate(STEPS)}
    played = play(session_of(1000, missing=100), vectors, gone)
    assert played.sum().tolist() == plain(vectors, range(75, 1000))


def test_a_site_draws_its_holders_and_deals_to_them_alone(whole: Played):
    known, k = read_keys(whole.session, whole.keys), whole.session.graph.degree
    for site, announced in known.items():
        held_by = holders(whole.session, site, announced.draw)
        assert len(held_by) == k + 1
        assert site in held_by
        assert whole.sealed[site].keys() == set(held_by)
    near = neighbours(whole.session, known)
    assert all(site in near[peer] for site, peers in near.items() for peer in peers)
    assert len({a.draw for a in known.values()}) == N


def test_draws_are_even():
    """Each other site is drawn about as often."""
    session = session_of(N, missing=T)
    drawn = [i for n in range(400) for i in holders(session, 7, n.to_bytes(16, "big")) if i != 7]
    counts = np.delete(np.bincount(drawn, minlength=N), 7)
    expected = 400 * session.graph.degree / (N - 1)
    assert abs(counts - expected).max() < 5 * expected**0.5


def test_a_draw_is_signed():
    session = session_of(N, missing=T)
    parties = {i: Party.new(session, i, signing(i)) for i in range(N)}
    keys = {i: p.keys() for i, p in parties.items()}
    near = neighbours(session, read_keys(session, keys))[0]
    told = {i: keys[i] for i in {0, *near}}
    peer = min(near)
    changed = bytearray(keys[peer])
    changed[100] ^= 1  # of the draw
    with pytest.raises(BadInput, match=f"signed by site {peer} itself"):
        parties[0].shares(told | {peer: bytes(changed)})
    assert Announced.from_bytes(keys[peer], peer, session).draw == keys[peer][96:112]


def test_keys_of_strangers_and_too_few_holders_are_refused(whole: Played):
    session = whole.session
    party = Party.new(session, 0)
    keys = whole.keys | {0: party.keys()}
    near = neighbours(session, read_keys(session, keys))[0]
    told = {i: keys[i] for i in {0, *near}}
    stranger = min(set(range(1, N)) - near)
    with pytest.raises(BadInput, match="keys of neighbours"):
        party.shares(told | {stranger: keys[stranger]})
    few = dict(list(told.items())[:3]) | {0: keys[0]}
    with pytest.raises(BadInput, match=f"keys of at least {session.graph.opens} of"):
        party.shares(few)


def test_a_list_with_a_neighbour_whose_shares_were_kept_back_is_refused():
    """Else a site could be masked by few, and its vector seen apart with theirs."""
    session, vectors = session_of(N, missing=T), vectors_of(N)
    played = play(session, vectors, {"mask": range(N)})
    party = played.parties[0]
    received = played.received(0)
    hidden = next(i for i in received if i in played.sealed[0])
    party.mask(vectors[0], {i: part for i, part in received.items() if i != hidden})
    with pytest.raises(BadInput, match="expected to unmask a sum over sites that shared"):
        party.agree(range(N))
    party.agree([i for i in range(N) if i != hidden])


def test_a_list_without_a_sites_holders_is_refused():
    """Else the server could leave them out, open their pair masks, and see the sum of all others
    without this site: of fewer than n - t."""
    session = session_of(500, missing=25)
    parties = {i: Party.new(session, i) for i in session.sites}
    keys = {i: p.keys() for i, p in parties.items()}
    known, party = read_keys(session, keys), parties[0]
    near, held_by = neighbours(session, known)[0], holders(session, 0, known[0].draw)
    party.shares({i: keys[i] for i in {0, *near}})
    party.mask(vectors_of(1)[0], dict.fromkeys(near, b""))
    out = [i for i in held_by if i][: session.missing]
    assert len(held_by) - len(out) < session.graph.opens
    with pytest.raises(BadInput, match=f"masked vectors of at least {session.graph.opens} of"):
        party.agree(set(session.sites) - set(out))
    party.agree(set(session.sites) - set(out[: len(held_by) - session.graph.opens]))


def test_a_site_with_too_few_holders_sends_nothing(whole: Played):
    session, vectors = whole.session, vectors_of(N)
    played = play(session, vectors, {"mask": range(N)})
    few = dict(list(played.received(0).items())[: session.graph.opens // 2])
    with pytest.raises(BadInput, match="shares of at least"):
        played.parties[0].mask(vectors[0], few)


def test_an_answer_holds_shares_that_were_dealt_to_the_site_alone(whole: Played):
    for site, content in whole.answers.items():
        answer = UnmaskAnswer.from_bytes(content, site)
        assert not answer.of_pair
        assert set(answer.of_self) == {i for i, of in whole.sealed.items() if site in of}


def test_a_share_that_nobody_dealt_is_refused(whole: Played):
    stranger = next(i for i, of in whole.sealed.items() if 0 not in of)
    forged = UnmaskAnswer({stranger: bytes(16)}, {}).to_bytes()
    answers = dict.fromkeys(whole.answers, forged)
    played = Played(whole.session, {}, whole.keys, whole.sealed, whole.masked, answers)
    with pytest.raises(BadInput, match="ask the site again"):
        played.sum()


def test_a_killed_site_goes_on_from_its_bytes():
    session, vectors = session_of(N, missing=T), vectors_of(N)
    played = play(session, vectors, {"mask": range(N)})
    again = Party.from_bytes(played.parties[0].to_bytes())
    masked = played.parties[0].mask(vectors[0], played.received(0))
    assert again.keys() == played.keys[0]
    assert again.mask(vectors[0], played.received(0)).tolist() == masked.tolist()
    assert again.wrongly_dealt == ()


def test_other_parameters_are_another_session():
    one, other = (Session(b"x", tuple(range(N)), t) for t in (T, T - 1))
    assert one.context != other.context
