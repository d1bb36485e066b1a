"""Audit a run: every client's audit, kept until all are through, and what they come to."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import attacks
from attacks.audit.client import audit_client
from attacks.audit.records import DrawnAudit, RunAudit
from attacks.audit.resume import AuditCheckpoint, digest
from attacks.reconstruction.suite import OnProgress
from dprbft.config.files import load_config
from dprbft.paths import (
    SitePlace,
    audit_file,
    audit_pictures,
    audit_unfinished,
    config_file,
    last_model_file,
    ledger_file,
    map_file,
    model_file,
    places_of,
    server_folder,
)
from dprbft.run.stages import stages_of
from dprbft.server.checkpoint import received
from dprbft.server.records import read_rounds
from panas.runtime.errors import BadInput
from panas.runtime.pool import Pool
from panas.runtime.store import exclusive, write_bytes, write_json

PICTURES = ("images", "members")


def audit_run(
    run: Path, *, shadows: int = 0, workers: int = 1, on_progress: OnProgress = lambda _: None
) -> RunAudit:
    """Attack the last release of every client of a run, and write `audit.json`.

    Args:
        run: a run directory, trained.
        shadows: networks that LiRA trains for each client; 0 leaves it out.
        workers: processes, of a client each.
        on_progress: told what is being attacked, a short text at a time.

    Raises:
        BadInput: if there is no run, nothing was released though the method releases, another
            process audits it, or a file is damaged, not finite or of other shapes than the run's.

    An audit that was interrupted goes on: clients that were through are not attacked again.

    Privacy: reads private samples and writes scores, and under `audit/` pictures of samples: the
    simulator's view, no release, which must not leave a real client.

    """
    begin = time.monotonic()
    sites = _sites(run)
    with exclusive(audit_file(run), wait=False):
        unfinished = AuditCheckpoint(audit_unfinished(run), _about(run, shadows))
        found = _audit_clients(_Work(run, shadows, on_progress), sites, unfinished, workers)
        _write_pictures(audit_pictures(run), found)
        seconds = round(time.monotonic() - begin, 2)
        audit = RunAudit(seconds=seconds, clients=tuple(f.audit for f in found))
        write_json(audit_file(run), audit.to_json())
        unfinished.forget()
    return audit


@dataclass(frozen=True)
class _Work:
    run: Path
    shadows: int
    on_progress: OnProgress | None


def _sites(run: Path) -> tuple[SitePlace, ...]:
    """The run's sites that are there; BadInput if none is, or none could have sent anything."""
    config, places = load_config(run), places_of(run)
    if "audit" not in stages_of(config):
        raise BadInput(
            f"expected a run of dprbft, joined or local to attack, got one of "
            f"{config.federation.method}, whose updates no attack here reads"
        )
    sites = tuple(place for place in places if place.there)
    if not sites:
        raise BadInput(f"expected site {places[0].name} at {places[0].folder}, found none")
    server = server_folder(run)
    # Sites may join and send nothing, where it would not pay: then there is a round all the same.
    began = read_rounds(server) or any(received(server, site.index) for site in sites)
    if config.sent and not began:
        raise BadInput(f"expected releases in {server}, found none; train the run first")
    return sites


def _about(run: Path, shadows: int) -> str:
    """What decides an audit: the run's files, and the attacks as they are."""
    files = [config_file(run), map_file(run), *Path(attacks.__file__).parent.rglob("*.py")]
    for place in places_of(run):
        arrived = received(server_folder(run), place.index)
        files += [ledger_file(place.folder), model_file(place.home), last_model_file(place.home)]
        files += [arrived[0]] if arrived else []
    return digest((f for f in files if f.is_file()), {"shadows": shadows})


def _audit_clients(
    work: _Work, sites: tuple[SitePlace, ...], unfinished: AuditCheckpoint, workers: int
) -> list[DrawnAudit]:
    report = work.on_progress or (lambda _: None)
    names = {site.index: site.name for site in sites}
    results = {id: known for id in names if (known := unfinished.known(id))}
    for id, known in results.items():
        report(f"{names[id]}: {known.audit.verdict} (known)")
    missing = [id for id in names if id not in results]
    # Several processes report whole clients only.
    context = work if workers == 1 else replace(work, on_progress=None)
    with Pool(workers, context, preload=("attacks.audit.run",)) as pool:
        for at, found in pool.map(_audit_client, missing):
            unfinished.keep(found)
            results[missing[at]] = found
            report(f"{names[missing[at]]}: {found.audit.verdict}")
    return [results[id] for id in names]


def _audit_client(work: _Work, id: int) -> DrawnAudit:
    report = work.on_progress or (lambda _: None)
    return audit_client(work.run, id, shadows=work.shadows, on_progress=report)


def _write_pictures(folder: Path, found: list[DrawnAudit]) -> None:
    """Put all clients' pictures in place, and remove those of an earlier audit."""
    drawn = {
        folder / f"{f.audit.name}-{name}.png": content
        for f in found
        for name, content in f.pictures.items()
    }
    for path, content in drawn.items():
        write_bytes(path, content)
    earlier = (path for name in PICTURES for path in folder.glob(f"*-{name}.png"))
    for path in set(earlier) - drawn.keys():
        path.unlink()
