"""Progress on stderr: bars and a live table on a terminal, plain timed lines elsewhere.

What is left is guessed from the sample-passes so far (evaluations, where nobody counts passes; or
trials): those still to come are taken to be like those before, and to go as fast.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from dprbft.run.events import Event
from dprbft.run.progress.encoding import Encoded, watch_encoding
from dprbft.run.progress.forecast import Forecast
from dprbft.run.progress.logs import Progress as Following
from panas_cli.text.printing import print_words
from panas_cli.text.sentences import MISSED, sentence

EVERY = 30.0
"""Seconds between two lines that say what is left, where there is no terminal."""
CALM = 2.0
"""Seconds that a line of a log waits for after the one before; the last of a stage never waits."""
MOST_ROWS = 8
"""Sites shown at once."""
WIDEST = 20
"""Columns for a site's name on a terminal; a longer one is cut."""
ESSENTIAL = ("generation", "trial", "best")
"""Columns that a narrow terminal shows."""
LOGGED = (*ESSENTIAL, "value", "tried")
"""Columns of a log."""
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
        """Add a record.

        Args:
            record: a line of the site's log.
            step: that it ends, from 1.
            total: steps of the stage.
            now: seconds, on the clock of `since`.
            live: whether it was written just now, not before this process began.
        """
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
        """Add how many candidates have been scored; whether they are the first of the search.

        Args:
            candidates: scored so far, at least 1.
            at_most: in all.
            generations: of the search.
            now: seconds, on the clock of `since`.
        """
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


TITLES = {
    "join": "joining: one release a site, one shared head",
    "search": "architecture search",
    "tune": "DP-SGD settings",
    "train": "training",
    "audit": "attacks",
}


class Display:
    """Shows which stage runs, how far it and its sites are, and each line that it reports.

    Its methods may be called from any thread.

    Args:
        console: where to; None: stderr.
        clock: seconds.
        brief: whether a terminal keeps warnings alone; of other lines it shows the last, below the
            bars.

    """

    def __init__(
        self,
        console: Console | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        brief: bool = False,
    ) -> None:
        self._brief, self._last = brief, ""
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._began = self._freed = self._shown_at = clock()
        self._stage = ""
        self._reports = self._total = 0  # of the stage
        self._steps: set[str] = set()  # that a line was due of
        self._tracks: dict[str, Track] = {}
        self._remaining: Remaining | None = None
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._live: Live | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._live = Live(self._bar, console=self._console, refresh_per_second=4)

    def forecast(self, forecast: Forecast) -> None:
        """Say how long all will take, and from now on what of it is left."""
        self._remaining = Remaining(forecast, self._clock())
        self.say(f"time: {about(forecast.total)} in all")

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of `total` reports."""
        with self._lock:
            self._stage = name
            if self._remaining:
                self._remaining.stage(name, total)
            self._tracks.clear()
            self._freed = self._clock()
            self._reports, self._total = 0, total
            self._steps.clear()
            if self._bar is None:
                self._line(TITLES[name])
                return
            self._fill()
            self._last = ""
            self._bar.add_task(TITLES[name], total=total)
            self._show()

    def _fill(self) -> None:
        """Show stages that are over as done, whatever had been counted on."""
        assert self._bar is not None
        for task in self._bar.task_ids:
            self._bar.update(task, total=self._bar.tasks[task].completed)

    def report(self, text: str) -> None:
        """Show a line, and move the bar by one."""
        with self._lock:
            self._freed = self._clock()
            self._tracks = {c: t for c, t in self._tracks.items() if not t.finished}
            if self._remaining:
                self._remaining.report()
            if self._bar is None:
                self._reports += 1
                if text.startswith("warning") or self._reports >= self._total or self._is_calm():
                    self._line(f"{self._reports}/{self._total} {text}")
                self._show_left()
                return
            self._bar.advance(self._bar.task_ids[-1])
            if self._brief and not text.startswith("warning") and MISSED not in text:
                self._last = text
            else:
                print_words(f"  {text}", self._bar.console)
            self._show()

    def generation(
        self, site: str, record: Mapping[str, Any], total: int, *, live: bool = True
    ) -> None:
        """Show one generation.

        Args:
            site: name of the site.
            record: a line of a search's log.
            total: generations of the search.
            live: whether it ran just now.
        """
        self._step(site, record, generation_cells, record["generation"], total, live)

    def candidates(self, site: str, scored: int, at_most: int, generations: int) -> None:
        """Show how many candidates a search has scored.

        Args:
            site: name of the site.
            scored: candidates so far.
            at_most: candidates in all.
            generations: of the search.
        """
        with self._lock:
            track = self._tracks.setdefault(site, Track(self._freed))
            first = track.scored(scored, at_most, generations, self._clock())
            track.cells = generation_cells(track)
            if self._bar is not None:
                self._show()
            elif not track.records and (first or self._clock() - self._shown_at >= EVERY):
                left = f", {track.left} left" if track.left else ""
                self._line(f"{site}: {scored} of at most {at_most} candidates{left}")

    def trial(self, site: str, record: Mapping[str, Any], total: int, *, live: bool = True) -> None:
        """Show one trial.

        Args:
            site: name of the site.
            record: a line of a tuning's log.
            total: trials of the tuning.
            live: whether it ran just now.
        """
        self._step(site, record, trial_cells, record["number"] + 1, total, live)

    def generations(self, total: int) -> Following:
        """What hears of the lines of searches' logs, each of so many generations."""

        def follow(site: str, line: Mapping[str, Any], live: bool) -> None:
            if "candidates" not in line:
                self.generation(site, line, total, live=live)
            elif live:
                self.candidates(site, line["candidates"], line["at_most"], total)

        return follow

    def trials(self, total: int) -> Following:
        """What hears of the lines of tunings' logs, each of so many trials."""
        return lambda site, line, live: self.trial(site, line["trial"], total, live=live)

    def event(self, event: Event) -> None:
        """Show an event of a run, and move the bar by one if there is one."""
        (self.report if self._stage else self.say)(sentence(event))

    def say(self, text: str) -> None:
        """Show a line that is no part of a stage; one with a path, or a warning, stays whole."""
        whole = text.startswith(("warning", "run directory", "audit.json"))
        print_words(text, self._console, whole=whole)

    def _step(
        self,
        site: str,
        record: Mapping[str, Any],
        describe: "Callable[[Track], list[Cell]]",
        step: int,
        total: int,
        live: bool,
    ) -> None:
        with self._lock:
            track = self._tracks.setdefault(site, Track(self._freed))
            track.take(record, step, total, self._clock(), live)
            track.cells = describe(track)
            if self._bar is not None:
                self._show()
            elif live and self._is_news(record, step == total):
                cells = [
                    f"{name} {text:>{width}}"
                    for name, text, width in track.cells
                    if name in LOGGED or (name == "failed" and int(text))
                ]
                left = f"{track.left} left" if track.left else ""
                width = max(map(len, self._tracks)) + 1
                self._line("  ".join([f"{site}:".ljust(width), *cells, left]).rstrip())
                self._show_left()

    def _is_news(self, record: Mapping[str, Any], last: bool) -> bool:
        """Whether a line is due of a step that no other site has taken for all."""
        step = str([record.get(key) for key in ("generation", "best", "best_genome", "number")])
        new = step not in self._steps or "number" in record
        self._steps.add(step)
        return new and (last or self._is_calm())

    def _is_calm(self) -> bool:
        """Whether the last line of the log is long enough ago."""
        return self._clock() - self._shown_at >= CALM

    def _show_left(self) -> None:
        if self._remaining and (text := self._remaining.now_and_then(self._tracks, self._clock())):
            self._line(text)

    def _show(self) -> None:
        assert self._live is not None
        assert self._bar is not None
        shown = fitting(self._tracks, self._console)
        left = self._remaining.text(self._tracks, self._clock()) if self._remaining else ""
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in (self._last, left)]
        below = [line for line in lines if line.plain]
        self._live.update(Group(self._bar, *([shown] if shown else []), *below))

    def _line(self, text: str) -> None:
        self._shown_at = self._clock()
        seconds = self._clock() - self._began
        line = f"[{seconds:7.1f} s] {self._stage}: {text}"
        print_words(line, self._console, whole=True)

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is not None and self._bar is not None:
            if kind is None:
                self._fill()
            self._live.update(self._bar)
            self._live.stop()


@contextmanager
def encoding_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar of how many pictures are encoded, and the time that is left, while the block lasts.

    It comes up with the first picture; without a terminal, lines say the same now and then.
    """
    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(TextColumn("[bold]pictures encoded"), *columns, console=console)
    began = last = time.monotonic()

    def show(done: int, of: int) -> None:
        nonlocal last
        if console.is_terminal:
            if not bar.task_ids:
                bar.start()
                bar.add_task("", total=of)
            bar.update(bar.task_ids[0], completed=done)
        elif time.monotonic() - last >= EVERY:
            last = time.monotonic()
            left = (last - began) / done * (of - done)
            print_words(encoded_text(Encoded("", done, of, left)), console)

    try:
        yield show
    finally:
        if bar.task_ids:
            bar.stop()


def encoded_text(encoded: Encoded) -> str:
    """How many pictures are encoded, and what is left."""
    left = "" if encoded.left is None else f", {about(encoded.left)} left"
    whose = f"{encoded.whose}: " if encoded.whose else ""
    return f"{whose}{encoded.done:,} of {encoded.of:,} pictures encoded{left}"


@contextmanager
def encoding_shown(
    folders: Mapping[str, Path], say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Say now and then how far the encoding of pictures is, while the block lasts.

    Args:
        folders: of embeddings, by whose they are.
        say: shows a line; None: on stderr.
    """
    console, last = Console(stderr=True, highlight=False), dict[str, float]()

    def tell(encoded: Encoded) -> None:
        now = time.monotonic()
        if now - last.get(encoded.whose, -EVERY) >= EVERY and encoded.left is not None:
            last[encoded.whose] = now
            text = encoded_text(encoded)
            say(text) if say else print_words(text, console)

    with watch_encoding(folders, tell):
        yield
