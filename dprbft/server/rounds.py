"""Algorithm 2 at the server: broadcast, receive, answer; resumable after any message.

The server knows sites by number, and of each what it released. Nobody is charged for a round that
somebody cannot pay for: before the first, every site says whether its budget pays for its rounds.
Only participants are asked in a round. A site that does not answer is left out of that round.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import Engine, SiteRefusal, check_reply
from dprbft.messages import Broadcast, Code, Release, Reply, Verb
from dprbft.server.checkpoint import ServerFiles
from dprbft.server.events import Listener, RoundEnded, SiteAbsent, SiteReady, SiteTrained
from dprbft.server.records import RoundRecord
from panas.runtime.seeds import stream

Answer = Callable[
    [RunConfig, Iterable[Release], Broadcast, int, np.random.Generator],
    Broadcast,
]
"""A method's server half: a round's releases, read one at a time, to the next broadcast."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """What all rounds of a run share."""

    files: ServerFiles
    config: RunConfig
    engine: Engine
    answer: Answer
    first: Broadcast  # the head before round 1
    listener: Listener

    def train(self) -> None:
        """Go on from the last whole round to the last.

        Raises:
            SiteRefusal: if a site cannot pay for the next round (nobody was charged for it), or
                all of a round's sites are absent.

        """
        if self.files.latest() is None:
            self.files.begin(self.first)
        self.files.repair()
        schedule = participants(self.config)
        begun = self.files.latest() or 0
        if begun == 0:
            self._check(range(self.config.federation.clients), 1, tell=True)
        for round, chosen in enumerate(schedule[begun:], start=begun + 1):
            if round > 1 and self.config.training.noise_multiplier is not None:
                self._check(chosen, round)
            self._round(round, chosen)
            self.listener(RoundEnded(round, len(schedule), tuple(chosen)))

    def _check(self, sites: Iterable[int], round: int, *, tell: bool = False) -> None:
        """Stop before anyone is charged if a site's budget is too small for what it plans."""
        content = self.files.broadcast(round - 1).to_bytes()
        refused: dict[int, Reply] = {}
        for site, reply in self.engine.call(Verb.READY, dict.fromkeys(sites, content)):
            if reply.code is not Code.DONE:
                refused[site] = reply
            elif tell:
                self.listener(SiteReady(site))
        for site, reply in sorted(refused.items()):
            check_reply(site, reply)

    def _round(self, round: int, chosen: Sequence[int]) -> None:
        began = time.perf_counter()
        absent = self._receive(round, chosen)
        there = [site for site in chosen if site not in absent]
        if not there:
            raise SiteRefusal(chosen[0], Code.ABSENT)
        if not self.files.answered(round):
            previous = self.files.broadcast(round - 1)
            rng = stream(self.config.seed, "server", round)
            releases = self.files.releases(round, there)
            answer = self.answer(self.config, releases, previous, round, rng)
            self.files.put_answer(answer, absent)
        content = self.files.broadcast(round).to_bytes()
        for site, reply in self.engine.call(Verb.FINISH, dict.fromkeys(there, content)):
            if reply.code is Code.ABSENT:
                self.listener(SiteAbsent(site, round))
            else:
                check_reply(site, reply)
        digests, up = self._digests(round, there)
        self.files.end(
            RoundRecord(
                round=round,
                seconds=time.perf_counter() - began,
                up_bytes=up,
                down_bytes=_down_bytes(self.config, round, len(content)),
                sites=tuple(there),
                absent=tuple(absent),
                releases=digests,
                broadcast=hashlib.sha256(content).hexdigest(),
            )
        )

    def _receive(self, round: int, chosen: Sequence[int]) -> list[int]:
        """Keep each site's release as it comes; returns the sites that did not answer."""
        if self.files.answered(round):
            return self.files.absent(round)
        content, absent = self.files.broadcast(round - 1).to_bytes(), list[int]()
        missing = [site for site in chosen if not self.files.has_release(round, site)]
        for site, reply in self.engine.call(Verb.ROUND, dict.fromkeys(missing, content)):
            if reply.code is Code.ABSENT:
                absent.append(site)
                self.listener(SiteAbsent(site, round))
                continue
            check_reply(site, reply)
            if reply.release:
                self.files.put_release(round, site, reply.release)
            self.listener(SiteTrained(site, round))
        return sorted(absent)

    def _digests(self, round: int, sites: Sequence[int]) -> tuple[Mapping[int, str], int]:
        """SHA-256 of each release of a round, and the bytes of all."""
        digests, size = dict[int, str](), 0
        for release in self.files.releases(round, sites):
            content = release.to_bytes()
            digests[release.client] = hashlib.sha256(content).hexdigest()
            size += len(content)
        return digests, size


def _down_bytes(config: RunConfig, round: int, size: int) -> int:
    """Bytes that the server, if there is one, sent to all clients.

    The simplex head is known to all; a random one is sent once before round 1. An answer is sent
    where something was released.
    """
    f = config.federation
    if not f.has_server:
        return 0
    heads = (round == 1 and f.head_init == "random") + (config.sent is not None)
    return heads * size * f.clients
