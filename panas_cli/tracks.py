"""How far sites are with their search or tuning, and what is left, as lines of a table.

What is left is guessed from the sample-passes so far (evaluations, where nobody counts passes; or
trials): those still to come are taken to be like those before, and to go as fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dprbft.run.progress.forecast import Forecast

EVERY = 30.0
"""Seconds between two lines that say what is left, where there is no terminal."""
MOST_ROWS = 8
"""Sites shown at once."""
WIDEST = 20
"""Columns for a site's name on a terminal; a longer one is cut."""
ESSENTIAL = ("generation", "trial", "best")
"""Columns that a narrow terminal shows."""
Cell = tuple[str, str, int]
"""Name, text, and the least width that keeps lines below each other aligned."""


@dataclass
class Track:
    """How far one site is, and how fast it goes."""

    since: float  # the time, in seconds, from which its speed is measured
    records: list[Mapping[str, Any]] = field(default_factory=list)
    before: int = 0  # work that was done before `since`
    ran: bool = False  # whether a record came while this process looked on
    step: int = 0
    total: int = 0
    left: str = ""  # what is left, in words; empty where nothing can be said
    cells: list[Cell] = field(default_factory=list)
    candidates: int = 0  # scored so far, those of the generation under way included
    at_most: int = 0  # in all; 0 where nobody counts

    @property
    def finished(self) -> bool:
        """Whether the last record has come."""
        return bool(self.records) and self.step >= self.total

    @property
    def share(self) -> float:
        """How much is done, in [0, 1]: by candidates where they are counted."""
        if self.at_most and not self.finished:
            return self.candidates / self.at_most
        return self.step / max(1, self.total)

    def take(
        self, record: Mapping[str, Any], step: int, total: int, now: float, live: bool
    ) -> None:
        """Add a record: step of total, at a time, just written (`live`) or before."""
        self.records.append(record)
        self.step, self.total = step, total
        if not live:
            self.since, self.before = now, self._work()[-1]
        work = self._work()
        fresh, seconds = work[-1] - self.before, now - self.since
        # The first generation is unlike the others: everybody in it is new.
        later = (work[-1] - work[0]) / (len(work) - 1) if len(work) > 1 else work[0]
        known = live and fresh > 0 and seconds > 0 and not self.finished
        self.left = about(seconds / fresh * later * (total - step)) if known else ""
        if live and not self.ran:  # from now on, without what a process takes to start
            self.since, self.before, self.ran = now, work[-1], True

    def scored(self, candidates: int, at_most: int, generations: int, now: float) -> bool:
        """Add how many candidates have been scored; whether they are the first of the search."""
        first = not self.candidates
        self.candidates, self.at_most, self.total = candidates, at_most, generations
        if not self.records:
            seconds = (now - self.since) / candidates * (at_most - candidates)
            self.left = about(seconds) if seconds > 0 else ""
        return first

    def _work(self) -> list[int]:
        if "passes" not in self.records[0]:
            return [k + 1 for k in range(len(self.records))]
        if self.records[-1]["passes"]:
            return [r["passes"] for r in self.records]
        return [self.sum("evaluations", k + 1) for k in range(len(self.records))]

    def sum(self, key: str, records: int | None = None) -> int:
        """Sum of a field over the first records, or all."""
        return sum(r[key] for r in self.records[:records])


class Remaining:
    """What is left of a forecast run, in words."""

    def __init__(self, forecast: Forecast, now: float) -> None:
        self._forecast, self._began, self._shown_at = forecast, now, now
        self._stage, self._total, self._reports = "", 1, 0

    def stage(self, name: str, total: int) -> None:
        """A stage of `total` reports begins."""
        self._stage, self._total, self._reports = name, max(1, total), 0

    def report(self) -> None:
        """One of its reports has come."""
        self._reports += 1

    def text(self, tracks: Mapping[str, Track], now: float) -> str:
        """What is left, such as "about 3 min left in all"; empty where nothing is known."""
        if self._stage not in self._forecast.seconds:
            return ""
        steps = [track.share for track in tracks.values()]
        if self._stage in self._forecast.serve_all:
            share = 1.0 if self._reports else max(steps, default=0.0)
        else:
            share = min(1.0, (self._reports + sum(steps)) / self._total)
        if share == 1 and self._stage == list(self._forecast.seconds)[-1]:
            return ""
        left = self._forecast.left(self._stage, share, now - self._began)
        return f"{about(left)} left in all"

    def now_and_then(self, tracks: Mapping[str, Track], now: float) -> str:
        """The same, at most once in `EVERY` seconds, else empty."""
        if now - self._shown_at < EVERY:
            return ""
        self._shown_at = now
        return self.text(tracks, now)


def about(seconds: float) -> str:
    """A rough duration in words, such as "about 3 min"."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 55:
        return f"about {round(seconds, -1):.0f} s"
    if seconds < 55 * 60:
        return f"about {max(1, round(seconds / 60))} min"
    if seconds < 36 * 3600:
        return f"about {max(1, round(seconds / 3600))} h"
    return f"about {round(seconds / 86400)} days"


def generation_cells(track: Track) -> list[Cell]:
    """What a line says of a search."""
    last = track.records[-1] if track.records else None
    tried = max(track.candidates, track.sum("evaluations"))
    counts = {key: track.sum(key) for key in ("cached", "dropped", "failed")}
    return [
        ("generation", f"{track.step}/{track.total}", 2 * len(str(track.total)) + 1),
        ("best", f"{last['best']:.3f}" if last else "-", 5),
        ("mean", f"{last['mean']:.3f}" if last else "-", 5),
        ("tried", str(tried), 3),
        *((name, str(count), 3) for name, count in counts.items()),
    ]


def trial_cells(track: Track) -> list[Cell]:
    """What a line says of a tuning."""
    done = [r["value"] for r in track.records if r["status"] == "done"]
    last = track.records[-1]
    value = f"{last['value']:.3f}" if last["status"] == "done" else "-"
    status = [r["status"] for r in track.records]
    return [
        ("trial", f"{track.step}/{track.total}", 2 * len(str(track.total)) + 1),
        ("value", value, 5),
        ("best", f"{max(done):.3f}" if done else "-", 5),
        ("failed", str(status.count("failed")), 2),
        ("over budget", str(status.count("over budget")), 2),
    ]


def fitting(tracks: Mapping[str, Track], console: Console) -> Table | None:
    """A line a site that is under way, with the essentials alone where all does not fit."""
    if not tracks:
        return None
    whole = _table(tracks, narrow=False)
    wide = console.options.update(max_width=10 * console.width)
    fits = console.measure(whole, options=wide).maximum <= console.width
    return whole if fits else _table(tracks, narrow=True)


def _table(tracks: Mapping[str, Track], *, narrow: bool) -> Table:
    shown = sorted(tracks.items())[:MOST_ROWS]
    cells = {site: [c for c in t.cells if not narrow or c[0] in ESSENTIAL] for site, t in shown}
    names = ["site", *(name for name, _, _ in cells[shown[0][0]])]
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, max_width=WIDEST)
    for _ in names[1:]:
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(*(Text(name, style="dim") for name in (*names, "time left")))
    for site, track in shown:
        table.add_row(Text(site), *(text for _, text, _ in cells[site]), track.left)
    if len(tracks) > MOST_ROWS:
        table.add_row(Text(f"+ {len(tracks) - MOST_ROWS}", style="dim"))
    return table
