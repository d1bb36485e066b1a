"""`panas audit`: attacks on what a run released, beside blind controls.

With `--fail-on leak` a leak is exit code 1, for use in continuous integration; what the audit
found is printed and written all the same.
"""

from collections.abc import Iterable
from pathlib import Path

import typer

from attacks.audit.run import audit_run
from dprbft.config.files import load_config
from dprbft.run.bookkeeping import timed
from panas_cli.audit_output import show_audit
from panas_cli.options import FailOn
from panas_cli.printing import print_json
from panas_cli.progress import Display

LEAK = 1
"""The exit code of `--fail-on`."""

FAILS: dict[FailOn, tuple[str, ...]] = {
    "leak": ("leaks",),
    "inconclusive": ("leaks", "inconclusive"),
}


def audit(run: Path, shadows: int, workers: int, fail_on: FailOn | None, json: bool) -> None:
    """Attack what a run released, beside blind controls."""
    config = load_config(run)
    with Display() as display, timed(run, "audit", anew=True):
        display.stage("audit", steps(config.federation.clients, workers))
        found = audit_run(run, shadows=shadows, workers=workers, on_progress=display.report)
    if json:
        print_json(found.to_json())
    else:
        show_audit(found)
    fail(fail_on, found.verdicts)


def steps(clients: int, workers: int) -> int:
    """How often an audit tells of its progress, about."""
    return clients if workers > 1 else 9 * clients


def fail(on: FailOn | None, verdicts: Iterable[str]) -> None:
    """End with exit code 1 on a verdict that was asked for."""
    if on and any(v in FAILS[on] for v in verdicts):
        raise typer.Exit(LEAK)
