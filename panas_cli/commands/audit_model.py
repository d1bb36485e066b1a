"""`panas audit-model`: attacks on a network that was trained elsewhere."""

import math
from pathlib import Path
from typing import Annotated

import typer

from attacks.audit.external_model import MEMBERSHIP, ModelAuditConfig
from attacks.audit.external_model import audit_model as attack
from attacks.audit.membership import PrivacyClaim
from attacks.audit.target import ExternalModel
from panas.runtime.errors import BadInput
from panas_cli.audit_output import show_model_audit
from panas_cli.commands.audit import (
    FailOnOption,
    JsonOption,
    ShadowsOption,
    WorkersOption,
    checked_workers,
    fail,
)
from panas_cli.printing import print_json
from panas_cli.progress import Display


def audit_model(
    file: Annotated[
        Path,
        typer.Argument(
            help="Its weights: .safetensors of panas, or .pt2 of torch.export, which can run code "
            "when loaded: only files that you trust."
        ),
    ],
    data: Annotated[
        str, typer.Option(help="What it was trained on: .npz (train_*, test_*), .csv or a folder.")
    ],
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
    shadows: ShadowsOption = 0,
    workers: WorkersOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for audit.json and pictures.")] = None,
    fail_on: FailOnOption = None,
    json: JsonOption = False,
) -> None:
    """Attack a network that was trained elsewhere: who was it trained on?"""
    processes = checked_workers(shadows, workers)
    if not 0 < delta < 1 or (epsilon is not None and not epsilon > 0):
        raise BadInput(f"expected --epsilon above 0, --delta in (0, 1), got {epsilon}, {delta}")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise BadInput(f"expected --accuracy in [0, 1], got {accuracy}; give a share, as 0.98")
    model = ExternalModel(
        file=file,
        data=data,
        others=others,
        label=label,
        mean=_numbers("--mean", mean),
        std=_numbers("--std", std, positive=True),
        accuracy=accuracy,
        claim=PrivacyClaim(epsilon=epsilon, delta=delta),
    )
    config = ModelAuditConfig(shadows=shadows, outputs=outputs, workers=processes)
    with Display() as display:

        def report(text: str) -> None:
            if text == MEMBERSHIP:  # the first step: its files have been read
                display.stage("audit", 1 + outputs)
            display.report(text)

        found = attack(model, config, out=out, on_progress=report)
        if out is not None:
            display.say(f"audit.json and pictures: {out}")
    if json:
        print_json(found.to_json())
    else:
        show_model_audit(found)
    fail(fail_on, [found.verdict])


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
