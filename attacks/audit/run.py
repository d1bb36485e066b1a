"""Audit a run: every site's audit, kept until all are through, and what they come to.

An interrupted audit resumes from one file a site; a file of another run or other settings, or a
damaged one, is ignored. Privacy: they hold pictures of private samples, for the auditor alone, and
are removed when the audit is through.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import attacks
from attacks.audit.conformance import compared
from attacks.audit.masked import findings_of_sum, masked_vector
from attacks.audit.records import DrawnAudit, RunAudit, SiteAudit
from attacks.audit.site import audit_site, noise_of_site
from attacks.conformance.finding import Finding
from attacks.reconstruction.suite import OnProgress
from dprbft.config.files import load_config
from dprbft.paths import (
    SitePaths,
    audit_file,
    audit_pictures,
    audit_unfinished,
    config_file,
    last_model_file,
    ledger_file,
    map_file,
    model_file,
    read_sites,
    server_folder,
)
from dprbft.run.stages import stages_of
from dprbft.run.view import RunView
from dprbft.server.checkpoint import received
from dprbft.server.records import read_rounds
from panas.runtime.errors import BadInput
from panas.runtime.pool import Pool
from panas.runtime.store import (
    exclusive,
    read_tensors,
    under,
    write_bytes,
    write_json,
    write_tensors,
)


def digest(files: Iterable[Path], settings: dict[str, Any]) -> str:
    """What an audit is of: the content of its files, its settings (plain JSON), our version."""
    about = json.dumps(settings | {"version": version("panas")}, sort_keys=True)
    total = hashlib.sha256(about.encode())
    for path in sorted(files):
        total.update(f"{path.name} {path.stat().st_size}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


class AuditCheckpoint:
    """The sites of one audit (`of`: its digest) that are through, in a folder of their own."""

    def __init__(self, folder: Path, of: str) -> None:
        self._folder, self._of = folder, of

    def known(self, site: int) -> DrawnAudit | None:
        """What was kept of a site; None if nothing was, or it is of another audit."""
        try:
            arrays, notes = read_tensors(self._file(site))
        except BadInput:
            return None
        if notes["of"] != self._of:
            return None
        audit = SiteAudit.from_json(json.loads(notes["record"]))
        noise = under(arrays, NOISE)
        pictures = {k: v.numpy().tobytes() for k, v in arrays.items() if not k.startswith(NOISE)}
        return DrawnAudit(audit, pictures, noise)

    def keep(self, found: DrawnAudit) -> None:
        """Put a site's audit and pictures on disk."""
        arrays = {
            name: torch.frombuffer(bytearray(content), dtype=torch.uint8)
            for name, content in found.pictures.items()
        }
        record = json.dumps(found.audit.to_json(), allow_nan=False)
        arrays |= {f"{NOISE}{name}": z for name, z in found.noise.items()}
        write_tensors(self._file(found.audit.id), arrays, {"of": self._of, "record": record})

    def forget(self) -> None:
        """The audit is through."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, site: int) -> Path:
        return self._folder / f"client-{site:03d}.safetensors"


PICTURES, NOISE = ("images", "members"), "noise."


def audit_run(
    run: Path,
    *,
    shadows: int = 0,
    beside: Sequence[Path] = (),
    workers: int = 1,
    on_progress: OnProgress = lambda _: None,
) -> RunAudit:
    """Attack the last release of every site of a run, and write `audit.json`.

    Args:
        run: a run directory, trained.
        shadows: networks that LiRA and RMIA train for each site; 0: without.
        beside: other runs of the same sites, whose noise must be another.
        workers: processes, of a site each.
        on_progress: told what is being attacked, a short text at a time.

    Raises:
        BadInput: if there is no run, nothing was released though the method releases, another
            process audits it, or a file is damaged, not finite or of other shapes than the run's.

    An audit that was interrupted goes on: sites that were through are not attacked again.

    Privacy: reads private samples and writes scores, and under `audit/` pictures of samples: the
    simulator's view, no release, which must not leave a real site.

    """
    begin = time.monotonic()
    sites = _sites(run)
    with exclusive(audit_file(run), wait=False):
        unfinished = AuditCheckpoint(audit_unfinished(run), _about(run, shadows))
        audits = _audit_sites(_Work(run, shadows, on_progress), sites, unfinished, workers)
        _write_pictures(audit_pictures(run), audits)
        clients, findings = _compared(run, audits, beside)
        seconds = round(time.monotonic() - begin, 2)
        audit = RunAudit(seconds=seconds, clients=tuple(clients), findings=findings)
        write_json(audit_file(run), audit.to_json())
        unfinished.forget()
    return audit


def _compared(
    run: Path, audits: Sequence[DrawnAudit], beside: Sequence[Path]
) -> tuple[list[SiteAudit], tuple[Finding, ...]]:
    """The sites' audits after what they sent was compared, with that of other runs too."""
    view = RunView(run, load_config(run))
    noise = {f.audit.name: f.noise for f in audits if f.noise}
    for other in beside:
        for site in _sites(other):
            if z := noise_of_site(other, site.index):
                noise[f"{site.name} of {other}"] = z
    vectors = {f.audit.name: masked_vector(view, f.audit.id) for f in audits}
    masked = {name: v.numbers for name, v in vectors.items() if v is not None}
    return compared([f.audit for f in audits], noise, masked, findings_of_sum(view))


@dataclass(frozen=True)
class _Work:
    run: Path
    shadows: int
    on_progress: OnProgress


def _sites(run: Path) -> tuple[SitePaths, ...]:
    """The run's sites that are there; BadInput if none is, or none could have sent anything."""
    config, site_paths = load_config(run), read_sites(run)
    if "audit" not in stages_of(config):
        raise BadInput(
            f"expected a run of dprbft, joined or local to attack, got one of "
            f"{config.federation.method}, whose updates no attack here reads"
        )
    sites = tuple(paths for paths in site_paths if paths.is_present)
    if not sites:
        raise BadInput(f"expected site {site_paths[0].name} at {site_paths[0].folder}, found none")
    server = server_folder(run)
    # Sites may join and send nothing, where it would not pay: then there is a round all the same.
    began = read_rounds(server) or any(received(server, site.index) for site in sites)
    if config.sent and not began:
        raise BadInput(f"expected releases in {server}, found none; train the run first")
    return sites


def _about(run: Path, shadows: int) -> str:
    """What decides an audit: the run's files, and the attacks as they are."""
    files = [config_file(run), map_file(run), *Path(attacks.__file__).parent.rglob("*.py")]
    for paths in read_sites(run):
        arrived = received(server_folder(run), paths.index)
        files += [ledger_file(paths.folder), model_file(paths.home), last_model_file(paths.home)]
        files += [arrived[0]] if arrived else []
    return digest((f for f in files if f.is_file()), {"shadows": shadows})


def _audit_sites(
    work: _Work, sites: tuple[SitePaths, ...], unfinished: AuditCheckpoint, workers: int
) -> list[DrawnAudit]:
    report, names = work.on_progress, {site.index: site.name for site in sites}
    results = {id: known for id in names if (known := unfinished.known(id))}
    for id, known in results.items():
        report(f"{names[id]}: {known.audit.verdict} (known)")
    missing = [id for id in names if id not in results]
    # Several processes report whole sites only.
    context = work if workers == 1 else replace(work, on_progress=_silence)
    with Pool(workers, context, preload=("attacks.audit.run",)) as pool:
        for at, result in pool.map(_audit_site, missing):
            unfinished.keep(result)
            results[missing[at]] = result
            report(f"{names[missing[at]]}: {result.audit.verdict}")
    return [results[id] for id in names]


def _silence(text: str) -> None:
    pass


def _audit_site(work: _Work, id: int) -> DrawnAudit:
    return audit_site(work.run, id, shadows=work.shadows, on_progress=work.on_progress)


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
