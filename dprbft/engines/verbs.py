"""What an engine runs for one client: pure functions of small, serialisable inputs.

A task names its client, whose samples the worker loads itself; training returns bytes.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.heads import to_broadcast
from dprbft.messages import Broadcast
from dprbft.methods import method_named
from dprbft.paths import checkpoint_folder
from dprbft.site import search as architecture
from dprbft.site import tuning
from dprbft.site.plan import refusal
from dprbft.site.records import SearchRecord, TuningRecord
from dprbft.site.round import keep_best
from dprbft.site.site import Client, build_client
from dprbft.site.state import State, weights
from panas.runtime.seeds import stream, torch_generator
from panas.training.warm_start import warm_started


@dataclass(frozen=True)
class Task:
    """Which client, of which run, where to compute, and with how many processes of its own."""

    config: str
    run: Path
    client: int
    device: str
    workers: int = 1

    def load(self) -> Client:
        """The client."""
        return build_client(_parse(self.config), self.client, self.run, self.device)


@lru_cache(maxsize=2)
def _parse(text: str) -> RunConfig:
    return RunConfig.model_validate_json(text)


def search(task: Task) -> SearchRecord:
    """A client's architecture."""
    return architecture.search(task.load(), task.run, task.workers)


def tune(task: Task) -> TuningRecord:
    """A client's DP-SGD settings."""
    return tuning.tune(task.load(), task.run, task.workers)


def start(task: Task) -> bytes:
    """A client's state before round 1: warm-started on public samples, plan calibrated."""
    client = task.load()
    found = SearchRecord.read(task.run, client.id)
    begin = client.warm_start(found.genome)
    bottom, head = warm_started(begin, client.public, seed=client.config.seed, client=client.id)
    b, h = weights(bottom), weights(head)
    state = State(
        bottom=b,
        head=h,
        kept_bottom=b,
        kept_head=h,
        genome=found.genome,
        settings=TuningRecord.read(task.run, client.id).settings,
        histogram=tuple(found.histogram) if found.histogram else None,
    )
    return keep_best(client, state, bottom, [(0.0, head)], 0).to_bytes()


@dataclass(frozen=True)
class RoundTask:
    """A client's task in one round, with what it needs as bytes."""

    task: Task
    round: int
    state: bytes
    broadcast: bytes

    def load(self) -> tuple[Client, State, Broadcast]:
        """Client, state and broadcast."""
        client = self.task.load()
        state = State.from_bytes(self.state, checkpoint_folder(self.task.run))
        b = client.spec
        return client, state, Broadcast.from_bytes(self.broadcast, width=b.width, classes=b.classes)


def check_budget(work: RoundTask) -> str | None:
    """Why a participant cannot pay for the round and all that it plans after it, if so."""
    client, state, _ = work.load()
    return refusal(client, state, work.round)


def local_round(work: RoundTask) -> tuple[bytes, bytes | None]:
    """A participant's half of a round: its new state, and the bytes of its release, if any."""
    client, state, broadcast = work.load()
    method = method_named(client.config.federation.method)
    state, message = method.client_round(client, state, broadcast, work.round)
    return state.to_bytes(), message.to_bytes() if message else None


def finish_round(work: RoundTask) -> bytes:
    """What a participant makes of the server's answer: its new state."""
    client, state, broadcast = work.load()
    method = method_named(client.config.federation.method)
    return method.client_finish(client, state, broadcast, work.round).to_bytes()


def initial_broadcast(task: Task) -> bytes:
    """The head before round 1, which all clients can also compute by themselves."""
    client = task.load()
    head = client.spec.head(torch_generator(stream(client.config.seed, "head")))
    return to_broadcast(head, 0).to_bytes()
