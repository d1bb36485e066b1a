"""The same message, the same answer: a site trains and releases once a round.

A server that died asks again, and nobody is charged twice. Every family of methods answers a round
through `sent_before`.
"""

from collections.abc import Callable
from pathlib import Path

from dprbft.config.schema import rounds_of
from dprbft.messages import digest_of
from dprbft.paths import sent_file
from dprbft.site.site import Site
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes


def sent_before(
    site: Site,
    answered: tuple[int, str],
    round: int,
    content: bytes,
    sent_at: Callable[[Path, int], Path] = sent_file,
) -> bytes | None:
    """What the site has sent in a round (empty: nothing); None if it is to be done.

    BadInput for another message than the site has answered, for a round before, and for a round in
    which the site takes no part.

    Args:
        site: for its folder, and the rounds in which it takes part.
        answered: the site's last round, and the digest of the message that it answered then.
        round: that is asked for, from 1.
        content: the message that asks for it.
        sent_at: the file that keeps what was sent, from the site's folder and the round.
    """
    last, against = answered
    if last == round:
        if against != digest_of(content):
            raise BadInput(
                f"expected the message that round {round} was answered to, got another; a "
                "run that has begun cannot begin anew: give another directory"
            )
        path = sent_at(site.home, round)
        return read_bytes(path) if path.exists() else b""
    if last > round:
        raise BadInput(f"expected a round after {last}, got round {round}; start a new run")
    check_round(site, round)
    return None


def check_round(site: Site, round: int) -> None:
    """Refuse a round in which the site takes no part."""
    if round not in rounds_of(site.config, site.id):
        raise BadInput(
            f"expected a round of 1 to {site.config.federation.planned_rounds} in which site "
            f"{site.id} takes part, got {round}; start a new run"
        )
