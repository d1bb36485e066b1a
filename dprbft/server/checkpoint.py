"""What it takes to go on after a round: `checkpoint/round-NNN/`, one whole round at a time.

`checkpoint/latest.json` is moved to a round once all of it is written, so that a killed run resumes
from the last whole one. `rounds.jsonl` is rewritten from the checkpoint, and always agrees with it.
A checkpoint notes the ledgers' heads: one that lacks what it had then was deleted or put back.
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dprbft.paths import latest_file, round_folder
from dprbft.server.records import RoundRecord, write_rounds
from dprbft.simulation.ledgers import check_heads, heads, heads_from_json, heads_to_json
from dprbft.site.state import State
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, read_json, write_bytes, write_json

BROADCAST, STATE = "broadcast.safetensors", "client-{:03d}.safetensors"
RELEASE = "release-{:03d}.safetensors"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where all clients and the server stand after a round; messages as they crossed the wire."""

    round: int  # 0 before the first
    states: tuple[bytes, ...]  # each client's `State`
    broadcast: bytes  # the server's answer
    releases: Mapping[int, bytes]  # each client's last
    records: tuple[RoundRecord, ...]  # of all rounds so far


def is_trained(run: Path) -> bool:
    """Whether the run has a checkpoint."""
    return latest_file(run).exists()


def write_checkpoint(run: Path, checkpoint: Checkpoint) -> None:
    """Write a round, move `latest.json` to it, and remove the one before."""
    check_since_round(run)  # before this round's note of the ledgers replaces the last one's
    folder = round_folder(run, checkpoint.round)
    for i, state in enumerate(checkpoint.states):
        write_bytes(folder / STATE.format(i), state)
    write_bytes(folder / BROADCAST, checkpoint.broadcast)
    known = {
        "rounds": [r.to_json() for r in checkpoint.records],
        "broadcast": hashlib.sha256(checkpoint.broadcast).hexdigest(),
        "ledgers": heads_to_json(heads(run)),
    }
    write_json(folder / "rounds.json", known)
    for i, release in checkpoint.releases.items():
        write_bytes(folder / RELEASE.format(i), release)
    write_json(latest_file(run), {"round": checkpoint.round})
    write_rounds(run, checkpoint.records)
    shutil.rmtree(round_folder(run, checkpoint.round - 1), ignore_errors=True)


def read_checkpoint(run: Path, clients: int) -> Checkpoint:
    """The last whole round; BadInput if there is none, or a file of it is damaged."""
    round = _latest(run)
    folder = round_folder(run, round)
    known, path = read_json(folder / "rounds.json"), folder / BROADCAST
    load_states(run, clients)  # refuses, by name, what is damaged
    broadcast = read_bytes(path)
    if hashlib.sha256(broadcast).hexdigest() != known["broadcast"]:
        raise BadInput(f"expected {path} as it was written, got a damaged file; start a new run")
    releases = {i: folder / RELEASE.format(i) for i in range(clients)}
    return Checkpoint(
        round=round,
        states=tuple(read_bytes(folder / STATE.format(i)) for i in range(clients)),
        broadcast=broadcast,
        releases={i: read_bytes(path) for i, path in releases.items() if path.exists()},
        records=tuple(RoundRecord.from_json(r) for r in known["rounds"]),
    )


def load_states(run: Path, clients: int) -> list[State]:
    """All clients' states after the last whole round."""
    folder = round_folder(run, _latest(run))
    paths = [folder / STATE.format(i) for i in range(clients)]
    return [State.from_bytes(read_bytes(path), path) for path in paths]


def check_since_round(run: Path) -> None:
    """Refuse ledgers that were deleted or put back since the last whole round."""
    if is_trained(run):
        known = read_json(round_folder(run, _latest(run)) / "rounds.json")["ledgers"]
        check_heads(run, heads_from_json(known))


def _latest(run: Path) -> int:
    if not is_trained(run):
        raise BadInput(f"expected a trained run at {run}, got one without training; train it first")
    return int(read_json(latest_file(run))["round"])
