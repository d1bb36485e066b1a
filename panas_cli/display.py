"""Progress on stderr: a bar on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

TITLES = {
    "search": "architecture search",
    "tune": "DP-SGD settings",
    "train": "federated training",
    "audit": "attacks",
}


class Display:
    """Shows which stage runs, how far it is, and each line that it reports."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._began = time.perf_counter()
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self._console,
            )
        self._stage = ""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of `total` reports."""
        self._stage = name
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.update(task, total=self._bar.tasks[task].completed)
            self._bar.add_task(TITLES[name], total=total)
        else:
            self._line(TITLES[name])

    def report(self, text: str) -> None:
        """Show a line, and move the bar by one."""
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[-1])
            self._bar.console.print(f"  {text}", markup=False, soft_wrap=True)
        else:
            self._line(text)

    def say(self, text: str) -> None:
        """Show a line that is no part of a stage."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _line(self, text: str) -> None:
        seconds = time.perf_counter() - self._began
        line = f"[{seconds:7.1f} s] {self._stage}: {text}"
        self._console.print(line, markup=False, soft_wrap=True)

    def __enter__(self) -> "Display":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
