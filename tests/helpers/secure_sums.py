"""A secure sum played through: sites that drop out at a step, and what the server is left with."""

import hashlib
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dprbft.secure_sum.holders import neighbours
from dprbft.secure_sum.keys import Signing, read_keys
from dprbft.secure_sum.masks import Masked, Vector
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session, most_missing
from dprbft.secure_sum.total import total


def session_of(sites: int, id: bytes = b"run 1, round 1", missing: int | None = None) -> Session:
    t = most_missing(sites) if missing is None else missing
    return Session(id, tuple(range(sites)), t)


def vectors_of(sites: int, size: int = 9, seed: int = 0) -> dict[int, Vector]:
    rng = np.random.default_rng(seed)
    return {i: rng.integers(-(2**40), 2**40, size).view(np.uint64) for i in range(sites)}


def signing(site: int) -> Signing:
    """A stand-in: each site's key is its number."""

    def tag(who: int, content: bytes) -> bytes:
        return hmac.new(bytes([who]), content, hashlib.sha256).digest()

    return Signing(lambda c: tag(site, c), lambda who, c, s: hmac.compare_digest(tag(who, c), s))


@dataclass
class Played:
    """Everything that crossed the wire, and the parties."""

    session: Session
    parties: dict[int, Party]
    keys: dict[int, bytes] = field(default_factory=dict)
    sealed: dict[int, dict[int, bytes]] = field(default_factory=dict)  # by sender, by receiver
    masked: dict[int, Masked] = field(default_factory=dict)
    answers: dict[int, bytes] = field(default_factory=dict)

    @cached_property
    def near(self) -> dict[int, set[int]]:
        """The neighbours of each site."""
        return neighbours(self.session, read_keys(self.session, self.keys))

    def keys_for(self, site: int) -> dict[int, bytes]:
        """The keys that a site is told of."""
        return {i: self.keys[i] for i in sorted({site, *self.near[site]})}

    def received(self, site: int) -> dict[int, bytes]:
        """The sealed shares for a site."""
        near = self.near[site] & self.sealed.keys()
        return {i: self.sealed[i].get(site, b"") for i in sorted(near)}

    def sum(self) -> Vector:
        return total(self.session, self.keys, self.sealed, self.masked, self.answers)


def play(
    session: Session,
    vectors: Mapping[int, Vector],
    gone: Mapping[str, Collection[int]] | None = None,
    signed: bool = False,
) -> Played:
    """All steps; `gone` names the sites that drop out before a step, for good."""
    lost: set[int] = set()

    def there(step: str) -> list[int]:
        lost.update((gone or {}).get(step, ()))
        return [site for site in session.sites if site not in lost]

    played = Played(
        session, {i: Party.new(session, i, signing(i) if signed else None) for i in session.sites}
    )
    played.keys = {i: played.parties[i].keys() for i in there("keys")}
    played.sealed = {i: played.parties[i].shares(played.keys_for(i)) for i in there("shares")}
    played.masked = {
        i: played.parties[i].mask(vectors[i], played.received(i)) for i in there("mask")
    }
    able = there("unmask")
    agreed = {i: played.parties[i].agree(played.masked) for i in able}
    played.answers = {i: played.parties[i].unmask(played.masked, agreed) for i in able}
    return played
