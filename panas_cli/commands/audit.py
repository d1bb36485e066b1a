"""`panas audit`: attacks on what a run released, beside blind controls.

With `--fail-on leak` a leak is exit code 1, for use in continuous integration; what the audit
found is printed and written all the same.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from attacks.audit.run import audit_run
from dprbft.config.files import load_config
from dprbft.run.bookkeeping import timed
from panas.runtime.errors import BadInput
from panas.runtime.pool import default_workers
from panas_cli.audit_output import show_audit
from panas_cli.printing import print_json
from panas_cli.progress import Display

LEAK = 1
"""The exit code of `--fail-on`."""

FailOn = Literal["leak", "inconclusive"]
FAILS: dict[FailOn, tuple[str, ...]] = {
    "leak": ("leaks",),
    "inconclusive": ("leaks", "inconclusive"),
}

ShadowsOption = Annotated[int, typer.Option(help="Networks that LiRA trains; 0 leaves it out.")]
WorkersOption = Annotated[int | None, typer.Option(help="Processes; none: one a core.")]
FailOnOption = Annotated[
    FailOn | None, typer.Option(help="Exit with 1 on such a verdict, or a worse one.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def audit(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    shadows: ShadowsOption = 0,
    workers: WorkersOption = None,
    fail_on: FailOnOption = None,
    json: JsonOption = False,
) -> None:
    """Attack what a run released, beside blind controls."""
    processes = checked_workers(shadows, workers)
    config = load_config(run)
    with Display() as display, timed(run, "audit", anew=True):
        display.stage("audit", steps(config.federation.clients, processes))
        found = audit_run(run, shadows=shadows, workers=processes, on_progress=display.report)
    if json:
        print_json(found.to_json())
    else:
        show_audit(found)
    fail(fail_on, found.verdicts)


def steps(clients: int, workers: int) -> int:
    """How often an audit tells of its progress, about."""
    return clients if workers > 1 else 9 * clients


def checked_workers(shadows: int, workers: int | None) -> int:
    """The number of processes.

    Raises:
        BadInput: for one shadow, which has no spread, or less than one process.

    """
    if shadows < 0 or shadows == 1:
        raise BadInput(f"expected --shadows of 0, or 2 and more, got {shadows}; 16 is a good start")
    processes = default_workers() if workers is None else workers
    if processes < 1:
        raise BadInput(f"expected --workers of 1 or more, got {processes}; leave it out")
    return processes


def fail(on: FailOn | None, verdicts: Iterable[str]) -> None:
    """End with exit code 1 on a verdict that was asked for."""
    if on and any(v in FAILS[on] for v in verdicts):
        raise typer.Exit(LEAK)
