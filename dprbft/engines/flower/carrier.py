"""Carries frames between a hub and its sites through Flower, which sees bytes.

A `FlowerCarrier` starts one Flower run (`flwr run`) of the relays in `app`, opens a Unix
socket in the SuperLink's folder, to which the hub's relay connects, and hands it frames. Which node
is which site, the keys say that the SuperLink has registered: nobody is asked. A run of Flower
keeps nothing: after a death a new one goes on, from what hub and sites have on disk.

This module imports no part of Flower.
"""

import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dprbft.engines.flower.app.packets import Packet, receive, send
from dprbft.engines.flower.link import Link, end_run, start_run, state_of
from dprbft.engines.frames import MAX_FRAME
from dprbft.engines.node.call import bound
from panas.runtime.errors import BadInput, PanasError

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


WHY = {
    "silent": "its node does not answer; start it (panas node)",
    "late": "its node has not answered in time",
    "failed": "its relay has failed; see what it wrote at the site",
    "lost": "Flower did not take the message; see the hub's log, and go on with --resume",
    "large": "its answer is larger than what it was asked allows, and was not taken",
    "malformed": "its answer is none of a relay's",
    # Flower's own codes (`flwr.common.constant.ErrorCode`).
    "error 3": "its connection ended while it sent its answer; see that the site runs",
    "error 4": "its answer came too late; give the sites a longer deadline (hub.toml)",
    "error 5": "its relay has gone, or was ended; start the site again (panas deploy start)",
}
"""What became of a site that has not answered, and what to do."""
BAD = ("large", "malformed")
"""Of these, those that say that the site has sent what is no answer."""


def why(state: str) -> str:
    """What a state of a job means, as the hub's relay or Flower names it."""
    if state.startswith("error ") and state not in WHY:
        return f"Flower did not carry the message (its code {state.removeprefix('error ')})"
    return WHY.get(state, WHY["malformed"])


LONGEST = 12 * 3600.0
"""Seconds for a job without a deadline: as long as Flower keeps a message."""
CONNECT = 60.0
"""Seconds in which Flower must start a run."""
TICK = 0.2
"""Seconds between looks at what is due."""
KNOCK = 5.0
"""Seconds between looks at a run that has not connected."""
REMEMBERED = 10_000
"""Jobs whose answers may still come after the call, to be handed on with their sites."""


class FlowerCarrier:
    """A `Carrier` over a Flower run; a context manager.

    Args:
        link: to Flower's server.
        minimum: sites that must be connected before it carries anything, at least 1.
        patience: seconds that it waits for all of them.
        tell: hears one line about each site that did not answer, and why.
    """

    def __init__(
        self,
        link: Link,
        *,
        minimum: int = 1,
        patience: float = 60.0,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._link, self._minimum, self._patience, self._tell = link, minimum, patience, tell
        self._number = itertools.count()
        self._late = dict[int, str]()  # sites by jobs that no call waits for any more
        self._nodes = dict[str, int]()  # of connected sites
        self._since = dict[int, str]()  # when a node has connected
        self._relay: socket.socket | None = None
        self._packets: queue.Queue[Packet | None] = queue.Queue()
        self._run = ""

    def __enter__(self) -> "FlowerCarrier":
        try:
            self._link.open()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop()
        self._link.close()

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int = MAX_FRAME
    ) -> Iterator[tuple[str, bytes]]:
        """Hand each site its frame; yields (site, answer) as answers come, until the deadline.

        A site that sends more than `cap` bytes, or what is no answer, yields no bytes. An answer to
        an earlier call, which that no longer waited for, is yielded too: whoever asks knows its
        requests. PanasError if Flower does not run, and cannot be started.

        Args:
            frames: what each site is sent, by its name.
            seconds: until the deadline; None: `LONGEST`.
            cap: bytes of the largest answer; the hub's door reads no larger one.
        """
        if self._relay is None:
            self._stop()
            self._start()
        now = time.monotonic()
        until = now + (LONGEST if seconds is None else seconds)
        call = Call(dict(frames), until, cap, seen=dict.fromkeys(frames, now))
        try:
            yield from self._carry(call, seconds)
        finally:
            self._late.update({number: job.site for number, job in call.jobs.items()})
            for number in list(self._late)[:-REMEMBERED]:
                del self._late[number]

    def _carry(self, call: Call, seconds: float | None) -> Iterator[tuple[str, bytes]]:
        while call.left():
            call.take_back({name: self._since[node] for name, node in self._nodes.items()})
            self._hand_out(call)
            for name in call.away(self._nodes):
                self._tell(f"site {name} is not connected; going on without it")
            packet = self._next(min(call.until - time.monotonic(), TICK))
            if self._relay is None:
                if not self._link.is_up():
                    raise PanasError(
                        "expected the hub's server to go on, and it has stopped; start it again, "
                        f"then go on with --resume; {self._link.log}"
                    )
                self._tell("Flower's ServerApp has ended; going on without what it was asked")
                return
            if packet:
                yield from self._answer(call, packet)
            if time.monotonic() > call.until:
                for name in call.left():
                    self._tell(f"site {name} has not answered in {seconds:g} s")
                return

    def _answer(self, call: Call, packet: Packet) -> Iterator[tuple[str, bytes]]:
        """What a packet answers, to this call or an earlier one."""
        state, number = str(packet[0].get("state")), packet[0].get("job", -1)
        late, job = self._late.pop(number, None), call.jobs.pop(number, None)
        site = job.site if job else None
        if state == "answered" and (site or late):
            yield site or late or "", packet[1]
        elif site:
            self._tell(f"site {site}: {why(state)}")
            if state in BAD:
                yield site, b""

    def _hand_out(self, call: Call) -> None:
        """Send the frames of those sites that are connected."""
        for name in [name for name in call.frames if name in self._nodes]:
            node, number = self._nodes[name], next(self._number)
            job = Job(name, call.frames.pop(name), self._since[node])
            call.jobs[number] = job
            left = max(call.until - time.monotonic(), 0.0)
            about = {"job": number, "node": node, "seconds": left, "most": call.cap}
            try:
                if self._relay is not None:
                    send(self._relay, about, job.frame)
            except OSError:
                self._lost()

    def _next(self, seconds: float) -> Packet | None:
        """What the relay says next, within some seconds; what it says of nodes is noted."""
        try:
            packet = self._packets.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None
        if packet is None:
            self._lost()
        elif "nodes" in packet[0]:
            nodes = packet[0]["nodes"]
            self._since = {node: since for node, _, since in nodes}
            self._nodes = self._link.sites({key: node for node, key, _ in nodes})
        return packet

    def _start(self) -> None:
        """Start a Flower run and wait for its relay, and for sites."""
        self._packets, self._nodes = queue.Queue(), {}
        path = self._link.home / f"relay-{os.urandom(8).hex()}.sock"
        with bound(path) as door:
            door.listen(1)
            self._run = start_run(self._link, path.name)
            self._relay = self._accept(door)
        threading.Thread(target=_listen, args=(self._relay, self._packets), daemon=True).start()
        self._gather()

    def _accept(self, door: socket.socket) -> socket.socket:
        until = time.monotonic() + CONNECT
        door.settimeout(KNOCK)
        while time.monotonic() < until:
            try:
                return door.accept()[0]
            except TimeoutError:
                if state_of(self._link, self._run).startswith("finished"):
                    break
        state = state_of(self._link, self._run)
        raise PanasError(
            f"expected Flower's ServerApp to connect within {CONNECT:g} s, got none (the run is "
            f"{state}); {self._link.log}"
        )

    def _gather(self) -> None:
        """Wait for all sites, until patience is over; BadInput if they are too few then."""
        until = time.monotonic() + self._patience
        names = self._link.names
        while len(self._nodes) < len(names) and time.monotonic() < until:
            self._next(min(TICK, until - time.monotonic()))
            if self._relay is None:
                raise PanasError(
                    f"expected Flower's ServerApp to go on, and it ended; {self._link.log}"
                )
        missing = sorted(set(names) - set(self._nodes))
        if len(self._nodes) < self._minimum:
            raise BadInput(
                f"expected at least {self._minimum} of {len(names)} sites within "
                f"{self._patience:g} s, got {len(self._nodes)}; start those that miss: "
                f"{', '.join(missing[:20])}"
            )
        for name in missing:
            self._tell(f"site {name} is not connected")

    def _lost(self) -> None:
        if self._relay is not None:
            self._relay.close()
        self._relay, self._nodes = None, {}

    def _stop(self) -> None:
        """End the Flower run, if there is one."""
        relay, self._relay = self._relay, None
        if relay is not None:
            with relay, suppress(OSError, queue.Empty):
                send(relay, {"stop": True})
                while packet := self._packets.get(timeout=5):
                    if name := self._late.pop(packet[0].get("job", -1), ""):
                        self._tell(f"site {name} has answered when nobody waited any more")
        run, self._run = self._run, ""
        if run:
            end_run(self._link, run)


def _listen(relay: socket.socket, packets: "queue.Queue[Packet | None]") -> None:
    while packet := receive(relay):
        packets.put(packet)
    packets.put(None)
