"""`panas audit`: attacks on what a run released, or on a network, beside blind controls.

With `--fail-on leak` a leak is exit code 1, for use in continuous integration; what the audit
found is printed and written all the same.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from attacks.audit.external_model import MEMBERSHIP, audit_model
from attacks.audit.run import audit_run
from dprbft.config.files import load_config
from dprbft.run.stages import timed
from panas.runtime.errors import BadInput
from panas.runtime.pool import default_workers
from panas_cli.output import print_json, print_text, show_audit, show_model_audit
from panas_cli.progress import Display

LEAK = 1
"""The exit code of `--fail-on`."""

FailOn = Literal["leak", "inconclusive"]
FAILS: dict[FailOn, tuple[str, ...]] = {
    "leak": ("leaks",),
    "inconclusive": ("leaks", "inconclusive"),
}


def steps(clients: int, workers: int) -> int:
    """How often an audit tells of its progress, about."""
    return clients if workers > 1 else 9 * clients


def audit(
    run: Annotated[Path | None, typer.Argument(help="A run directory; or give --model.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A network trained elsewhere: .safetensors of panas, or .pt2 of torch.export, "
            "which can run code when loaded: only files that you trust."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="What it was trained on: .npz (train_*, test_*), .csv or a folder."),
    ] = None,
    others: Annotated[
        str | None, typer.Option(help="Like samples that it was not trained on.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Label column of a .csv.")] = None,
    mean: Annotated[str, typer.Option(help="Its preprocessing: (x - mean) / std.")] = "0.5",
    std: Annotated[str, typer.Option(help="x in [0, 1]; one number, or one a channel.")] = "0.5",
    accuracy: Annotated[
        float | None,
        typer.Option(help="That it is known to have on --data: another one is an error."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="That it was trained with.")] = None,
    delta: Annotated[float, typer.Option(help="Of that epsilon.")] = 1e-5,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Its answers to private images are seen by others.")
    ] = False,
    shadows: Annotated[int, typer.Option(help="Networks that LiRA trains; 0 leaves it out.")] = 0,
    workers: Annotated[int | None, typer.Option(help="Processes; none: one a core.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --model: folder for audit.json and pictures.")
    ] = None,
    fail_on: Annotated[
        FailOn | None, typer.Option(help="Exit with 1 on such a verdict, or a worse one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Attack what a run released, or a network with --model and --data, beside blind controls."""
    if shadows < 0 or shadows == 1:
        raise BadInput(f"expected --shadows of 0, or 2 and more, got {shadows}; 16 is a good start")
    processes = default_workers() if workers is None else workers
    if processes < 1:
        raise BadInput(f"expected --workers of 1 or more, got {processes}; leave it out")
    if (run is None) == (model is None):
        raise BadInput("expected a run directory, or --model with --data, got both or neither")
    if model is not None:
        if data is None:
            raise BadInput("expected --data with --model, got none; give what it was trained on")
        if not 0 < delta < 1 or (epsilon is not None and not epsilon > 0):
            raise BadInput(f"expected --epsilon above 0, --delta in (0, 1), got {epsilon}, {delta}")
        if accuracy is not None and not 0 <= accuracy <= 1:
            raise BadInput(f"expected --accuracy in [0, 1], got {accuracy}; give a share, as 0.98")
        shift, scale = _numbers("--mean", mean), _numbers("--std", std, positive=True)
        with Display() as display:

            def tell(text: str) -> None:
                if text == MEMBERSHIP:  # the first step: its files have been read
                    display.stage("audit", 1 + outputs)
                display.report(text)

            found = audit_model(
                model,
                data,
                others=others,
                label=label,
                mean=shift,
                std=scale,
                accuracy=accuracy,
                epsilon=epsilon,
                delta=delta,
                shadows=shadows,
                outputs=outputs,
                workers=processes,
                out=out,
                on_progress=tell,
            )
            if out is not None:
                display.say(f"audit.json and pictures: {out}")
        verdicts = [found["verdict"]]
    else:
        assert run is not None
        given = data or others or out or outputs
        if given or epsilon is not None or accuracy is not None:
            raise BadInput(
                "expected --data, --others, --accuracy, --epsilon, --outputs and --out with "
                "--model only, got a run; it has its own"
            )
        config = load_config(run)
        with Display() as display, timed(run, "audit", anew=True):
            display.stage("audit", steps(config.federation.clients, processes))
            found = audit_run(run, shadows=shadows, workers=processes, on_progress=display.report)
        verdicts = [c["verdict"] for c in found["clients"]]
        verdicts += [c["network"]["verdict"] for c in found["clients"] if c["network"]]
    _show(found, json, model)
    if fail_on and any(v in FAILS[fail_on] for v in verdicts):
        raise typer.Exit(LEAK)


def _show(found: dict[str, Any], json: bool, model: Path | None) -> None:
    if json:
        print_json(found)
    elif model is not None:
        show_model_audit(found)
        if n := found["duplicates"]:
            print_text(f"{n} of the others are among what it was trained on, and were left out")
    else:
        show_audit(found)


def _numbers(option: str, text: str, positive: bool = False) -> list[float]:
    """Finite numbers between commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as e:
        raise BadInput(f"expected numbers for {option}, as 0.5 or 0.5,0.4,0.3, got {text!r}") from e
    if not all(math.isfinite(v) and (v > 0 or not positive) for v in values):
        kind = "finite numbers above 0" if positive else "finite numbers"
        raise BadInput(f"expected {kind} for {option}, got {text!r}; 0.5 is its default")
    return values
