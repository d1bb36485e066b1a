"""What `panas search` and `panas tune` share: a stage of one client, or of several."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from dprbft.engines.inprocess import InProcess
from dprbft.run.directory import OpenRun
from panas_cli.options import Job, Request, start
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
    """Open the run directory that clients share (client 0 if none is named), display and engine."""
    ids = clients or [0]
    job = start(request, shared=True, after=after, clients=ids)
    with Display() as display, InProcess(job.workers, len(ids)) as engine:
        run = OpenRun(job.run, job.config, engine, job.device, display.event)
        yield Stage(job, ids, display, run)
