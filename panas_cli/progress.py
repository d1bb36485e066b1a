"""Progress on stderr: bars and a live table on a terminal, plain timed lines elsewhere."""

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from dprbft.run.events import Event
from dprbft.run.progress.forecast import Forecast
from dprbft.run.progress.logs import Progress as Following
from panas_cli.text.printing import print_words
from panas_cli.text.sentences import sentence
from panas_cli.tracks import (
    EVERY,
    Cell,
    Remaining,
    Track,
    about,
    fitting,
    generation_cells,
    trial_cells,
)

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
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._began = self._freed = self._shown_at = clock()
        self._stage = ""
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
            if self._bar is None:
                self._line(TITLES[name])
                return
            self._fill()
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
                self._line(text)
                self._show_left()
                return
            self._bar.advance(self._bar.task_ids[-1])
            print_words(f"  {text}", self._bar.console)
            self._show()

    def generation(
        self, site: str, record: Mapping[str, Any], total: int, *, live: bool = True
    ) -> None:
        """Show one generation: a line of a search's log; `live` if it ran just now."""
        self._step(site, record, generation_cells, record["generation"], total, live)

    def candidates(self, site: str, scored: int, at_most: int, generations: int) -> None:
        """Show how many candidates a search has scored, of so many in all at most."""
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
        """Show one trial: a line of a tuning's log; `live` if it ran just now."""
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
        """Show a line that is no part of a stage."""
        print_words(text, self._console)

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
            elif live:
                cells = [f"{name} {text:>{width}}" for name, text, width in track.cells]
                left = f"{track.left} left" if track.left else ""
                width = max(map(len, self._tracks)) + 1
                self._line("  ".join([f"{site}:".ljust(width), *cells, left]).rstrip())
                self._show_left()

    def _show_left(self) -> None:
        if self._remaining and (text := self._remaining.now_and_then(self._tracks, self._clock())):
            self._line(text)

    def _show(self) -> None:
        assert self._live is not None
        assert self._bar is not None
        shown = fitting(self._tracks, self._console)
        left = self._remaining.text(self._tracks, self._clock()) if self._remaining else ""
        parts: list[Any] = [self._bar, *([shown] if shown else []), *([Text(left)] if left else [])]
        self._live.update(Group(*parts))

    def _line(self, text: str) -> None:
        self._shown_at = self._clock()
        seconds = self._clock() - self._began
        line = f"[{seconds:7.1f} s] {self._stage}: {text}"
        print_words(line, self._console)

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None and self._bar is not None:
            if error is None:
                self._fill()
            self._live.update(self._bar)
            self._live.stop()
