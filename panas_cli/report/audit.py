"""What an audit found: verdicts first, then attacks beside their controls, and pictures."""

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attacks.audit.records import SiteAudit
from attacks.reconstruction.metrics import ReconstructionScore
from panas_cli.report.facts import RunFacts, SiteFacts
from panas_cli.report.table import Table

MOST_BYTES = 3_000_000
"""Of all pictures as text, so that a page stays below 5 MB."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG within the page."""

    address: str  # a data URI
    alt: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class SiteFindings:
    """One site's attacks, controls and pictures."""

    name: str
    lines: tuple[str, ...]
    scores: Table | None
    membership: Table | None
    pictures: tuple[Picture, ...]
    is_open: bool  # a leak is shown at once


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the audit of a run found."""

    verdicts: Table
    sites: tuple[SiteFindings, ...]
    left_out: int  # pictures for which the page has no room
    has_pictures: bool


def findings(run: RunFacts) -> Findings | None:
    """The audit's findings; None where none was made."""
    audited = [(s, s.audit) for s in run.sites if s.audit is not None]
    if not audited:
        return None
    room, left_out, sites = MOST_BYTES, 0, []
    for site, audit in audited:
        pictures = []
        for picture in _pictures(site, audit):
            if len(picture.address) <= room:
                room -= len(picture.address)
                pictures.append(picture)
            else:
                left_out += 1
        sites.append(_findings(site, audit, pictures))
    rows = tuple(
        (s.name, a.release or "-", a.verdict, a.network.verdict if a.network else "not audited")
        for s, a in audited
    )
    columns = ("site", "release", "what it sent", "its network")
    return Findings(
        verdicts=Table(caption="Verdicts", columns=columns, rows=rows, left=4),
        sites=tuple(sites),
        left_out=left_out,
        has_pictures=any(s.pictures for s in sites),
    )


def _findings(site: SiteFacts, audit: SiteAudit, pictures: Sequence[Picture]) -> SiteFindings:
    lines = [f"What it sent: {audit.verdict}. {_sentence(audit.evidence)}"]
    if n := audit.network:
        lines.append(f"Its network: {n.verdict}. {_sentence(n.evidence)}")
    network = audit.network
    return SiteFindings(
        name=site.name,
        lines=tuple(lines),
        scores=_scores(site.name, audit),
        membership=_membership(site.name, audit),
        pictures=tuple(pictures),
        is_open="leaks" in (audit.verdict, network.verdict if network else ""),
    )


def _sentence(evidence: str) -> str:
    return f"{evidence[:1].upper()}{evidence[1:]}."


def _scores(name: str, audit: SiteAudit) -> Table | None:
    """Attacks from the best down, then controls; None where nothing was reconstructed."""
    if not audit.attacks:
        return None
    rows = []
    for kind, scores in (("attack", audit.attacks), ("control", audit.controls)):
        for s in sorted(scores, key=lambda s: -s.r2 if math.isfinite(s.r2) else math.inf):
            best = ", the best" if s is audit.best else ", the bar" if s is audit.bar else ""
            rows.append(tuple(_cells(f"{kind}{best}", s)))
    return Table(
        about=name,
        caption="Reconstruction of training samples: R^2 is 1 if perfect, 0 for the mean public "
        "sample",
        columns=("by", "kind", "knows", "R^2", "95 % interval", "found among 10"),
        rows=tuple(rows),
        left=3,
    )


def _cells(kind: str, s: ReconstructionScore) -> Iterator[str]:
    yield s.name
    yield kind
    yield s.threat or "-"
    yield _two(s.r2)
    low, high = s.intervals.get("r2", (math.nan, math.nan))
    yield f"{_two(low)} to {_two(high)}"
    yield _two(s.reidentified)


def _membership(site: str, audit: SiteAudit) -> Table | None:
    """Attacks on the network beside who never asked it; None where it was not audited."""
    if audit.network is None:
        return None
    n, rows = audit.network, []
    for name, curve in n.curves.items():
        low, high = curve.auc_interval
        found = f"{curve.points[0].tpr:.1%}" if curve.points else "-"
        rows.append((name, "attack", _two(curve.auc), f"{_two(low)} to {_two(high)}", found))
    blind = math.nan if n.blind_area is None else n.blind_area
    rows.append(("blind", "control", _two(blind), "-", "-"))
    return Table(
        about=site,
        caption=f"Membership of {n.members} training samples among {n.others} others: an area of "
        "0.5 is chance",
        columns=("by", "kind", "area under the curve", "interval", "found at 1 % false alarms"),
        rows=tuple(rows),
        left=2,
    )


def _two(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _pictures(site: SiteFacts, audit: SiteAudit) -> Iterator[Picture]:
    for kind, content in site.pictures.items():
        address = f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}"
        if kind == "images":
            names = ", ".join(s.name for s in audit.attacks)
            yield Picture(
                address=address,
                alt=f"Private samples of {site.name} first, then what each attack ({names}) and "
                f"each control makes of them. Verdict: {audit.verdict}.",
                caption="Originals, then attacks and controls",
            )
        elif audit.network:
            areas = ", ".join(f"{k} {_two(c.auc)}" for k, c in audit.network.curves.items())
            yield Picture(
                address=address,
                alt=f"Membership curves of the network of {site.name}, both axes logarithmic. "
                f"Areas: {areas}. Verdict: {audit.network.verdict}.",
                caption="Share of members found against share of false alarms, with the control",
            )
