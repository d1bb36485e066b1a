"""Algorithm 2 at the server: broadcast, receive, answer; resumable after any message.

The server knows sites by number, and of each what it released. Nobody is charged for a round that
somebody cannot pay for: before its first, every site says whether its budget pays for its rounds.
Only participants are asked in a round. A site that does not answer is left out of that round.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import Engine, SiteRefusal
from dprbft.messages import Broadcast, Code, Release, digest_of
from dprbft.server.calls import ready_sites, receive, send_answers
from dprbft.server.checkpoint import ServerFiles
from dprbft.server.events import Listener, RoundBegun, RoundEnded
from dprbft.server.records import RoundRecord, read_rounds
from panas.runtime.seeds import stream

Answer = Callable[[Iterable[Release], Broadcast, int, np.random.Generator], Broadcast]
"""A method's server half: a round's releases, read one at a time, to the next broadcast."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """What all rounds of a run share."""

    files: ServerFiles
    config: RunConfig
    sites: frozenset[int]  # that take part; rounds are made without the others
    engine: Engine
    answer: Answer
    first: Broadcast  # the head before round 1
    listener: Listener
    minimum: int = 1  # sites that a round needs, of those that are chosen for it

    def train(self) -> None:
        """Go on from the last whole round to the last.

        SiteRefusal if a site cannot pay for the next round (nobody was charged for it), or too few
        of a round's sites are there.
        """
        if self.files.latest() is None:
            self.files.begin(self.first)
        self.files.repair()
        schedule = participants(self.config)
        begun = self.files.latest() or 0
        ready = self._begin()
        for round, chosen in enumerate(schedule[begun:], start=begun + 1):
            asked = self.sites.intersection(chosen)
            again = round > 1 and self.config.training.noise_multiplier is not None
            unsure = asked if again else asked - ready
            sure = self._check(unsure, round)
            ready |= sure
            self._round(round, chosen, asked - unsure | sure)
            self.listener(RoundEnded(round, len(schedule), tuple(chosen)))

    def _begin(self) -> frozenset[int]:
        """The sites that are ready: those that took part before, and of the others who says so."""
        sites = {site for record in read_rounds(self.files.folder) for site in record.sites}
        ready = self._check(self.sites - sites, 1, first=True) | (self.sites & sites)
        if not ready:
            raise SiteRefusal(min(self.sites), Code.ABSENT)
        return ready

    def _check(self, sites: frozenset[int], round: int, *, first: bool = False) -> frozenset[int]:
        """The sites that are there; stop before anyone is charged if the budget of one of them is
        too small for what it plans."""
        content = self.files.broadcast(round - 1).to_bytes()
        messages = dict.fromkeys(sorted(sites), content)
        return ready_sites(self.engine, self.listener, messages, 0 if first else round)

    def _round(self, round: int, chosen: Sequence[int], asked: frozenset[int]) -> None:
        self.listener(RoundBegun(round))
        began = time.perf_counter()
        absent = self._receive(round, chosen, asked)
        present = [site for site in chosen if site not in absent]
        if len(present) < min(self.minimum, len(chosen)):
            raise SiteRefusal(absent[0], Code.ABSENT)
        if not self.files.answered(round):
            previous = self.files.broadcast(round - 1)
            rng = stream(self.config.seed, "server", round)
            releases = self.files.releases(round, present)
            answer = self.answer(releases, previous, round, rng)
            self.files.put_answer(answer, absent)
        content = self.files.broadcast(round).to_bytes()
        send_answers(self.engine, self.listener, dict.fromkeys(present, content), round)
        digests, up = self._digests(round, present)
        self.files.end(
            RoundRecord(
                round=round,
                seconds=time.perf_counter() - began,
                up_bytes=up,
                down_bytes=_down_bytes(self.config, round, len(content)),
                sites=tuple(present),
                absent=tuple(absent),
                releases=digests,
                broadcast=digest_of(content),
            )
        )

    def _receive(self, round: int, chosen: Sequence[int], asked: frozenset[int]) -> list[int]:
        """Keep each site's release as it comes; returns the sites that did not answer, with those
        of the round that are not asked."""
        if self.files.answered(round):
            return self.files.absent(round)
        content = self.files.broadcast(round - 1).to_bytes()
        missing = [site for site in chosen if not self.files.has_release(round, site)]
        absent = [site for site in missing if site not in asked]
        to_ask = dict.fromkeys((site for site in missing if site in asked), content)

        def keep(site: int, release: bytes) -> None:
            if release:
                self.files.put_release(round, site, release)

        return sorted([*absent, *receive(self.engine, self.listener, to_ask, round, keep)])

    def _digests(self, round: int, sites: Sequence[int]) -> tuple[Mapping[int, str], int]:
        digests, size = dict[int, str](), 0
        for release in self.files.releases(round, sites):
            content = release.to_bytes()
            digests[release.site] = digest_of(content)
            size += len(content)
        return digests, size


def _down_bytes(config: RunConfig, round: int, size: int) -> int:
    """Bytes that the server, if there is one, sent to all sites.

    The simplex head is known to all; a random one is sent once before round 1. An answer is sent
    where something was released.
    """
    f = config.federation
    heads = (round == 1 and f.head_init == "random") + (config.sent is not None)
    return {"nothing": 0}.get(f.family.sends, heads) * size * f.clients
