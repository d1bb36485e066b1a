"""One call of a hub to its sites through Flower: what is to be handed out, what is under way."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from dprbft.engines.flower.app.packets import Packet

REJOIN = 15.0
"""Seconds for which a call waits for a site that is not connected."""


@dataclass(frozen=True)
class Job:
    """What a site was asked."""

    site: str
    frame: bytes
    since: str  # when its node had connected


@dataclass
class Call:
    """One call: what is still to be handed out, and what is under way."""

    frames: dict[str, bytes]  # by site
    until: float  # on the monotonic clock
    cap: int  # bytes of an answer, at most
    seen: dict[str, float]  # when a site was connected last
    jobs: dict[int, Job] = field(default_factory=dict)

    def left(self) -> list[str]:
        """Sites that have not answered."""
        return [*self.frames, *(job.site for job in self.jobs.values())]

    def take_back(self, since: Mapping[str, str]) -> None:
        """Let sites be asked anew that have gone, or started again, since they were asked: what
        they held is lost, and a site that did it already answers the same."""
        for number, job in list(self.jobs.items()):
            if since.get(job.site) != job.since:
                self.frames[job.site] = self.jobs.pop(number).frame

    def away(self, nodes: Mapping[str, int]) -> list[str]:
        """Sites that have been gone for too long; the call no longer waits for them."""
        now = time.monotonic()
        self.seen.update((name, now) for name in nodes)
        gone = [name for name in self.frames if now - self.seen[name] > REJOIN]
        for name in gone:
            del self.frames[name]
        return gone

    def answered(self, packet: Packet) -> str | None:
        """The site whose job a packet ends; None if it is none of this call."""
        job = self.jobs.pop(packet[0].get("job", -1), None)
        return job.site if job else None
