"""`panas report`: what a run came to."""

from pathlib import Path
from typing import Annotated

import typer

from dprbft.config.files import load_config
from dprbft.run.summary import summarise
from panas_cli.output import show


def report(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show a run's results: clients, accuracy, privacy, communication, audit."""
    show(run, summarise(run, load_config(run)), json)
