"""Progress on stderr: bars and a live table on a terminal, plain lines elsewhere.

A stage has a bar, which each report moves by one. While clients search or tune, a line of the table
below the bar says how far each is; without a terminal, each generation or trial is one plain line.
What is left is guessed from the sample-passes so far (evaluations, where nobody counts passes; or
trials): those still to come are taken to be like those before, and to go as fast.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dprbft.config.schema import RunConfig
from dprbft.events import (
    ClientSearched,
    ClientStarted,
    ClientTrained,
    ClientTuned,
    Event,
    RoundEnded,
)
from dprbft.run.progress import Progress as Following
from panas.search_modes.mode import SearchPrice, mode_named

TITLES = {
    "search": "architecture search",
    "tune": "DP-SGD settings",
    "train": "federated training",
    "audit": "attacks",
}
MOST_ROWS, NARROW = 8, 79
"""Clients shown at once; columns of a terminal below which the table keeps to the essentials."""
ESSENTIAL = ("generation", "trial", "best")
Cell = tuple[str, str, int]
"""Name, text, and the least width that keeps lines below each other aligned."""


class Display:
    """Shows which stage runs, how far it and its clients are, and each line that it reports.

    Its methods may be called from any thread.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._began = self._freed = clock()
        self._stage = ""
        self._tracks: dict[int, _Track] = {}
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

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of `total` reports."""
        with self._lock:
            self._stage = name
            self._tracks.clear()
            self._freed = self._clock()
            if self._bar is None:
                self._line(TITLES[name])
                return
            for task in self._bar.task_ids:
                self._bar.update(task, total=self._bar.tasks[task].completed)
            self._bar.add_task(TITLES[name], total=total)
            self._show()

    def report(self, text: str) -> None:
        """Show a line, and move the bar by one."""
        with self._lock:
            self._freed = self._clock()
            self._tracks = {c: t for c, t in self._tracks.items() if not t.finished}
            if self._bar is None:
                self._line(text)
                return
            self._bar.advance(self._bar.task_ids[-1])
            self._bar.console.print(f"  {text}", markup=False, soft_wrap=True)
            self._show()

    def generation(
        self, client: int, record: Mapping[str, Any], total: int, *, live: bool = True
    ) -> None:
        """Show one generation of a client's search.

        Args:
            client: whose.
            record: a `panas.evolution.records.GenerationRecord`; each is given once, in order.
            total: number of the last generation.
            live: whether it ran just now, and not before an interruption.

        """
        self._step(client, record, _generation, record["generation"], total, live)

    def trial(
        self, client: int, record: Mapping[str, Any], total: int, *, live: bool = True
    ) -> None:
        """Show one trial of a client's tuning.

        Args:
            client: whose.
            record: number, value and status, as in `panas.tuning.trial.TrialRecord`; each is given
                once.
            total: number of trials.
            live: whether it ran just now, and not before an interruption.

        """
        self._step(client, record, _trial, record["number"] + 1, total, live)

    def generations(self, total: int) -> Following:
        """What hears of the lines of searches' logs, each of so many generations."""
        return lambda client, line, live: self.generation(client, line, total, live=live)

    def trials(self, total: int) -> Following:
        """What hears of the lines of tunings' logs, each of so many trials."""
        return lambda client, line, live: self.trial(client, line["trial"], total, live=live)

    def event(self, event: Event) -> None:
        """Show an event of a run, and move the bar by one."""
        self.report(sentence(event))

    def say(self, text: str) -> None:
        """Show a line that is no part of a stage."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _step(
        self,
        client: int,
        record: Mapping[str, Any],
        describe: "Callable[[_Track], list[Cell]]",
        step: int,
        total: int,
        live: bool,
    ) -> None:
        with self._lock:
            track = self._tracks.setdefault(client, _Track(self._freed))
            track.take(record, step, total, self._clock(), live)
            track.cells = describe(track)
            if self._bar is not None:
                self._show()
            elif live:
                cells = [f"{name} {text:>{width}}" for name, text, width in track.cells]
                left = f"{track.left} left" if track.left else ""
                self._line("  ".join([f"client {client:>2}:", *cells, left]).rstrip())

    def _show(self) -> None:
        assert self._live is not None
        assert self._bar is not None
        table = _table(self._tracks, self._console.width < NARROW)
        self._live.update(Group(self._bar, table) if table else self._bar)

    def _line(self, text: str) -> None:
        seconds = self._clock() - self._began
        line = f"[{seconds:7.1f} s] {self._stage}: {text}"
        self._console.print(line, markup=False, soft_wrap=True)

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
            self._live.update(self._bar)
            self._live.stop()


def sentence(event: Event) -> str:
    """An event in words."""
    match event:
        case ClientSearched(r):
            of = "" if mode_named(r.mode).reads_samples else " (on noise)"
            return f"client {r.client}: {r.genome}, fitness {r.fitness:.3f}{of}"
        case ClientTuned(r):
            s, noise = r.settings, r.noise_multiplier
            sigma = f"sigma {noise:.3g}" if noise else "least sigma"
            kept = "" if r.trials else "not tuned: "
            return (
                f"client {r.client}: {kept}lr {s.learning_rate:.3g}, {sigma}, C {s.clip:.3g}, "
                f"B {s.batch_size}"
            )
        case ClientStarted(client, validation):
            return f"client {client}: starts at validation accuracy {validation:.3f}"
        case ClientTrained(client, round):
            return f"round {round}: client {client} trained"
        case RoundEnded(round, rounds, accuracy):
            return f"round {round} of {rounds}: mean accuracy {accuracy:.3f}"


HISTOGRAMS = {
    "histogram": "one noised label histogram",
    "histogram kept": "a noised label histogram, paid already",
    "no histogram": "no histogram: all classes alike",
}
"""What a search on public samples pays for."""


def price_lines(prices: Mapping[int, SearchPrice], config: RunConfig) -> list[str]:
    """What searches will have cost: one line, or one a client if they differ."""
    budgets, mode = config.budgets(), config.privacy.search
    texts = {i: _price(p, mode, budgets[i].epsilon) for i, p in prices.items()}
    if len(set(texts.values())) == 1:
        return [f"search price: {next(iter(texts.values()))}"]
    return [f"search price, client {i}: {text}" for i, text in texts.items()]


def _price(price: SearchPrice, mode: str, budget: float) -> str:
    if price.reason == "noise":
        return f"epsilon 0 ({mode} search: genomes are scored on noise)"
    if price.reason == "unbounded":
        return f"epsilon infinity ({mode} search: nothing bounds it)"
    text = f"epsilon {price.epsilon:.2f} of {budget:g}"
    if price.reason in HISTOGRAMS:
        return f"{text}, for {HISTOGRAMS[price.reason]} (search on proxies of public data)"
    return f"{text} ({mode} search: {price.reason})"


@dataclass
class _Track:
    """How far one client is, and how fast it goes.

    Attributes:
        since: the time, in seconds, from which its speed is measured.
        records: those so far.
        before: work that was done before `since`.
        ran: whether a record came while this process looked on.
        left: what is left, in words; empty where nothing can be said.

    """

    since: float
    records: list[Mapping[str, Any]] = field(default_factory=list)
    before: int = 0
    ran: bool = False
    step: int = 0
    total: int = 0
    left: str = ""
    cells: list[Cell] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.step >= self.total

    def take(
        self, record: Mapping[str, Any], step: int, total: int, now: float, live: bool
    ) -> None:
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

    def _work(self) -> list[int]:
        """Work after each record."""
        if "passes" not in self.records[0]:
            return [k + 1 for k in range(len(self.records))]
        if self.records[-1]["passes"]:
            return [r["passes"] for r in self.records]
        return [self.sum("evaluations", k + 1) for k in range(len(self.records))]

    def sum(self, key: str, records: int | None = None) -> int:
        return sum(r[key] for r in self.records[:records])


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


def _generation(track: _Track) -> list[Cell]:
    last = track.records[-1]
    counts = (track.sum(key) for key in ("evaluations", "cached", "dropped", "failed"))
    names = ("tried", "cached", "dropped", "failed")
    return [
        ("generation", f"{track.step}/{track.total}", 2 * len(str(track.total)) + 1),
        ("best", f"{last['best']:.3f}", 5),
        ("mean", f"{last['mean']:.3f}", 5),
        *((name, str(count), 3) for name, count in zip(names, counts, strict=True)),
    ]


def _trial(track: _Track) -> list[Cell]:
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


def _table(tracks: Mapping[int, _Track], narrow: bool) -> Table | None:
    """A line a client that is under way."""
    if not tracks:
        return None
    shown = sorted(tracks.items())[:MOST_ROWS]
    cells = {client: [c for c in t.cells if not narrow or c[0] in ESSENTIAL] for client, t in shown}
    names = ["client", *(name for name, _, _ in cells[shown[0][0]])]
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in names:
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row(*(Text(name, style="dim") for name in (*names, "time left")))
    for client, track in shown:
        table.add_row(str(client), *(text for _, text, _ in cells[client]), track.left)
    if len(tracks) > MOST_ROWS:
        table.add_row(Text(f"+ {len(tracks) - MOST_ROWS}", style="dim"))
    return table
