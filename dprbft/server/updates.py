"""The server of methods that exchange updates: order, receive, answer; resumable after any message.

It keeps its memory after each whole round (`memory.safetensors`), and of the round that goes on
every update as it arrived. Updates of finished rounds are deleted: their digests stay in
`rounds.jsonl`, and the folder does not grow with the rounds.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dprbft.config.schema import RunConfig, participants
from dprbft.engines.protocol import Engine, SiteRefusal
from dprbft.messages import Code, digest_of
from dprbft.paths import latest_file, round_folder
from dprbft.server.calls import ready_sites, receive, send_answers
from dprbft.server.events import Listener, RoundBegun, RoundEnded
from dprbft.server.records import RoundRecord, read_rounds, write_rounds
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

        SiteRefusal if a site cannot pay for its rounds (nobody was charged for any), or too few of
        a round's sites are there.
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
        messages = dict.fromkeys(sorted(self.sites), b"")
        ready = ready_sites(self.engine, self.listener, messages, 0)
        if not ready:
            raise SiteRefusal(min(self.sites), Code.ABSENT)
        return ready

    def _round(self, number: int, asked: frozenset[int], chosen: Sequence[int]) -> None:
        self.listener(RoundBegun(number))
        began, memory = time.perf_counter(), self._memory(number - 1)
        arrived = {i for i in chosen if self._path(number, i).exists()}
        orders = self._orders(memory, sorted(asked | arrived), number)
        waiting = {i: orders[i] for i in sorted(asked - arrived)}
        receive(self.engine, self.listener, waiting, number, partial(self._keep, number))
        present = [i for i in sorted(chosen) if self._path(number, i).exists()]
        if len(present) < min(self.minimum, len(chosen)):
            raise SiteRefusal(min({*chosen} - {*present}), Code.ABSENT)
        sent = {i: (digest_of(c), len(c)) for i, c in self._contents(number, present)}
        rng = stream(self.config.seed, "server", number)
        updates = (Update.from_bytes(c) for _, c in self._contents(number, present))
        answer = self.half.round(memory, updates, rng)
        record = RoundRecord(
            round=number,
            seconds=time.perf_counter() - began,
            up_bytes=sum(size for _, size in sent.values()),
            down_bytes=sum(len(orders[i]) for i in present),
            sites=tuple(present),
            absent=tuple(sorted({*chosen} - {*present})),
            releases={i: digest for i, (digest, _) in sent.items()},
            broadcast=digest_of(b"".join(orders[i] for i in present)),
        )
        self._end(number, answer, (record,))

    def _finish(self, sites: frozenset[int]) -> None:
        """Send the result to all sites, and count its bytes with those of the last round."""
        last = int(read_json(latest_file(self.folder))["round"])
        orders = self._orders(self._memory(last), sorted(sites), last + 1)
        down = sum(len(orders[i]) for i in send_answers(self.engine, self.listener, orders, last))
        write_json(self.folder / RESULT, {"round": last, "down_bytes": down})

    def _orders(self, memory: Bundle, sites: Sequence[int], number: int) -> dict[int, bytes]:
        """The bytes for each site; one encoding for all that are sent the same."""
        encoded, result = dict[int, bytes](), dict[int, bytes]()
        for site, bundle in self.half.orders(memory, sites, number).items():
            if id(bundle) not in encoded:
                encoded[id(bundle)] = Order(number, bundle).to_bytes()
            result[site] = encoded[id(bundle)]
        return result

    def _contents(self, number: int, sites: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """What sites sent in a round, one at a time; nothing of those that sent nothing."""
        for site in sites:
            if content := read_bytes(self._path(number, site)):
                yield site, content

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

    def _keep(self, number: int, site: int, content: bytes) -> None:
        """Keep an update of this site in this round, or an empty file if it sends nothing."""
        if content:
            update = Update.from_bytes(content)
            if (update.site, update.round) != (site, number):
                raise BadInput(
                    f"expected an update of site {site} in round {number}, got one of site "
                    f"{update.site} in round {update.round}"
                )
        write_bytes(self._path(number, site), content)

    def _path(self, number: int, site: int) -> Path:
        return round_folder(self.folder, number) / UPDATE.format(site)


def result_bytes(folder: Path) -> int:
    """Bytes of the result that a server has sent to all sites; 0 where it sent none."""
    path = folder / RESULT
    return int(read_json(path)["down_bytes"]) if path.exists() else 0
