"""The outcome of a run: summary.json, from what the stages left on disk.

Accuracies are the simulator's view, which holds every test split; no client would tell them.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dprbft.config.schema import RunConfig
from dprbft.paths import summary_file
from dprbft.run.bookkeeping import check_ledger, is_done, seconds
from dprbft.server.checkpoint import load_states
from dprbft.server.records import read_rounds
from dprbft.simulation.federation import ClientData, load_federation
from dprbft.simulation.ledgers import ledgers
from dprbft.site.records import SearchRecord
from dprbft.site.state import State
from panas.privacy.ledger.account import totals
from panas.runtime.store import write_json

LIBRARIES = ("panas", "torch", "deap", "botorch", "gpytorch", "opacus", "dp-accounting", "numpy")


def summarise(run: Path, config: RunConfig) -> dict[str, Any]:
    """Gather the summary of a trained run, write it, and return it."""
    check_ledger(run)
    states = load_states(run, config.federation.clients)
    books = ledgers(run)
    spent = {i: totals(ledger.account()) for i, ledger in books.items()}
    last = {i: ledger.head() for i, ledger in books.items()}
    clients = [
        _client(data, state, spent[data.id], SearchRecord.read(run, data.id))
        # To be noted elsewhere: it tells this ledger from one that was put in its place.
        | {"ledger": {"count": last[data.id][0], "hash": last[data.id][1]}}
        for data, state in zip(load_federation(config).clients, states, strict=True)
    ]
    rounds = read_rounds(run)
    summary = {
        "preset": config.preset,
        "dataset": config.data.source.dataset,
        "method": config.federation.method,
        "seed": config.seed,
        "view": "simulator: accuracies are measured on test splits that no client would share",
        "finished": is_done(run, "train"),
        "rounds": len(rounds),
        "clients": clients,
        "accuracy": _accuracies([c["accuracy"] for c in clients]),
        "communication": {
            "up_bytes": sum(r.up_bytes for r in rounds),
            "down_bytes": sum(r.down_bytes for r in rounds),
            "search_bytes": 0,
        },
        "seconds": seconds(run),
        "versions": {name: version(name) for name in LIBRARIES},
    }
    write_json(summary_file(run), summary)
    return summary


def _client(
    data: ClientData, state: State, spent: Mapping[str, Any], found: SearchRecord
) -> dict[str, Any]:
    return {
        "id": data.id,
        "genome": str(found.genome),
        **asdict(found.cost),
        "samples": {k: len(getattr(data, k)) for k in ("search", "train", "validation", "test")},
        # The noise is that of the plan; None without DP.
        "setting": asdict(state.settings)
        | {name: getattr(state.plan, name, None) for name in ("noise_multiplier", "release_noise")},
        "accuracy": {
            "local_last": state.scores.local,
            "global_last": state.scores.shared,
            "best": state.scores.best,
            "selected": state.kept.accuracy,
        },
        "selected_round": state.kept.round,
        "blend": state.kept.blend,
        "epsilon": {k: spent[k] for k in ("budget", "spent", "release", "search", "training")},
        "delta": spent["delta"],
        "unit": spent["unit"],
        "relation": spent["relation"],
    }


def _accuracies(clients: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    selected = [c["selected"] for c in clients]
    return {
        "mean": statistics.fmean(selected),
        "std": statistics.pstdev(selected),
        "local_last": _mean([c["local_last"] for c in clients]),
        "global_last": _mean([c["global_last"] for c in clients]),
    }


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None
