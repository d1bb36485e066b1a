"""`panas audit` and `panas audit-model`: attacks on a run, and on a network trained elsewhere.

With `--fail-on leak` a leak is exit code 1, for use in continuous integration; what the audit
found is printed and written all the same.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from attacks.audit.external_model import MEMBERSHIP, ModelAuditConfig
from attacks.audit.external_model import audit_model as attack
from attacks.audit.run import audit_run
from attacks.audit.target import ExternalModel
from dprbft.config.files import load_config
from dprbft.paths import is_hub
from dprbft.run.bookkeeping import is_done, timed
from panas.runtime.errors import BadInput
from panas_cli.options import FailOn
from panas_cli.progress import Display
from panas_cli.text.output import show_audit, show_model_audit
from panas_cli.text.printing import print_json

LEAK = 1
"""The exit code of `--fail-on`."""

FAILS: dict[FailOn, tuple[str, ...]] = {
    "leak": ("leaks",),
    "inconclusive": ("leaks", "inconclusive"),
}


def audit(
    run: Path,
    shadows: int,
    beside: Sequence[Path],
    workers: int,
    fail_on: FailOn | None,
    json: bool,
) -> None:
    """Attack what a run released, beside blind controls.

    Args:
        run: directory of a trained run.
        shadows: networks that LiRA trains; 0 leaves it out.
        beside: other runs of the same sites, whose noise must be another.
        workers: processes, at least 1.
        fail_on: verdict from which on the exit code is 1; None: never.
        json: print one JSON object.
    """
    config = load_config(run)
    if is_hub(run):
        raise BadInput(
            f"expected a run whose sites are on this machine, got {run}, a hub's: an audit scores "
            "its attacks on the sites' own samples, which stay there; simulate the federation"
        )

    def whole() -> bool:  # else a site that is taken up again is still to be attacked
        return is_done(run, "train")

    with Display() as display, timed(run, "audit", whole, anew=True):
        display.stage("audit", steps(config.federation.clients, workers))
        result = audit_run(
            run, shadows=shadows, beside=beside, workers=workers, on_progress=display.report
        )
    if json:
        print_json(result.to_json())
    else:
        show_audit(result)
    fail(fail_on, result.verdicts)


def audit_model(
    model: ExternalModel,
    config: ModelAuditConfig,
    out: Path | None,
    fail_on: FailOn | None,
    json: bool,
) -> None:
    """Attack a network that was trained elsewhere: who was it trained on?

    Args:
        model: its files, data and claims.
        config: which attacks.
        out: folder for audit.json and pictures; None: nothing is written.
        fail_on: verdict from which on the exit code is 1; None: never.
        json: print one JSON object.
    """
    with Display() as display:

        def report(text: str) -> None:
            if text == MEMBERSHIP:  # the first step: its files have been read
                display.stage("audit", 1 + config.outputs)
            display.report(text)

        result = attack(model, config, out=out, on_progress=report)
        if out is not None:
            display.say(f"audit.json and pictures: {out}")
    if json:
        print_json(result.to_json())
    else:
        show_model_audit(result)
    fail(fail_on, [result.verdict])


def steps(clients: int, workers: int) -> int:
    """How often an audit tells of its progress, about."""
    return clients if workers > 1 else 9 * clients


def fail(on: FailOn | None, verdicts: Iterable[str]) -> None:
    """End with exit code 1 on a verdict that was asked for."""
    if on and any(v in FAILS[on] for v in verdicts):
        raise typer.Exit(LEAK)
