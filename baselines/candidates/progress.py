"""Where the server's search stands: a record, kept beside the weights of its networks.

Weights of the global network are named `gm.NAME`, those of candidate K `K.NAME`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from baselines.candidates.groups import SiteFacts
from baselines.candidates.selection import Candidate

GLOBAL = "gm"
Phase = Literal["start", "search", "final"]
Step = Literal["train", "send", "both"]
"""What a round of a search asks of sites: reports of what they trained, its weights, or both."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A network of the sequence along the frontier, GM_t."""

    iteration: int
    widths: tuple[int, ...]
    resource: float
    macs: int
    accuracy: float | None  # as sites reported it after its last turn of training


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What the next round is part of, and what is known."""

    phase: Phase
    step: Step
    played: int = 0  # rounds of the run
    iteration: int = 0  # from 1
    turn: int = 1  # of the iteration that comes or goes on, from 1
    turns: int = 0  # of the iteration
    began: int = 0  # candidates that the iteration began with
    widths: tuple[int, ...]  # of the global network
    resource: float  # that it needs
    accuracy: float | None = None  # as sites reported it
    candidates: tuple[Candidate, ...] = ()  # that are left
    groups: tuple[tuple[int, ...], ...] = ()  # of sites
    sites: Mapping[int, SiteFacts]  # by number
    frontier: tuple[Point, ...] = ()
    times: tuple[float, ...] = ()  # ms of each layer of the whole network, where latency counts

    @property
    def asked(self) -> tuple[Candidate, ...]:
        """The networks that the next round is about."""
        if self.phase == "search":
            return self.candidates
        return (Candidate(id=GLOBAL, widths=self.widths, resource=self.resource),)

    def knows(self, site: int, facts: SiteFacts) -> "Progress":
        """The same with what a site has told of its samples."""
        return replace(self, sites={**self.sites, site: facts})

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "sites": {str(i): asdict(s) for i, s in self.sites.items()}}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "Progress":
        """Read back `to_json`."""
        sites = {int(i): _facts(s) for i, s in record["sites"].items()}
        known = {
            "widths": tuple(record["widths"]),
            "candidates": tuple(map(Candidate.from_json, record["candidates"])),
            "groups": tuple(tuple(group) for group in record["groups"]),
            "frontier": tuple(map(_point, record["frontier"])),
            "times": tuple(record["times"]),
            "sites": sites,
        }
        return Progress(**{**record, **known})


def _facts(record: Mapping[str, Any]) -> SiteFacts:
    return SiteFacts(record["samples"], tuple(record["histogram"]))


def _point(record: Mapping[str, Any]) -> Point:
    return Point(**{**record, "widths": tuple(record["widths"])})
