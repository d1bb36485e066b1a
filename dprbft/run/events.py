"""What a run tells while it goes on: records of facts, for whoever shows them.

A run takes a `Listener` and calls it once an event; `panas_cli` makes sentences of them. Accuracies
are the simulator's view: read from the sites' folders, they do not cross the wire.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from dprbft.site.results.records import SearchRecord, TuningRecord

StageName = Literal["start", "join", "search", "tune", "train"]


Why = Literal["absent", "behind", "refused", "budget", "failed", "reply", "version"]
"""Why a site has no part: it is not there, has missed a stage before, refused, cannot pay, failed,
sent what is no reply, or has another wire version."""


@dataclass(frozen=True)
class OtherVersion:
    """A site has answered over another wire version."""

    site: str
    line: str  # both versions, and which end to upgrade


@dataclass(frozen=True)
class SiteLeftOut:
    """A stage goes on without a site."""

    site: str
    stage: StageName
    why: Why = "absent"


@dataclass(frozen=True)
class SiteSearched:
    """A site's architecture is found."""

    site: str
    record: SearchRecord


@dataclass(frozen=True)
class SiteTuned:
    """A site's DP-SGD settings are found."""

    site: str
    record: TuningRecord


@dataclass(frozen=True)
class SiteDone:
    """A site elsewhere is through with a stage; what it found stays there."""

    site: str
    stage: StageName


@dataclass(frozen=True)
class SiteStarted:
    """A site is ready for round 1."""

    site: str
    validation: float | None  # accuracy; None where the run does not see it


@dataclass(frozen=True)
class SiteTrained:
    """A participant has trained in a round."""

    site: str
    round: int


@dataclass(frozen=True)
class SiteMissed:
    """A site did not answer in a round, which goes on without it."""

    site: str
    round: int
    why: Why = "absent"


@dataclass(frozen=True)
class RoundEnded:
    """A round of so many has ended; the mean accuracy of what its participants keep, if seen."""

    round: int
    rounds: int
    accuracy: float | None


@dataclass(frozen=True)
class SiteReleased:
    """A site that joins before it searches has answered; it sends nothing where its budget does
    not pay for a release, or where it comes late."""

    site: str
    sent: bool
    noise_multiplier: float | None = None  # of what it sent; None without noise
    masked: bool = False  # whether nobody sees it, but for the sum over all sites


@dataclass(frozen=True)
class HeadShared:
    """The server has answered so many sites with the shared head."""

    sites: int


@dataclass(frozen=True)
class SiteKept:
    """A site has made what it predicts with."""

    site: str
    shares: Mapping[str, float]  # of each candidate in the average
    accuracy: float  # on test samples


Event = (
    OtherVersion
    | SiteLeftOut
    | SiteSearched
    | SiteTuned
    | SiteDone
    | SiteStarted
    | SiteTrained
    | SiteMissed
    | RoundEnded
    | SiteReleased
    | HeadShared
    | SiteKept
)
Listener = Callable[[Event], None]
