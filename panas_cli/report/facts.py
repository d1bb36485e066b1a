"""What a report reads of a run: its summary, its audit, and of each site its ledger and records.

Only a run whose sites are on this machine has the latter: it is the simulator's view.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attacks.audit.records import RunAudit, SiteAudit
from dprbft.config.files import load_config, read_run
from dprbft.paths import (
    SitePaths,
    audit_file,
    audit_pictures,
    ledger_file,
    read_sites,
    search_file,
    server_folder,
    tune_file,
)
from dprbft.run.outcome import Outcome, SiteOutcome, outcome
from dprbft.run.view import RunView
from dprbft.server.records import RoundRecord, read_rounds
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.site import check_book, spec_of
from panas.architecture.network import NetworkSpec
from panas.data.facts import Facts
from panas.privacy.ledger.account import Account
from panas.runtime.store import read_json

KINDS = ("images", "members")
"""Pictures of an audit: reconstructions, and who was in the training."""


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """What a report knows of one site."""

    name: str
    summary: Mapping[str, Any]  # its part of summary.json
    outcome: SiteOutcome
    account: Account | None  # None where its ledger is not there
    search: SearchRecord | None
    tuning: TuningRecord | None
    audit: SiteAudit | None
    pictures: Mapping[str, bytes]  # of its audit, by kind
    sent: tuple[tuple[str, int], ...]  # files that it sent, with their bytes


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a report knows of a run."""

    name: str  # of its folder
    summary: Mapping[str, Any]
    settings: Mapping[str, Any]  # its config.toml
    facts: Facts
    spec: NetworkSpec | None  # what all its networks share
    rounds: tuple[RoundRecord, ...]
    outcome: Outcome | None  # None of a hub's run, which has no accuracy
    sites: tuple[SiteFacts, ...]  # () of a hub's run
    audit: Mapping[str, Any] | None

    @property
    def is_hub(self) -> bool:
        """Whether its sites are elsewhere."""
        return self.outcome is None


def read_facts(run: Path, summary: Mapping[str, Any]) -> RunFacts:
    """Read a run's facts, given its summary."""
    config, view = load_config(run), RunView(run, load_config(run))
    audit = read_json(audit_file(run)) if audit_file(run).exists() else None
    hub = "clients" not in summary
    result = None if hub else outcome(summary, audit)
    sites: list[SiteFacts] = []
    if result is not None:
        audits = {a.name: a for a in RunAudit.from_json(audit).clients} if audit else {}
        paths = {p.name: p for p in read_sites(run)}
        for one, known in zip(summary["clients"], result.sites, strict=True):
            drawn = _pictures(audit_pictures(run), known.name) if known.name in audits else {}
            sites.append(_site(paths[known.name], one, known, audits.get(known.name), drawn))
    return RunFacts(
        name=run.resolve().name,
        summary=summary,
        settings=read_run(run),
        facts=view.facts,
        spec=None if hub else spec_of(config, view.facts),
        rounds=tuple(read_rounds(server_folder(run))),
        outcome=result,
        sites=tuple(sites),
        audit=audit,
    )


def _site(
    paths: SitePaths,
    summary: Mapping[str, Any],
    known: SiteOutcome,
    audit: SiteAudit | None,
    pictures: Mapping[str, bytes],
) -> SiteFacts:
    home = paths.home
    has_ledger = ledger_file(paths.folder).exists()
    return SiteFacts(
        name=paths.name,
        summary=summary,
        outcome=known,
        account=check_book(paths).account().as_owned(paths.run) if has_ledger else None,
        search=SearchRecord.read(home) if search_file(home).exists() else None,
        tuning=TuningRecord.read(home) if tune_file(home).exists() else None,
        audit=audit,
        pictures=pictures,
        sent=_sent(home / "releases"),
    )


def _pictures(folder: Path, name: str) -> dict[str, bytes]:
    files = {kind: folder / f"{name}-{kind}.png" for kind in KINDS}
    return {kind: file.read_bytes() for kind, file in files.items() if file.is_file()}


def _sent(folder: Path) -> tuple[tuple[str, int], ...]:
    files: Sequence[Path] = sorted(folder.glob("round-*")) if folder.is_dir() else []
    return tuple((file.name, file.stat().st_size) for file in files if file.is_file())
