"""What the server tells while it goes on: of sites it knows numbers, and no accuracy."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class SiteReady:
    """A site is ready for round 1."""

    site: int


@dataclass(frozen=True)
class SiteTrained:
    """A participant has trained in a round."""

    site: int
    round: int


@dataclass(frozen=True)
class SiteAbsent:
    """A site did not answer in a round, or before the first (0), which goes on without it."""

    site: int
    round: int
    refused: str = ""  # what its reply should have been; empty if none came


@dataclass(frozen=True)
class RoundBegun:
    """A round has begun."""

    round: int


@dataclass(frozen=True)
class RoundEnded:
    """A round of so many has ended."""

    round: int
    rounds: int
    sites: tuple[int, ...]  # those that were asked


Event = SiteReady | SiteTrained | SiteAbsent | RoundBegun | RoundEnded
Listener = Callable[[Event], None]
