"""Audit a run: every client's audit, kept until all are through, and what they come to.

What is asked of each client is `attacks.audit.client`. An audit that was interrupted goes on with
the clients that are not through (`attacks.audit.resume`).
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attacks.audit.client import audit_client
from attacks.audit.evidence import sent
from attacks.audit.resume import AuditCheckpoint, Audited, digest
from attacks.audit.verdict import MARGIN
from attacks.reconstruction.suite import OnProgress
from dprbft.config.files import load_config
from dprbft.paths import (
    audit_file,
    audit_pictures,
    audit_unfinished,
    last_model_file,
    ledger_file,
    model_file,
    release_file,
)
from dprbft.simulation.federation import load_federation
from panas.runtime.errors import BadInput
from panas.runtime.pool import Pool
from panas.runtime.store import exclusive, write_bytes, write_json


def audit_run(
    run: Path, *, shadows: int = 0, workers: int = 1, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Attack the last release of every client of a run; write and return `audit.json`.

    Args:
        run: a run directory with config.toml, releases/ and models/.
        shadows: networks that LiRA trains for each client; 0 leaves it out.
        workers: processes, of a client each.
        on_progress: told what is being attacked, a short text at a time.

    Returns:
        The record: "scale", "seconds", "clients" (attacks, controls, claim, network and verdict of
        each) and "summary" (means over the clients that released something; None if none did).

    Raises:
        BadInput: if there is no run, nothing was released though the method releases, another
            process audits it, or a file is damaged, not finite or of other shapes than the run's.

    An audit that was interrupted goes on: clients that were through are not attacked again, and
    "seconds" are those of the last stretch.

    Privacy: reads private samples and writes scores, and under `audit/` pictures of samples: the
    simulator's view, no release, which must not leave a real client.

    """
    begin = time.monotonic()
    config = load_config(run)
    federation = load_federation(config)
    if config.sent and not any(release_file(run, c.id).is_file() for c in federation.clients):
        raise BadInput(f"expected releases in {run / 'releases'}, found none; train the run first")
    for c in federation.clients:
        if not release_file(run, c.id).is_file() and sent(run, c.id):
            raise BadInput(
                f"expected {release_file(run, c.id)}, which was sent, found no such file; restore "
                "it, or train the run again"
            )
    with exclusive(audit_file(run), wait=False):
        ids = [c.id for c in federation.clients]
        unfinished = AuditCheckpoint(audit_unfinished(run), _about(run, ids, shadows))
        clients = _audit_clients(_Work(run, shadows, on_progress), ids, unfinished, workers)
        result = {
            "scale": "[-1, 1]",
            "margin": MARGIN,
            "seconds": round(time.monotonic() - begin, 2),
            "clients": clients,
            "summary": _summary(clients),
        }
        write_json(audit_file(run), result)
        unfinished.forget()
    return result


@dataclass(frozen=True)
class _Work:
    """What the audits of all clients share."""

    run: Path
    shadows: int
    on_progress: OnProgress | None


def _about(run: Path, ids: list[int], shadows: int) -> str:
    """What decides an audit: the run's files, and the attacks as they are."""
    files = [run / "config.toml", ledger_file(run), *Path(__file__).parents[1].rglob("*.py")]
    files += [f(run, id) for id in ids for f in (release_file, model_file, last_model_file)]
    return digest((f for f in files if f.is_file()), {"shadows": shadows})


def _audit_clients(
    work: _Work, ids: list[int], unfinished: AuditCheckpoint, workers: int
) -> list[dict[str, Any]]:
    """The records of all clients; their pictures are in place once all are through."""
    on_progress = work.on_progress or (lambda _: None)
    results = {id: known for id in ids if (known := unfinished.known(id))}
    for id, (record, _) in results.items():
        on_progress(f"client {id}: {record['verdict']} (known)")
    missing = [id for id in ids if id not in results]
    # Several processes on_progress of whole clients only.
    context = replace(work, on_progress=on_progress if workers == 1 else None)
    with Pool(workers, context, preload=("attacks.audit.run",)) as pool:
        for at, one in pool.map(_audit_client, missing):
            unfinished.keep(missing[at], one)
            results[missing[at]] = one
            on_progress(f"client {missing[at]}: {one[0]['verdict']}")
    folder = audit_pictures(work.run)
    drawn = {
        folder / f"client-{id:03d}-{name}.png": content
        for id, (_, pictures) in results.items()
        for name, content in pictures.items()
    }
    for path, content in drawn.items():
        write_bytes(path, content)
    for path in set(folder.glob("client-*.png")) - drawn.keys():
        path.unlink()  # of an earlier audit, which found more to draw
    return [results[id][0] for id in ids]


def _audit_client(work: _Work, id: int) -> Audited:
    """One client's, in whatever process."""
    return audit_client(
        work.run, id, shadows=work.shadows, on_progress=work.on_progress or (lambda _: None)
    )


def _summary(clients: list[dict[str, Any]]) -> dict[str, Any]:
    attacked = [c for c in clients if c["attacks"]]

    def mean(pick: Callable[[dict[str, Any]], float | None]) -> float | None:
        values = [v for c in attacked if (v := pick(c)) is not None]
        return round(float(np.mean(values)), 6) if values else None

    def best(c: dict[str, Any]) -> float | None:
        return max((a["r2"] for a in c["attacks"] if a["r2"] is not None), default=None)

    def control(name: str) -> float | None:
        return mean(lambda c: next(s["r2"] for s in c["controls"] if s["name"] == name))

    return {
        "best_attack_r2": mean(best),
        "same_class_mean_r2": control("same-class mean"),
        "ceiling_r2": control("ceiling"),
        "verdicts": dict(Counter(c["verdict"] for c in clients)),
        "network_verdicts": dict(Counter(c["network"]["verdict"] for c in clients if c["network"])),
    }
