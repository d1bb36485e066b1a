"""Several runs on one page: a table, two pictures, and what each came to."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from panas_cli.report.charts.rows import Row, dots, gains
from panas_cli.report.facts import RunFacts
from panas_cli.report.page import PRIVATE, VIEW, Short, anchor, environment, short_of
from panas_cli.report.table import Figure, Table, epsilon_text, share, without_folders
from panas_cli.text.printing import counted


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What the page of several runs shows."""

    title: str
    rows: tuple[tuple[str, ...], ...]  # cells of `COLUMNS`
    accuracies: Figure | None
    gains: Figure | None
    runs: tuple[tuple[str, Short], ...]  # a name for each, and its top
    notes: tuple[str, ...]

    @property
    def table(self) -> Table:
        """The rows, each with a link to its run's part of the page."""
        link = Markup('<a href="#{}">{}</a>').format
        rows = [
            (link(anchor(name, place), name), *cells)
            for place, (name, *cells) in enumerate(self.rows, start=1)
        ]
        return Table(caption="Runs", columns=COLUMNS, rows=tuple(rows), left=WORDS)


COLUMNS = (
    *("run", "data", "method", "preset", "audit"),
    *("sites", "epsilon", "joined", "baseline", "gain in points", "network", "seconds"),
)
WORDS = 5
"""Columns of words."""


def compare(runs: Sequence[RunFacts]) -> Compared:
    """What runs came to, beside each other, in the order given."""
    names = _names(runs)
    rows = [tuple(_cells(name, run)) for name, run in zip(names, runs, strict=True)]
    return Compared(
        title=f"{len(runs)} runs compared",
        rows=tuple(rows),
        accuracies=_accuracies(names, runs),
        gains=_gains(names, runs),
        runs=tuple((name, short_of(run, name)) for name, run in zip(names, runs, strict=True)),
        notes=(VIEW, PRIVATE),
    )


def compared_html(page: Compared) -> str:
    """The page of several runs."""
    return environment().get_template("compared.html").render(page=page, refresh=None)


def _names(runs: Sequence[RunFacts]) -> list[str]:
    """The names of their folders, with a number where two are equal."""
    times, seen, names = Counter(run.name for run in runs), Counter[str](), []
    for run in runs:
        seen[run.name] += 1
        names.append(f"{run.name} ({seen[run.name]})" if times[run.name] > 1 else run.name)
    return names


def _cells(name: str, run: RunFacts) -> Iterator[str]:
    s, result = run.summary, run.outcome
    yield name
    yield without_folders(s.get("dataset", "-"))
    yield s["method"]
    yield s["preset"]
    yield _verdict(run)
    yield f"{len(run.sites) or len(s.get('sites', ()))}"
    seconds = f"{sum(s['seconds'].values()):,.1f}"
    if result is None:
        yield from ("-", "-", "-", "-", "-", seconds)
        return
    yield epsilon_text(result.epsilon)
    yield share(result.means.get("joined"))
    yield share(result.best[1] if result.best else None)
    gain = result.gain
    yield f"{100 * gain.mean:+.1f} ± {100 * gain.error:.1f}" if gain else "-"
    yield share(result.means.get("network"))
    yield seconds


def _verdict(run: RunFacts) -> str:
    """The gravest verdict, and at how many sites."""
    audited = [s.outcome.verdicts for s in run.sites if s.outcome.verdicts]
    if not audited:
        return "no audit"
    leaks = sum("leaks" in verdicts for verdicts in audited)
    unclear = sum("inconclusive" in verdicts for verdicts in audited)
    if leaks:
        return f"leaks at {counted(leaks, 'site')}"
    return f"unclear at {counted(unclear, 'site')}" if unclear else "no leak"


def _accuracies(names: Sequence[str], runs: Sequence[RunFacts]) -> Figure | None:
    rows = []
    for name, run in zip(names, runs, strict=True):
        means = run.outcome.means if run.outcome else {}
        if (value := means.get("joined")) is not None:
            rows.append(Row(name=name, value=value, told=share(value), look="one", strong=True))
        if run.outcome and run.outcome.best:
            what, value = run.outcome.best
            rows.append(Row(name=what, value=value, told=share(value), look="two", mark="diamond"))
    if not rows:
        return None
    return Figure(
        picture=dots("Mean test accuracy", rows, (0.0, 1.0)),
        caption="Mean test accuracy of each run; below it, its strongest baseline",
    )


def _gains(names: Sequence[str], runs: Sequence[RunFacts]) -> Figure | None:
    rows = []
    for name, run in zip(names, runs, strict=True):
        gain = run.outcome.gain if run.outcome else None
        if gain is None or not math.isfinite(gain.error):
            continue
        mean, error = 100 * gain.mean, 100 * gain.error
        span = mean - 2 * error, mean + 2 * error
        told = f"{mean:+.1f} ± {error:.1f}"
        rows.append(Row(name=name, value=mean, told=told, look="one", span=span))
    if not rows:
        return None
    return Figure(
        picture=gains("Gain of joining in points", rows),
        caption="Gain of joining in points over the strongest baseline; lines span two errors",
    )
