"""`panas audit`: attacks on what a run released, beside blind controls."""

from pathlib import Path
from typing import Annotated

import typer

from attacks.audit import audit_run
from dprbft.config import load_config
from dprbft.stages import timed
from panas_cli.display import Display
from panas_cli.report import print_json, show_audit


def audit(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Attack what a run released, beside blind controls; writes audit.json."""
    config = load_config(run)
    with Display() as display, timed(run, "audit", anew=True):
        display.stage("audit", 2 * config.federation.clients)
        found = audit_run(run, on_progress=display.report)
    if json:
        print_json(found)
    else:
        show_audit(found)
