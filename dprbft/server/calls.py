"""What the server makes of replies: who is ready, what arrived, and who has the answer."""

from collections.abc import Callable, Collection, Mapping

from dprbft.engines.protocol import Engine, check_reply
from dprbft.messages import Code, Reply, Verb
from dprbft.server.events import Listener, SiteAbsent, SiteReady, SiteTrained
from panas.runtime.errors import BadInput


def expected(error: BadInput) -> str:
    """What a refused reply should have been; what came is the site's own, and is left out."""
    return str(error).split(", got ")[0]


def ready_sites(
    engine: Engine, listener: Listener, messages: Mapping[int, bytes], round: int
) -> frozenset[int]:
    """The sites that are there before a round.

    SiteRefusal, once all have answered, if the budget of one is too small for what it plans.

    Args:
        engine: reaches the sites.
        listener: hears who is absent, and before the first round who is ready.
        messages: what each site is sent, by number.
        round: that is to come; 0: the first.
    """
    refused, ready = dict[int, Reply](), set[int]()
    for site, reply in engine.call(Verb.READY, messages):
        if reply.code is Code.ABSENT:
            listener(SiteAbsent(site, round))
        elif reply.code is not Code.DONE:
            refused[site] = reply
        else:
            ready.add(site)
            if not round:
                listener(SiteReady(site))
    for site, reply in sorted(refused.items()):
        check_reply(site, reply)
    return frozenset(ready)


def receive(
    engine: Engine,
    listener: Listener,
    messages: Mapping[int, bytes],
    round: int,
    keep: Callable[[int, bytes], None],
) -> list[int]:
    """Keep what each site sends as it comes; returns those that sent nothing that fits.

    Args:
        engine: reaches the sites.
        listener: hears who has trained and who is absent.
        messages: what each site is sent, by number.
        round: from 1.
        keep: takes a site's number and bytes; BadInput costs that site the round.
    """
    absent = list[int]()
    for site, reply in engine.call(Verb.ROUND, messages):
        if reply.code is Code.ABSENT:
            absent.append(site)
            listener(SiteAbsent(site, round))
            continue
        check_reply(site, reply)
        try:
            keep(site, reply.release)
        except BadInput as e:  # costs this site alone the round
            absent.append(site)
            listener(SiteAbsent(site, round, expected(e)))
            continue
        listener(SiteTrained(site, round))
    return absent


def send_answers(
    engine: Engine,
    listener: Listener,
    messages: Mapping[int, bytes],
    round: int,
    missing: Collection[Code] = (Code.ABSENT,),
) -> list[int]:
    """Send the answer to a round; returns the sites that have it.

    Args:
        engine: reaches the sites.
        listener: hears who is absent.
        messages: what each site is sent, by number.
        round: from 1.
        missing: codes of a site that goes on without the answer; others than DONE raise.
    """
    sites = list[int]()
    for site, reply in engine.call(Verb.FINISH, messages):
        if reply.code in missing:
            listener(SiteAbsent(site, round))
        else:
            check_reply(site, reply)
            sites.append(site)
    return sites
