"""What carrying a round costs: seconds and bytes by number of sites, in-process and over Flower.

    python -m benchmarks.engines [--sites 10,100,1000] [--deployed 3] [--rounds 5] [--json]

Sites here compute nothing: a broadcast of 5 kB goes down and a release of 38 kB comes up at once,
so that all seconds are those of the way. "in-process" is the pool of workers (whose sites are not
there, and release nothing), "sockets" Unix sockets to one node of this machine, "simulated"
Flower's simulation engine, "deployed" a SuperLink and a SuperNode a site, each a process of its
own, over TLS on loopback with keys. The first round starts what an engine starts late (workers,
Ray) and is told apart; `seconds` are medians of the rounds after it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.register import link_of, register
from dprbft.engines.deploy.settings import flower_hub
from dprbft.engines.deploy.start import Part, hub_part, site_parts
from dprbft.engines.flower.carrier import FlowerCarrier
from dprbft.engines.flower.hub import free_port
from dprbft.engines.flower.link import Simulated, environment
from dprbft.engines.framed import Carrier, Framed, UnixCarrier
from dprbft.engines.frames import MAX_FRAME, Answer, Request
from dprbft.engines.inprocess import InProcess
from dprbft.engines.node.call import receive, send
from dprbft.engines.protocol import Engine
from dprbft.messages import Code, Verb
from dprbft.paths import SitePaths

BROADCAST, RELEASE = bytes(5_000), bytes(38_000)


@dataclass
class Counted:
    """A carrier that counts the bytes of frames."""

    carrier: Carrier
    down: int = 0
    up: int = 0

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        """As `Carrier.carry`."""
        self.down += sum(map(len, frames.values()))
        for name, answer in self.carrier.carry(frames, seconds, cap):
            self.up += len(answer)
            yield name, answer


@dataclass(frozen=True)
class Way:
    """One way to the sites, timed."""

    engine: str
    sites: int
    start: float  # seconds until it could be asked
    rounds: list[float] = field(default_factory=list)
    answered: int = 0
    bytes_down: int = 0  # a round and site
    bytes_up: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """What is printed."""
        later = self.rounds[1:] or self.rounds
        return {
            "engine": self.engine,
            "sites": self.sites,
            "start_seconds": round(self.start, 2),
            "first_round_seconds": round(self.rounds[0], 3),
            "seconds": round(statistics.median(later), 4),
            "slowest_seconds": round(max(later), 4),
            "seconds_a_site": round(statistics.median(later) / self.sites, 5),
            "answered": self.answered,
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
        }


def answering(path: Path) -> None:
    """Answer at a socket, as a node would that has nothing to compute."""
    door = socket(AF_UNIX, SOCK_STREAM)
    door.bind(str(path))
    door.listen(1024)

    def one(link: socket) -> None:
        with link:
            frame = receive(link, MAX_FRAME)
            if frame:
                request = Request.from_bytes(frame)
                about = (request.run, request.site, request.verb, request.nonce)
                send(link, Answer(*about, int(Code.DONE), RELEASE).to_bytes())

    def accept() -> None:
        while True:
            threading.Thread(target=one, args=(door.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def timed(name: str, names: Sequence[str], rounds: int, up: Callable[[], Any]) -> Way:
    """Rounds over an engine of frames."""
    began = time.perf_counter()
    with up() as carrier:
        counted = Counted(carrier)
        way = Way(name, len(names), time.perf_counter() - began)
        engine = Framed(carrier=counted, run="run", names=names, seconds=300.0)
        answered = _rounds(engine, way, rounds)
    calls = rounds * len(names)
    return Way(
        name, way.sites, way.start, way.rounds, answered, counted.down // calls, counted.up // calls
    )


def _rounds(engine: Engine, way: Way, rounds: int) -> int:
    """Ask all sites so many times; returns how many answered the last time."""
    answered = 0
    for _ in range(rounds):
        began = time.perf_counter()
        replies = list(engine.call(Verb.ROUND, dict.fromkeys(range(way.sites), BROADCAST)))
        way.rounds.append(time.perf_counter() - began)
        answered = sum(reply.code is Code.DONE for _, reply in replies)
    return answered


def in_process(sites: int, rounds: int, workers: int) -> Way:
    """The pool: sites that are not there, of which a worker says just that."""
    began = time.perf_counter()
    site_paths = [SitePaths(i, f"s{i}", Path("/nonexistent"), "run") for i in range(sites)]
    with InProcess(site_paths, workers) as engine:
        way = Way("in-process", sites, time.perf_counter() - began)
        _rounds(engine, way, rounds)
    return Way(way.engine, sites, way.start, way.rounds, sites, len(BROADCAST), 0)


def sockets(names: Sequence[str], path: Path) -> Any:
    """Frames straight to a node of this machine."""

    @contextmanager
    def up() -> Iterator[Carrier]:
        yield UnixCarrier(dict.fromkeys(names, path))

    return up


def simulated(names: Sequence[str], path: Path, workers: int) -> Any:
    """Flower's simulation engine."""

    def up() -> FlowerCarrier:
        link = Simulated(names, path, workers)
        return FlowerCarrier(link, minimum=len(names), patience=300.0)

    return up


def deployed(names: Sequence[str], path: Path, folder: Path) -> Any:
    """A SuperLink, and a SuperNode a site, over TLS."""

    @contextmanager
    def up() -> Iterator[Carrier]:
        out = folder / "deployment"
        make_deployment(out, Deployment(sites=names, port=free_port()))
        hub = flower_hub(out / "hub")
        with ExitStack() as running:
            running.enter_context(_running(hub_part(hub), folder))
            _until_registered(hub)
            for name in names:
                site = out / "sites" / name
                (site / "node.sock").symlink_to(path)
                running.enter_context(_running(site_parts(site)[1], folder))
            carrier = FlowerCarrier(link_of(hub), minimum=len(names), patience=120.0)
            yield running.enter_context(carrier)

    return up


def _until_registered(hub: Any) -> None:
    for left in range(30, -1, -1):
        try:
            return register(hub)
        except Exception:
            if not left:
                raise
            time.sleep(1)


@contextmanager
def _running(part: Part, folder: Path) -> Iterator[None]:
    with (folder / f"{part.name}.log").open("ab") as log:
        process = subprocess.Popen(
            part.command, env=environment(part.flower), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def measure(sites: Sequence[int], deployed_sites: int, rounds: int) -> list[dict[str, Any]]:
    """All ways."""
    result, workers = list[Way](), os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="panas-") as name:
        folder = Path(name)
        path = folder / "node.sock"
        answering(path)
        for n in sites:
            names = [f"s{i}" for i in range(n)]
            result.append(in_process(n, rounds, workers))
            result.append(timed("sockets", names, rounds, sockets(names, path)))
            result.append(timed("simulated", names, rounds, simulated(names, path, workers)))
        if deployed_sites:
            names = [f"s{i}" for i in range(deployed_sites)]
            result.append(timed("deployed", names, rounds, deployed(names, path, folder)))
    return [way.record for way in result]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sites", default="10,100,1000", help="numbers of sites")
    parser.add_argument("--deployed", type=int, default=3, help="sites of the deployment; 0: none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    result = measure([int(n) for n in a.sites.split(",") if n], a.deployed, a.rounds)
    if a.json:
        sys.stdout.write(json.dumps({"cores": os.cpu_count(), "ways": result}) + "\n")
        return
    for way in result:
        sys.stdout.write(
            f"{way['engine']:>10}, {way['sites']:>4} sites: {way['seconds']:.3f} s a round, at "
            f"most {way['slowest_seconds']:.3f} s (first {way['first_round_seconds']:.1f} s, start "
            f"{way['start_seconds']:.1f} s); {way['bytes_down']} bytes down and "
            f"{way['bytes_up']} up a site\n"
        )


if __name__ == "__main__":
    main()
