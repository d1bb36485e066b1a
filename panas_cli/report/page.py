"""A report's page: everything that the templates show, and the file that they become."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dprbft.run.outcome import FEWEST, Outcome
from panas.privacy.release.exclusions import EXCLUSIONS
from panas_cli.report.audit import Findings, findings
from panas_cli.report.charts.rows import Row, bars
from panas_cli.report.facts import RunFacts
from panas_cli.report.privacy import Meaning, meaning
from panas_cli.report.repeat import Repeat, repeat
from panas_cli.report.site import SiteCard, site_card
from panas_cli.report.stages import Messages, Searched, Tuned, messages, searches, tunings
from panas_cli.report.table import Figure, Table, epsilon_text, share, without_folders
from panas_cli.text.ending import next_steps, sentences, warnings
from panas_cli.text.joining import span_text
from panas_cli.text.output import ELSEWHERE, releases_text
from panas_cli.text.printing import counted, figure

VIEW = "Accuracies are measured on test samples that no site would share."
"""Of a run on one machine."""
PRIVATE = (
    "This page is the simulator's view, and shows figures and pictures of private samples. It is "
    "for whoever may see them, and no release."
)


@dataclass(frozen=True, kw_only=True)
class Short:
    """The top of a page."""

    title: str
    subtitle: str
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    bars: Figure | None
    means: Table | None


@dataclass(frozen=True, kw_only=True)
class Page:
    """What the page of one run shows; None and () where the run has none."""

    short: Short
    notes: tuple[str, ...]
    lacking: tuple[str, ...]
    meaning: Meaning | None
    exclusions: tuple[str, ...]
    sites: tuple[SiteCard, ...]
    hub_sites: Table | None
    messages: Messages
    searches: tuple[Searched, ...]
    tunings: tuple[Tuned, ...]
    audit: Findings | None
    repeat: Repeat


def page_of(run: RunFacts) -> Page:
    """What a run's page shows."""
    result, classes = run.outcome, run.facts.class_names
    found, audit = tuple(searches(run)), findings(run)
    tuned = tuple(tunings(run))
    return Page(
        short=short_of(run),
        notes=(ELSEWHERE,) if run.is_hub else (VIEW, PRIVATE),
        lacking=tuple(_lacking(run, found, tuned, audit)),
        meaning=meaning(result) if result else None,
        exclusions=EXCLUSIONS,
        sites=tuple(site_card(site, classes) for site in run.sites),
        hub_sites=_hub_sites(run.summary) if run.is_hub else None,
        messages=messages(run),
        searches=found,
        tunings=tuned,
        audit=audit,
        repeat=repeat(run),
    )


def short_of(run: RunFacts, about: str = "") -> Short:
    """The top of a run's page; `about` names the run where a page has several."""
    s, result = run.summary, run.outcome
    if result is None:
        title = f"A hub's run by method {s['method']}"
        return Short(
            title=title,
            subtitle=f"{run.name}: preset {s['preset']}, {counted(len(s['sites']), 'site')}",
            sentences=tuple(_hub_sentences(s)),
            warnings=tuple(
                f"warning: {name} is not through with all stages" for name in s["absent"]
            ),
            bars=None,
            means=None,
        )
    spent = epsilon_text(result.epsilon)
    return Short(
        title=f"{without_folders(s['dataset'])}, method {s['method']}",
        subtitle=f"{run.name}: preset {s['preset']}, {counted(len(result.sites), 'site')}, epsilon "
        f"{spent} at delta {result.delta:g}",
        sentences=(
            *sentences(Path(run.name), s, result, run.audit),
            next_steps(Path(run.name))[-1],
        ),
        warnings=tuple(warnings(s, result)),
        bars=mean_bars(result),
        means=_site_table(result, about),
    )


def _hub_sentences(s: Mapping[str, Any]) -> list[str]:
    lines = [f"{counted(s['rounds'], 'round')} with {counted(len(s['sites']), 'site')}."]
    if head := s["head"]:
        lines.append(
            f"The shared head has accuracy {head['accuracy']:.3f} on "
            f"{counted(head['samples'], 'public sample')}, which it was made with."
        )
    return lines


def mean_bars(result: Outcome) -> Figure | None:
    """Mean accuracies without joining and with it; None where fewer than two are known."""
    if not result.steps:
        return None
    *below, last = result.steps
    looks = dict(zip(below, ("mute", "two"), strict=False)) | {last: "one"}
    known = [
        Row(name=name, value=value, told=_told(result, name, value), look=looks[name])
        for name, value in result.steps.items()
    ]
    known[-1] = replace(known[-1], strong=True)
    which, least = "sites", ""
    if not result.counts_all:
        which = f"{result.counted} of {len(result.sites)} sites"
        least = f", those with {FEWEST} test samples or more"
    drawn = bars(f"Mean accuracy over {which}", known)
    return Figure(picture=drawn, caption=f"Mean accuracy over {which}, on test samples{least}")


def _told(result: Outcome, name: str, value: float) -> str:
    gain = result.gain if name == "joined" else None
    return f"{share(value)}, {gain.text}" if gain else share(value)


def _site_table(result: Outcome, about: str) -> Table:
    names = [name for name in result.means if name not in ("majority", "joined", "network")]
    rows = [
        (
            s.name,
            f"{s.tests}",
            share(s.majority),
            *(share(s.baselines.get(name)) for name in names),
            share(s.joined),
            share(s.network),
            epsilon_text(s.epsilon),
        )
        for s in result.sites
    ]
    keys = ("majority", *names, "joined", "network")
    mean = "mean" if result.counts_all else f"mean of {result.counted}"
    rows.append((mean, "", *(share(result.means.get(key)) for key in keys), ""))
    return Table(
        caption="Test accuracy of each site",
        about=about,
        columns=("site", "test samples", *keys, "epsilon"),
        rows=tuple(rows),
        strong_last=True,
    )


def _hub_sites(summary: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            s["name"],
            ", ".join(s["through"]) or "-",
            f"{len(s['rounds'])}",
            releases_text(summary, s),
            span_text([m for m in s["noise_multipliers"] if m is not None], ".3g"),
            figure(s["epsilon_of_releases"], ".3g"),
        )
        for s in summary["sites"]
    )
    columns = ("site", "through", "rounds", "releases", "noise multiplier", "epsilon of them")
    return Table(caption="Sites, as the hub knows them", columns=columns, rows=rows, left=2)


def _lacking(
    run: RunFacts,
    found: Sequence[Searched],
    tuned: Sequence[Tuned],
    audit: Findings | None,
) -> list[str]:
    """A line for each part that the run does not have."""
    lines = []
    if run.is_hub:
        return ["Accuracies, ledgers, searches and tuning stay with the sites: they are not here."]
    if not found:
        lines.append("No architecture was searched in this run.")
    if not tuned:
        lines.append("No DP-SGD settings were tuned in this run.")
    if audit is None:
        lines.append("No audit was made of this run.")
    return lines


SCRIPT = (
    "addEventListener('beforeprint',()=>document.querySelectorAll('details').forEach("
    "d=>{d.open=true}))"
)
"""All parts are printed, folded ones too."""


@cache
def environment() -> Environment:
    """The templates; what they show is escaped."""
    result = Environment(
        loader=PackageLoader("panas_cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode("ascii")
    result.globals |= {"script": SCRIPT, "script_hash": f"sha256-{digest}"}
    result.filters |= {"anchor": anchor, "code": code}
    return result


def anchor(name: str, place: int) -> str:
    """An id for a place in the page, with the letters of a name; the number makes it unique."""
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40] or 'part'}-{place}"


def code(words: str) -> Markup:
    """Words in which what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(words))))


def html_of(page: Page) -> str:
    """The page of one run."""
    return environment().get_template("run.html").render(page=page, refresh=None)
