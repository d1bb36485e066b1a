"""How much a site may send: what it was asked, and nothing besides."""

import time

from dprbft.engines.flower.door.requests import ENVELOPE, PARTS, SMALL, Replies

NODE, OTHER = 7, 8


def asked(cap: int, seconds: float = 60.0) -> Replies:
    replies = Replies()
    replies.ask("m", NODE, cap, time.time() + seconds)
    return replies


def test_a_site_that_was_asked_nothing_may_send_little():
    assert Replies().most(NODE) == SMALL
    assert asked(10**9).most(OTHER) == SMALL


def test_an_announced_reply_may_be_as_large_as_its_message_allows():
    replies = asked(10**6)
    assert replies.most(NODE) == SMALL
    assert replies.announce("m", NODE, "r", ["r", "p"])
    assert replies.most(NODE) == 10**6 + SMALL + ENVELOPE


def test_nobody_announces_the_reply_of_another():
    replies = asked(10**6)
    assert replies.announce("m", OTHER, "r", ["r"])  # Flower itself refuses it
    assert (replies.most(NODE), replies.most(OTHER)) == (SMALL, SMALL)


def test_one_reply_is_taken_and_of_few_parts():
    replies = asked(0)
    assert replies.announce("m", NODE, "r", ["r"])
    assert not replies.announce("m", NODE, "another", ["another"])
    replies = asked(0)
    assert not replies.announce("m", NODE, "r", [str(i) for i in range(PARTS + 1)])
    assert replies.refused == {"m": 0}


def test_what_is_refused_is_remembered_and_its_parts_never_come():
    replies = asked(5)
    replies.announce("m", NODE, "r", ["r", "p"])
    replies.refuse(OTHER)
    assert replies.refused == {}
    replies.refuse(NODE)
    assert (replies.refused, replies.most(NODE)) == ({"m": 5}, SMALL)
    assert replies.is_cut("p")
    assert not replies.is_cut("q")


def test_what_is_received_or_too_late_grants_nothing_more():
    replies = asked(10**6)
    replies.announce("m", NODE, "r", ["r"])
    replies.received("r")
    assert replies.most(NODE) == SMALL
    late = asked(10**6, -1.0)
    late.announce("m", NODE, "r", ["r"])
    assert late.most(NODE) == SMALL
