"""What `panas search` and `panas tune` share: a stage of one client, or of several."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dprbft.engines.inprocess import InProcess
from dprbft.run.directory import OpenRun
from panas_cli.options import Job, Request, start
from panas_cli.printing import print_text
from panas_cli.progress import Display

Clients = Annotated[
    list[int] | None, typer.Option("--client", help="Which client (default 0). May be repeated.")
]


@dataclass(frozen=True)
class Stage:
    """A stage about to run: for whom, on what, and where to show it."""

    job: Job
    clients: list[int]
    display: Display
    run: OpenRun


@contextmanager
def of_clients(
    request: Request, clients: list[int] | None, *, after: str | None = None
) -> Iterator[Stage]:
    """Open the run directory that the clients share, and have display and engine ready.

    Args:
        request: what the user asked for.
        clients: for whom; client 0 if nobody is named.
        after: the command that has to come before.

    """
    ids = clients or [0]
    job = start(request, shared=True, after=after, clients=ids)
    with Display() as display, InProcess(job.workers, len(ids)) as engine:
        run = OpenRun(job.run, job.config, engine, job.device, display.event)
        yield Stage(job, ids, display, run)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """A table on stdout: with lines on a terminal, as aligned text elsewhere.

    Args:
        headers: of the columns.
        rows: their cells.
        left: so many columns are aligned to the left, the others to the right.

    """
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:  # a pipe has no width of its own
        console = Console(highlight=False, markup=False, width=140)
    box = SIMPLE_HEAD if console.is_terminal else None
    table = Table(box=box, padding=(0, 2, 0, 0), pad_edge=False)
    for k, header in enumerate(headers):
        table.add_column(header, justify="left" if k < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_files(folder: Path) -> None:
    """What a client's stage has left, a path a line."""
    for file in sorted(p for p in folder.iterdir() if not p.name.startswith(".")):
        print_text(f"  {file}")
