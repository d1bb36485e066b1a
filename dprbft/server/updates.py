"""The server of methods that exchange updates: order, receive, answer; resumable after any message.

It keeps its memory after each whole round (`memory.safetensors`), and of the round that goes on
every update as it arrived. Updates of finished rounds are deleted: their digests stay in
`rounds.jsonl`, and the folder does not grow with the rounds.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import Engine, SiteRefusal, check_reply
from dprbft.messages import Code, Reply, Verb
from dprbft.paths import latest_file, round_folder
from dprbft.server.events import Listener, RoundEnded, SiteAbsent, SiteReady, SiteTrained
from dprbft.server.records import RoundRecord, read_rounds, write_rounds
from dprbft.server.refusals import expected
from dprbft.updates import Bundle, Order, Update
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import read_bytes, read_json, write_bytes, write_json

MEMORY, UPDATE = "memory.safetensors", "site-{:04d}.safetensors"
RESULT = "result.json"  # bytes of what all sites were sent at last


@dataclass(frozen=True, kw_only=True)
class ServerHalf:
    """What a method's server does, with its public side bound."""

    start: Callable[[], Bundle]
    orders: Callable[[Bundle, Sequence[int], int], Mapping[int, Bundle]]
    round: Callable[[Bundle, Iterable[Update], np.random.Generator], Bundle]


@dataclass(frozen=True, kw_only=True)
class UpdateServer:
    """What all rounds of a run share."""

    folder: Path
    config: RunConfig
    sites: frozenset[int]  # that take part
    engine: Engine
    half: ServerHalf
    listener: Listener
    minimum: int = 1  # sites that a round needs, of those that are chosen for it

    def train(self) -> None:
        """Go on from the last whole round to the last, then send the result to all sites.

        Raises:
            SiteRefusal: if a site cannot pay for its rounds (nobody was charged for any), or too
                few of a round's sites are there.

        """
        if not latest_file(self.folder).exists():
            self._end(0, self.half.start(), ())
        begun = int(read_json(latest_file(self.folder))["round"])
        write_rounds(self.folder, [r for r in read_rounds(self.folder) if r.round <= begun])
        ready, schedule = self._ready(), participants(self.config)
        for number, chosen in enumerate(schedule[begun:], start=begun + 1):
            if self._memory(number - 1).record.get("done"):
                break
            self._round(number, ready.intersection(chosen), chosen)
            self.listener(RoundEnded(number, len(schedule), tuple(chosen)))
        self._finish(ready)

    def _ready(self) -> frozenset[int]:
        result, refused = set[int](), dict[int, Reply]()
        for site, reply in self.engine.call(Verb.READY, dict.fromkeys(sorted(self.sites), b"")):
            if reply.code is Code.ABSENT:
                self.listener(SiteAbsent(site, 0))
            elif reply.code is not Code.DONE:
                refused[site] = reply
            else:
                result.add(site)
                self.listener(SiteReady(site))
        for site, reply in sorted(refused.items()):
            check_reply(site, reply)
        if not result:
            raise SiteRefusal(min(self.sites), Code.ABSENT)
        return frozenset(result)

    def _round(self, number: int, asked: frozenset[int], chosen: Sequence[int]) -> None:
        began, memory = time.perf_counter(), self._memory(number - 1)
        arrived = {i for i in chosen if self._path(number, i).exists()}
        orders = self._orders(memory, sorted(asked | arrived), number)
        self._receive(number, {i: orders[i] for i in sorted(asked - arrived)})
        there = [i for i in sorted(chosen) if self._path(number, i).exists()]
        if len(there) < min(self.minimum, len(chosen)):
            raise SiteRefusal(min({*chosen} - {*there}), Code.ABSENT)
        digests, up = self._digests(number, there)
        rng = stream(self.config.seed, "server", number)
        answer = self.half.round(memory, self._updates(number, there), rng)
        record = RoundRecord(
            round=number,
            seconds=time.perf_counter() - began,
            up_bytes=up,
            down_bytes=sum(len(orders[i]) for i in there),
            sites=tuple(there),
            absent=tuple(sorted({*chosen} - {*there})),
            releases=digests,
            broadcast=_digest(b"".join(orders[i] for i in there)),
        )
        self._end(number, answer, (record,))

    def _receive(self, number: int, orders: Mapping[int, bytes]) -> None:
        """Keep each update as it comes, an empty file for a site that sends nothing."""
        for site, reply in self.engine.call(Verb.ROUND, orders):
            if reply.code is Code.ABSENT:
                self.listener(SiteAbsent(site, number))
                continue
            check_reply(site, reply)
            try:
                _check_update(reply.release, site, number)
            except BadInput as e:  # costs this site alone the round
                self.listener(SiteAbsent(site, number, expected(e)))
                continue
            write_bytes(self._path(number, site), reply.release)
            self.listener(SiteTrained(site, number))

    def _finish(self, sites: frozenset[int]) -> None:
        """Send the result to all sites, and count its bytes with those of the last round."""
        last = int(read_json(latest_file(self.folder))["round"])
        orders, down = self._orders(self._memory(last), sorted(sites), last + 1), 0
        for site, reply in self.engine.call(Verb.FINISH, orders):
            if reply.code is Code.ABSENT:
                self.listener(SiteAbsent(site, last))
            else:
                check_reply(site, reply)
                down += len(orders[site])
        write_json(self.folder / RESULT, {"round": last, "down_bytes": down})

    def _orders(self, memory: Bundle, sites: Sequence[int], number: int) -> dict[int, bytes]:
        """The bytes for each site; one encoding for all that are sent the same."""
        encoded, result = dict[int, bytes](), dict[int, bytes]()
        for site, bundle in self.half.orders(memory, sites, number).items():
            if id(bundle) not in encoded:
                encoded[id(bundle)] = Order(number, bundle).to_bytes()
            result[site] = encoded[id(bundle)]
        return result

    def _updates(self, number: int, sites: Sequence[int]) -> Iterator[Update]:
        """What sites sent in a round, one at a time; nothing of those that sent nothing."""
        for site in sites:
            content = read_bytes(self._path(number, site))
            if content:
                yield Update.from_bytes(content)

    def _digests(self, number: int, sites: Sequence[int]) -> tuple[dict[int, str], int]:
        digests, size = dict[int, str](), 0
        for site in sites:
            content = read_bytes(self._path(number, site))
            if content:
                digests[site] = _digest(content)
                size += len(content)
        return digests, size

    def _memory(self, number: int) -> Bundle:
        return Bundle.read(round_folder(self.folder, number) / MEMORY)

    def _end(self, number: int, memory: Bundle, records: Sequence[RoundRecord]) -> None:
        """Keep a whole round; then what only the rounds before it needed goes."""
        memory.write(round_folder(self.folder, number) / MEMORY)
        known = [r for r in read_rounds(self.folder) if r.round < number]
        write_rounds(self.folder, [*known, *records])
        write_json(latest_file(self.folder), {"round": number})
        for old in range(max(0, number - 2), number):
            folder = round_folder(self.folder, old)
            for path in folder.glob("*"):
                path.unlink()
            if folder.is_dir():
                folder.rmdir()
        for path in round_folder(self.folder, number).glob(UPDATE.split("{")[0] + "*"):
            path.unlink()

    def _path(self, number: int, site: int) -> Path:
        return round_folder(self.folder, number) / UPDATE.format(site)


def result_bytes(folder: Path) -> int:
    """Bytes of the result that a server has sent to all sites; 0 where it sent none."""
    path = folder / RESULT
    return int(read_json(path)["down_bytes"]) if path.exists() else 0


def _check_update(content: bytes, site: int, round: int) -> None:
    """BadInput unless these are no bytes, or an update of this site in this round."""
    if content:
        update = Update.from_bytes(content)
        if (update.site, update.round) != (site, round):
            raise BadInput(
                f"expected an update of site {site} in round {round}, got one of site "
                f"{update.site} in round {update.round}"
            )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
