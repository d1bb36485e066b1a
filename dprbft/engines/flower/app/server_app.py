"""The hub's relay: takes jobs from the hub's process, hands them to Flower, and answers back.

It runs beside the SuperLink, connects to a Unix socket in the SuperLink's own folder (FLWR_HOME),
and ends with the hub's process, or when it is told to. It knows nodes by their numbers alone; the
hub's process knows which site's key a node has. Frames are bytes to it.
"""

import os
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from dprbft.engines.flower.app.packets import SOCKET, Packet, end_with_parent, receive, send
from dprbft.engines.flower.door.control import state, whole
from dprbft.engines.node.call import connected
from panas.runtime.errors import PanasError

NAME = r"relay-[0-9a-f]{16}\.sock"
POLL = 0.1
"""Seconds between looks for answers."""
SWEEP, EACH = 5.0, 0.1
"""Seconds between looks at all messages, and more for each of them, where the hub says which
replies have come: that a message will not be answered Flower says at these alone."""
STALLED = 3.0
"""Seconds after which others no longer wait for a reply that has come in part."""
LOOK = 1.0
"""Seconds between looks for nodes."""
GRACE = 20.0
"""Seconds that Flower has to end a run that the hub has left."""
NOT_WHOLE = 3
"""Flower's code for a reply of which parts are missing: its site has died, or sent too much."""
MARGIN = 30.0
"""Seconds that a message outlives its deadline, for clocks that differ."""

app = ServerApp()
T = TypeVar("T")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Relay until the hub's process is gone; ValueError for a name that is no relay's."""
    name = str(context.run_config.get("relay", ""))
    if not re.fullmatch(NAME, name):
        raise ValueError("expected the name of a relay in the run's settings")
    end_with_parent()
    home = Path(os.environ["FLWR_HOME"])
    with connected(home / name) as hub:
        # In a simulation replies do not come through the hub's door.
        simulated = SOCKET in os.environ
        said = None if simulated else partial(whole, home)
        Relay(grid, hub, gone=_end_soon, refused=lambda: _refused(home), whole=said).work()


@dataclass
class Relay:
    """Jobs that are under way between one hub and the nodes."""

    grid: Grid
    hub: socket.socket
    gone: Callable[[], None] = lambda: None  # called when the hub is
    refused: Callable[[], Container[str]] = tuple  # messages whose replies were too large
    whole: Callable[[], Container[str]] | None = None  # messages whose replies have come
    jobs: dict[str, int] = field(default_factory=dict)  # by the message that carries it
    most: dict[int, int] = field(default_factory=dict)  # bytes of an answer, by job
    pulling: "Pulling" = field(init=False)
    nodes: list[list[object]] = field(default_factory=list)  # as the hub was told last
    looked: float = 0.0  # when, on the monotonic clock

    def __post_init__(self) -> None:
        self.pulling = Pulling(self.grid, self.whole)

    def work(self) -> None:
        """Relay until the hub says so, or is gone."""
        waiting: queue.Queue[Packet | None] = queue.Queue()
        threading.Thread(target=_listen, args=(self.hub, waiting, self.gone), daemon=True).start()
        while True:
            self.look()
            packets = _all_of(waiting, POLL)
            if None in packets:
                return
            try:
                self.ask([packet for packet in packets if packet is not None])
                self.tell()
            except BrokenPipeError:
                return

    def look(self) -> None:
        """Tell the hub which nodes are connected, where that has changed."""
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        nodes = sorted(
            [n.node_id, n.public_key.hex(), n.last_activated_at] for n in self.grid.get_nodes()
        )
        if nodes != self.nodes:
            self.nodes = list(nodes)
            send(self.hub, {"nodes": nodes})

    def ask(self, packets: list[Packet]) -> None:
        """Hand jobs to Flower, all at once."""
        messages, jobs = [], []
        for about, frame in packets:
            seconds, most = float(about["seconds"]), int(about["most"])
            self.most[int(about["job"])] = most
            content = ConfigRecord({"frame": frame, "seconds": seconds})
            message = Message(
                RecordDict({"job": content}),
                dst_node_id=int(about["node"]),
                message_type="query",
                ttl=seconds + MARGIN,
                group_id=str(most),  # so that the hub's door knows it, before the answer comes
            )
            messages.append(message)
            jobs.append(int(about["job"]))
        if not messages:
            return
        for job, name in zip(jobs, self.grid.push_messages(messages), strict=True):
            if name:
                self.jobs[name] = job
            else:
                send(self.hub, {"job": job, "state": "lost"})

    def tell(self) -> None:
        """Hand to the hub what has come back."""
        for message in self.pulling.found(list(self.jobs)):
            name = message.metadata.reply_to_message_id
            job = self.jobs.pop(name, None)
            if job is not None:
                became, answer = _outcome(message)
                if became == f"error {NOT_WHOLE}" and name in self.refused():
                    became = "large"
                if len(answer) > self.most.pop(job, 0):
                    became, answer = "large", b""
                send(self.hub, {"job": job, "state": became}, answer)


@dataclass
class Pulling:
    """Looks for replies one by one, in a thread: where a site dies while it sends, Flower waits
    minutes for the rest, and nobody else's reply may wait with it.

    Where the hub says which replies are whole, these are fetched at once, and all others are looked
    at every few seconds alone: hundreds of looks at a time would keep the hub busy.
    """

    grid: Grid
    whole: Callable[[], Container[str]] | None = None
    due: float = 0.0  # when all are to be looked at, on the monotonic clock
    replies: "queue.Queue[Message]" = field(default_factory=queue.Queue)
    stuck: set[str] = field(default_factory=set)  # messages whose replies Flower waits for
    sweep: "Sweep | None" = None

    def found(self, names: list[str]) -> list[Message]:
        """Replies to these messages that have come by now."""
        if (sweep := self.sweep) and not sweep.ended.is_set():
            if time.monotonic() - sweep.since > STALLED:
                self.stuck.add(sweep.name)
                sweep.left = True
            else:
                names = []
        names = [name for name in names if name not in self.stuck]
        if names and self.whole and time.monotonic() < self.due:
            here = self.whole()
            names = [name for name in names if name in here]
        elif names:
            self.due = time.monotonic() + SWEEP + EACH * len(names)
        if names:
            self.sweep = Sweep(self.grid, names, self.replies)
            threading.Thread(target=self.sweep.work, daemon=True).start()
            self.sweep.ended.wait(POLL)
        return _all_now(self.replies)


@dataclass
class Sweep:
    """One look at each of some messages."""

    grid: Grid
    names: list[str]
    replies: "queue.Queue[Message]"
    name: str = ""  # that which is looked at
    since: float = field(default_factory=time.monotonic)
    left: bool = False  # by whom it worked for: another goes on
    ended: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Look at each message, until another sweep has taken over."""
        try:
            for name in self.names:
                if self.left:
                    return
                self.name, self.since = name, time.monotonic()
                for message in self.grid.pull_messages([name]):
                    self.replies.put(message)
        finally:
            self.ended.set()


def _all_now(waiting: "queue.Queue[T]") -> list[T]:
    """All that waits; nobody else takes of it."""
    return [waiting.get_nowait() for _ in range(waiting.qsize())]


def _outcome(message: Message) -> tuple[str, bytes]:
    """What became of a job, and the answer where there is one. A text that came is dropped."""
    if message.has_error():
        return f"error {int(message.error.code)}", b""
    record = message.content.config_records.get("job")
    state, answer = (record.get("state"), record.get("answer")) if record else (None, None)
    if state not in ("answered", "silent", "late", "failed") or not isinstance(answer, bytes):
        return "malformed", b""
    return state, answer


def _refused(home: Path) -> Container[str]:
    """Messages whose replies the hub's door has not let in; none where it does not say."""
    try:
        return tuple(state(home)["refused"])
    except PanasError:
        return ()


def _end_soon() -> None:
    """End this process after a while: Flower still tries to reach a SuperLink that may be gone."""
    time.sleep(GRACE)
    os._exit(0)


def _listen(
    hub: socket.socket, waiting: "queue.Queue[Packet | None]", gone: Callable[[], None]
) -> None:
    """Collect what the hub says, until it is gone."""
    while True:
        packet = receive(hub)
        waiting.put(None if packet is None or packet[0].get("stop") else packet)
        if packet is None or packet[0].get("stop"):
            break
    gone()


def _all_of(waiting: "queue.Queue[Packet | None]", seconds: float) -> list[Packet | None]:
    """All that waits; where nothing does, what comes within some seconds."""
    try:
        return [waiting.get(timeout=seconds), *_all_now(waiting)]
    except queue.Empty:
        return []
