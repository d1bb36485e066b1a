"""Algorithm 2: the rounds of a federation, resumable after any of them (`checkpoint`).

Nobody is charged for a round that somebody cannot pay for: before the first, everyone's plan for
the whole run is made, and the run refused if there is none. Only participants work in a round; the
others use its broadcast when they next take part.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dprbft.config.schema import RunConfig, participants
from dprbft.engines import verbs
from dprbft.engines.protocol import Engine
from dprbft.engines.verbs import Task
from dprbft.messages import Broadcast, Release
from dprbft.methods import method_named
from dprbft.paths import last_model_file, model_file, release_file
from dprbft.server.checkpoint import (
    Checkpoint,
    check_since_round,
    is_trained,
    read_checkpoint,
    write_checkpoint,
)
from dprbft.server.events import ClientStarted, ClientTrained, Listener, RoundEnded
from dprbft.server.records import ClientRound, RoundRecord, write_rounds
from dprbft.simulation.federation import load_federation
from dprbft.site.records import TuningRecord
from dprbft.site.site import build_client
from dprbft.site.state import State
from panas.runtime.errors import BudgetExhausted
from panas.runtime.seeds import stream
from panas.runtime.store import write_bytes
from panas.training.checkpoint import save_network


@dataclass(frozen=True)
class TrainingRun:
    """What all rounds of a run share."""

    config: RunConfig
    engine: Engine
    tasks: Sequence[Task]
    listener: Listener

    def jobs(
        self, round: int, chosen: Sequence[int], states: Sequence[bytes], broadcast: bytes
    ) -> list[verbs.RoundTask]:
        """The participants' tasks."""
        return [verbs.RoundTask(self.tasks[i], round, states[i], broadcast) for i in chosen]


def train_federation(
    run: Path, config: RunConfig, engine: Engine, device: str, listener: Listener
) -> None:
    """Train from the last whole round to the end, then write the models.

    BudgetExhausted if a client's budget cannot pay for the next round: nobody was charged for it,
    and the models of the last whole round are written first.
    """
    check_since_round(run)
    text, clients = config.model_dump_json(), config.federation.clients
    tasks = [Task(text, run, i, device) for i in range(clients)]
    training = TrainingRun(config, engine, tasks, listener)
    if not is_trained(run):
        write_checkpoint(run, _start(training))
    last = read_checkpoint(run, clients)
    # A process that died right after its last checkpoint has not written this yet.
    write_rounds(run, last.records)
    schedule = participants(config)
    try:
        for i in range(clients):
            if refused := TuningRecord.read(run, i).refused:
                raise BudgetExhausted(f"client {i}: {refused}")
        if last.round == 0:
            _check_plans(training, last, sorted({i for chosen in schedule for i in chosen}))
        for chosen in schedule[last.round :]:
            if last.round and config.training.noise_multiplier is not None:
                _check_plans(training, last, chosen)
            last = _round(training, last, chosen)
            write_checkpoint(run, last)
            listener(RoundEnded(last.round, len(schedule), last.records[-1].mean))
    finally:
        # Also when the budget ran out or the user stopped: what is whole is kept.
        write_models(run, config, device)


def _check_plans(training: TrainingRun, last: Checkpoint, chosen: Sequence[int]) -> None:
    """Stop before anyone is charged if somebody's budget is too small for the next round."""
    jobs = training.jobs(last.round + 1, chosen, last.states, last.broadcast)
    refusals = dict(training.engine.map(verbs.check_budget, jobs))
    for k, refused in sorted(refusals.items()):
        if refused:
            raise BudgetExhausted(f"client {chosen[k]}: {refused}")


def _start(training: TrainingRun) -> Checkpoint:
    """Where everybody stands before round 1."""
    states: dict[int, bytes] = {}
    for i, state in training.engine.map(verbs.start, training.tasks):
        states[i] = state
        kept = State.from_bytes(state, Path("state")).kept
        training.listener(ClientStarted(i, kept.validation))
    everyone = tuple(states[i] for i in sorted(states))
    broadcast = verbs.initial_broadcast(training.tasks[0])
    return Checkpoint(round=0, states=everyone, broadcast=broadcast, releases={}, records=())


def _round(training: TrainingRun, last: Checkpoint, chosen: Sequence[int]) -> Checkpoint:
    """The next round of those who take part in it."""
    began, round = time.perf_counter(), last.round + 1
    states, released = list(last.states), dict[int, bytes]()
    jobs = training.jobs(round, chosen, states, last.broadcast)
    for k, (state, message) in training.engine.map(verbs.local_round, jobs):
        states[chosen[k]] = state
        if message is not None:
            released[chosen[k]] = message
        training.listener(ClientTrained(chosen[k], round))
    answer = _answer(training.config, released, last.broadcast, round)
    jobs = training.jobs(round, chosen, states, answer)
    for k, state in training.engine.map(verbs.finish_round, jobs):
        states[chosen[k]] = state
    digests = {i: hashlib.sha256(message).hexdigest() for i, message in released.items()}
    after = {i: State.from_bytes(states[i], Path("state")) for i in chosen}
    record = RoundRecord(
        round=round,
        seconds=time.perf_counter() - began,
        up_bytes=sum(map(len, released.values())),
        down_bytes=_down_bytes(training.config, round, answer),
        clients=tuple(ClientRound.of(i, after[i], digests.get(i)) for i in chosen),
    )
    return Checkpoint(
        round=round,
        states=tuple(states),
        broadcast=answer,
        # A client that sat this round out keeps the release that its network last computed.
        releases={**last.releases, **released},
        records=(*last.records, record),
    )


def _answer(
    config: RunConfig, released: Mapping[int, bytes], broadcast: bytes, round: int
) -> bytes:
    """The server's broadcast after a round's releases."""
    size = {"width": config.network.width, "classes": load_federation(config).classes}
    releases = [Release.from_bytes(released[i], **size) for i in sorted(released)]
    previous = Broadcast.from_bytes(broadcast, **size)
    rng = stream(config.seed, "server", round)
    method = method_named(config.federation.method)
    return method.server_round(config, releases, previous, round, rng).to_bytes()


def _down_bytes(config: RunConfig, round: int, answer: bytes) -> int:
    """Bytes that the server, if there is one, sent to all clients.

    The simplex head is known to all; a random one is sent once before round 1. An answer is sent
    where something was released.
    """
    f = config.federation
    if not f.has_server:
        return 0
    heads = (round == 1 and f.head_init == "random") + (config.sent is not None)
    return heads * len(answer) * f.clients


def write_models(run: Path, config: RunConfig, device: str) -> None:
    """Write `models/` and `releases/` of the last whole round: a release and its bottom agree."""
    checkpoint = read_checkpoint(run, config.federation.clients)
    for i, content in enumerate(checkpoint.states):
        client, state = build_client(config, i, run, device), State.from_bytes(content, run)
        if i in checkpoint.releases:
            write_bytes(release_file(run, i), checkpoint.releases[i])
        for path, (bottom, head), round in (
            (model_file(run, i), state.kept_networks(client), state.kept.round),
            (last_model_file(run, i), state.networks(client), state.round),
        ):
            notes = {"client": i, "round": round}
            save_network(path, bottom, head, genome=state.genome, spec=client.spec, notes=notes)
