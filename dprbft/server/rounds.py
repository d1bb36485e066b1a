"""Algorithm 2: the rounds of a federation, resumable after any of them.

After each round every client's state and the broadcast are written to `checkpoint/round-NNN/`,
then `checkpoint/latest.json` is moved to it: a run that is killed resumes from the last round that
is whole. `rounds.jsonl` is rewritten from the checkpoint, and so always agrees with it.

Nobody is charged for a round that somebody cannot pay for: before the first, everyone's plan for
the whole run is made, and the run refused if there is none.

Only participants work in a round; the others are sent the broadcast, and meet it when they next
take part.
"""

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

from dprbft.config.participation import participants
from dprbft.config.schema import RunConfig
from dprbft.engines import verbs as work
from dprbft.engines.inprocess import InProcess
from dprbft.events import ClientStarted, ClientTrained, Listener, RoundEnded
from dprbft.messages import Broadcast, Release
from dprbft.methods import method_named
from dprbft.paths import (
    checkpoint_folder,
    last_model_file,
    ledger_file,
    model_file,
    release_file,
    rounds_file,
    tune_file,
)
from dprbft.simulation.federation import load_federation
from dprbft.site.plan import current_plan
from dprbft.site.site import build_client
from dprbft.site.state import State
from dprbft.site.task import Task
from panas.privacy.accounting.events import Event
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.errors import BadInput, BudgetExhausted
from panas.runtime.seeds import stream
from panas.runtime.store import read_bytes, read_json, write_bytes, write_json
from panas.training.checkpoint import save_network


def train_federation(
    run: Path, config: RunConfig, engine: InProcess, device: str, listener: Listener
) -> None:
    """Train from the last whole round to the end, then write the models.

    Raises:
        BudgetExhausted: if a client's budget cannot pay for the next round; nobody was charged
            for it, and the models of the last whole round are written first.
        BadInput: if the ledger is not the one that the last whole round has seen.

    """
    check_since_round(run)
    tasks = [
        Task(config.model_dump_json(), run, i, device) for i in range(config.federation.clients)
    ]
    if not (checkpoint_folder(run) / "latest.json").exists():
        _start(run, config, engine, tasks, listener)
    done = _latest(run)
    schedule = participants(config)
    # A process that died right after its last checkpoint has not written this yet.
    _write_lines(run, _before(_folder(run, done))[0])
    try:
        _check_budgets(run, config)
        if done == 0:
            _check_plans(run, engine, tasks, 1, sorted({i for c in schedule for i in c}))
        for round in range(done + 1, config.federation.rounds + 1):
            if round > 1 and config.training.noise_multiplier is not None:
                _check_plans(run, engine, tasks, round, schedule[round - 1])
            _round(run, config, engine, tasks, round, schedule[round - 1], listener)
    finally:
        # Also when the budget ran out or the user stopped: what is whole is kept.
        _write_models(run, config, device)


def _check_budgets(run: Path, config: RunConfig) -> None:
    """Stop before anyone is charged if tuning has found that a budget is too small."""
    for i in range(config.federation.clients):
        refused = read_json(tune_file(run, i)).get("refused")
        if refused:
            raise BudgetExhausted(f"client {i}: {refused}")


def _check_plans(
    run: Path, engine: InProcess, tasks: list[Task], round: int, chosen: list[int]
) -> None:
    """Stop before anyone is charged if somebody's budget is too small."""
    folder = _folder(run, round - 1)
    broadcast = _before(folder)[1]
    jobs = [work.RoundTask(tasks[i], round, _state(folder, i), broadcast) for i in chosen]
    refusals = dict(engine.map(_refusal, jobs))
    for k, refused in sorted(refusals.items()):
        if refused:
            raise BudgetExhausted(f"client {chosen[k]}: {refused}")


def _refusal(job: work.RoundTask) -> str | None:
    """Why a client cannot pay for a round and all that it plans after it; None if it can."""
    client, state, _ = job.load()
    if not client.budget.private:
        return None
    try:
        plan = current_plan(client, state)
    except BudgetExhausted as e:
        return str(e)
    if plan is None or client.config.training.noise_multiplier is None:
        return None
    # Noise that the user fixed is planned for no budget; what is asked is whether this round fits.
    account = client.ledger.account(client.id)
    events: list[Event] = [plan.training_event]
    if plan.releases:
        events.append(plan.release_event)
    total = account.price([*account.events_on("train"), *events])
    if total <= client.budget.epsilon:
        return None
    return (
        f"expected to stay within epsilon {client.budget.epsilon:g}, got {total:.3f} with round "
        f"{job.round}; stopped before it, the last valid model is kept; raise --epsilon or plan "
        "fewer rounds"
    )


def check_since_round(run: Path) -> None:
    """Refuse a ledger that was deleted or put back since the last whole round.

    Raises:
        BadInput: naming the line that is not there.

    """
    if (checkpoint_folder(run) / "latest.json").exists():
        known = read_json(_folder(run, _latest(run)) / "rounds.json")["ledger"]
        Ledger(ledger_file(run)).check_holds(known["count"], known["hash"])


def _write_lines(run: Path, lines: list[dict[str, Any]]) -> None:
    write_bytes(rounds_file(run), "".join(json.dumps(r) + "\n" for r in lines).encode())


def _latest(run: Path) -> int:
    if not (checkpoint_folder(run) / "latest.json").exists():
        raise BadInput(f"expected a trained run at {run}, got one without training; train it first")
    return int(read_json(checkpoint_folder(run) / "latest.json")["round"])


def _folder(run: Path, round: int) -> Path:
    return checkpoint_folder(run) / f"round-{round:03d}"


def _state(folder: Path, client: int) -> bytes:
    return read_bytes(folder / f"client-{client:03d}.safetensors")


def _release(folder: Path, client: int) -> Path:
    return folder / f"release-{client:03d}.safetensors"


def _start(
    run: Path, config: RunConfig, engine: InProcess, tasks: list[Task], listener: Listener
) -> None:
    states: list[bytes] = [b""] * len(tasks)
    for i, state in engine.map(work.start, tasks):
        states[i] = state
        kept = State.from_bytes(state, run).kept
        listener(ClientStarted(i, kept.validation))
    _save(run, 0, states, work.initial_broadcast(tasks[0]), {}, [])


def _round(
    run: Path,
    config: RunConfig,
    engine: InProcess,
    tasks: list[Task],
    round: int,
    chosen: list[int],
    listener: Listener,
) -> None:
    began = time.perf_counter()
    before = _folder(run, round - 1)
    lines, broadcast = _before(before)
    states = [_state(before, i) for i in range(len(tasks))]
    released: dict[int, bytes] = {}
    jobs = [work.RoundTask(tasks[i], round, states[i], broadcast) for i in chosen]
    for k, (state, message) in engine.map(work.local_round, jobs):
        states[chosen[k]] = state
        if message is not None:
            released[chosen[k]] = message
        listener(ClientTrained(chosen[k], round))
    d, classes = config.network.width, len(load_federation(config).class_names)
    releases = [Release.from_bytes(released[i], width=d, classes=classes) for i in sorted(released)]
    previous = Broadcast.from_bytes(broadcast, width=d, classes=classes)
    rng = stream(config.seed, "server", round)
    method = method_named(config.federation.method)
    answer = method.server_round(config, releases, previous, round, rng).to_bytes()
    jobs = [work.RoundTask(tasks[i], round, states[i], answer) for i in chosen]
    for k, state in engine.map(work.finish_round, jobs):
        states[chosen[k]] = state
    line = _line(config, round, chosen, states, released, answer, time.perf_counter() - began)
    _save(run, round, states, answer, released, [*lines, line])
    shown = line["clients"]
    mean = sum(c["kept"] for c in shown) / len(shown)
    listener(RoundEnded(round, config.federation.rounds, mean))


def _before(folder: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The lines of all rounds so far, and the broadcast, which carries no checksum of its own."""
    known, path = read_json(folder / "rounds.json"), folder / "broadcast.safetensors"
    broadcast = read_bytes(path)
    if hashlib.sha256(broadcast).hexdigest() != known["broadcast"]:
        raise BadInput(f"expected {path} as it was written, got a damaged file; start a new run")
    return known["rounds"], broadcast


def _line(
    config: RunConfig,
    round: int,
    chosen: list[int],
    states: list[bytes],
    released: dict[int, bytes],
    answer: bytes,
    seconds: float,
) -> dict[str, Any]:
    """What rounds.jsonl says of a round; accuracies are the simulator's view.

    "release" is the digest of what a client sent: with it an audit knows the very bytes.
    """
    # The simplex head is known to all; a random one is sent once before round 1. An answer is sent
    # to all where there is a server that has heard anything.
    first = round == 1 and config.federation.head_init == "random"
    heads = int(first) + int(config.privacy.release != "none")
    down = 0 if config.federation.method == "local" else heads * len(answer) * len(states)
    after = {i: State.from_bytes(states[i], Path("state")) for i in chosen}
    return {
        "round": round,
        "seconds": seconds,
        "up_bytes": sum(len(b) for b in released.values()),
        "down_bytes": down,
        "clients": [
            {
                "id": i,
                "local": after[i].scores.local,
                "global": after[i].scores.shared,
                "validation": after[i].scores.validation,
                "blend": after[i].scores.blend,
                "kept": after[i].kept.accuracy,
                "release": hashlib.sha256(released[i]).hexdigest() if i in released else None,
            }
            for i in chosen
        ],
    }


def _save(
    run: Path,
    round: int,
    states: list[bytes],
    broadcast: bytes,
    released: dict[int, bytes],
    lines: list[dict[str, Any]],
) -> None:
    check_since_round(run)  # before this round's note of the ledger replaces the last one's
    folder = _folder(run, round)
    for i, state in enumerate(states):
        write_bytes(folder / f"client-{i:03d}.safetensors", state)
    write_bytes(folder / "broadcast.safetensors", broadcast)
    digest = hashlib.sha256(broadcast).hexdigest()
    count, seen = Ledger(ledger_file(run)).head()
    write_json(
        folder / "rounds.json",
        {"rounds": lines, "broadcast": digest, "ledger": {"count": count, "hash": seen}},
    )
    for i in range(len(states)):
        # A client that sat this round out keeps the release that its network last computed.
        earlier = _release(_folder(run, round - 1), i)
        message = released.get(i) or (earlier.read_bytes() if earlier.exists() else None)
        if message is not None:
            write_bytes(_release(folder, i), message)
    write_json(checkpoint_folder(run) / "latest.json", {"round": round})
    _write_lines(run, lines)
    shutil.rmtree(_folder(run, round - 1), ignore_errors=True)


def load_states(run: Path, clients: int) -> list[State]:
    """All clients' states after the last whole round."""
    folder = _folder(run, _latest(run))
    paths = [folder / f"client-{i:03d}.safetensors" for i in range(clients)]
    return [State.from_bytes(read_bytes(p), p) for p in paths]


def _write_models(run: Path, config: RunConfig, device: str) -> None:
    """Write each client's networks and last release, which belong together."""
    for i, state in enumerate(load_states(run, config.federation.clients)):
        client = build_client(config, i, run, device)
        message = _release(_folder(run, _latest(run)), i)
        if message.exists():
            write_bytes(release_file(run, i), message.read_bytes())
        for path, (bottom, head), round in (
            (model_file(run, i), state.kept_networks(client), state.kept.round),
            (last_model_file(run, i), state.networks(client), state.round),
        ):
            save_network(
                path,
                bottom,
                head,
                genome=state.genome,
                spec=client.spec,
                notes={"client": i, "round": round},
            )
