"""The same message, the same answer: a site trains and releases once a round.

A server that died asks again, and nobody is charged twice. Every family of methods answers a round
through `sent_before`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dprbft.config.schema import rounds_of
from dprbft.paths import sent_file
from dprbft.site.site import Site
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes


@dataclass(frozen=True)
class Asked:
    """A round that the server asks for."""

    round: int
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the server's message, which the site keeps."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Answered:
    """The last round that a site has answered, and the digest of the message it answered."""

    round: int
    against: str


def sent_before(
    site: Site,
    answered: Answered,
    asked: Asked,
    sent_at: Callable[[Path, int], Path] = sent_file,
) -> bytes | None:
    """What the site has sent in this round (empty: nothing); None if it is to be done.

    BadInput for another message than the site has answered, for a round before, and for a round in
    which the site takes no part.
    """
    if answered.round == asked.round:
        if answered.against != asked.digest:
            raise BadInput(
                f"expected the message that round {asked.round} was answered to, got another; a "
                "run that has begun cannot begin anew: give another directory"
            )
        path = sent_at(site.home, asked.round)
        return read_bytes(path) if path.exists() else b""
    if answered.round > asked.round:
        raise BadInput(
            f"expected a round after {answered.round}, got round {asked.round}; start a new run"
        )
    check_round(site, asked.round)
    return None


def check_round(site: Site, round: int) -> None:
    """Refuse a round in which the site takes no part."""
    if round not in rounds_of(site.config, site.id):
        raise BadInput(
            f"expected a round of 1 to {site.config.federation.planned_rounds} in which site "
            f"{site.id} takes part, got {round}; start a new run"
        )
