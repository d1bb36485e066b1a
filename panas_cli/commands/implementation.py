"""`panas audit --implementation`: the code of every mechanism, run again.

A mechanism that fails is exit code 1. The last lines say what was tested and what was found.
"""

import math

import numpy as np
import typer

from attacks.conformance.finding import ERROR
from attacks.replay.audit import ImplementationAudit, PartAudit, audit_implementation
from attacks.replay.frozen import UnitLoss
from attacks.replay.plug_in import load_mechanism
from panas_cli.commands.audit import LEAK
from panas_cli.progress import Display
from panas_cli.text.printing import counted, print_json, print_table, print_words

PARTS = 18
"""Parts of the project's own audit."""


def implementation(mechanism: str | None, json: bool) -> None:
    """Test the project's own mechanisms, and one of the user's.

    Args:
        mechanism: FILE.py:NAME of the user's; None for none.
        json: print one JSON object.
    """
    own = None if mechanism is None else load_mechanism(mechanism)
    with Display() as display:
        display.stage("audit", PARTS + (own is not None))
        result = audit_implementation(own, rng=np.random.default_rng(), on_progress=display.report)
    if json:
        print_json(result.to_json())
    else:
        show(result, None if own is None else own.name)
    if result.alarms:
        raise typer.Exit(LEAK)


def show(result: ImplementationAudit, own: str | None) -> None:
    """Print a table of all parts, the user's worst units, and the verdict.

    Args:
        result: what was found.
        own: the name of the user's mechanism; None if there is none.
    """
    failed = {name for name, _ in result.alarms}
    rows = [_row(part, part.name in failed) for part in result.parts]
    print_table(("part", "tests", "worst unit", "verdict"), rows)
    for part in result.parts:
        if part.name in failed | {own} and part.worst:
            print_words(f"{part.name}, units that cost most of what was charged for one:")
            print_table(("data", "unit", "of charge"), [_unit(u) for u in part.worst], left=2)
    for name, finding in result.alarms:
        print_words(f"{name}: {finding.says} [{finding.test}]")
    tested = f"{counted(result.tests, 'test')} of {counted(len(result.parts), 'part')}"
    print_words(f"tested: {tested}; at most {ERROR:.1%} of sound implementations raise an alarm")
    if failed:
        print_words(
            f"found: {counted(len(result.alarms), 'failure')} in {', '.join(sorted(failed))}"
        )
    else:
        print_words("found: nothing; a test that finds nothing proves nothing")


def _row(part: PartAudit, failed: bool) -> list[str]:
    worst = _share(part.worst[0]) if part.worst else "-"
    return [part.name, str(len(part.findings)), worst, "FAILS" if failed else "sound"]


def _unit(unit: UnitLoss) -> list[str]:
    return [unit.world, unit.unit, _share(unit)]


def _share(unit: UnitLoss) -> str:
    return f"{unit.over_charge:.4f}" if math.isfinite(unit.over_charge) else "unprotected"
