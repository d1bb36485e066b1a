"""`panas tune`: the DP-SGD settings of one client, or of several."""

from typing import Annotated

import typer

from dprbft.engines.inprocess import InProcess
from dprbft.layout import tune_file
from dprbft.stages import tune_stage
from panas.store import read_json
from panas_cli.display import Display
from panas_cli.options import Request, start, with_common
from panas_cli.report import print_json, print_text


@with_common
def tune(
    request: Request,
    client: Annotated[
        list[int] | None, typer.Option(help="Which client (default 0). May be repeated.")
    ] = None,
) -> None:
    """Tune one client's DP-SGD settings; writes tune/client-000/best.json."""
    ids = client or [0]
    job = start(request, shared=True, after="search", clients=ids)
    with Display() as display, InProcess(min(job.workers, len(ids))) as engine:
        display.stage("tune", len(ids))
        tune_stage(job.run, job.config, engine, job.device, display.report, ids)
    found = [read_json(tune_file(job.run, i)) for i in ids]
    if job.json:
        print_json({"run": str(job.run), "clients": found})
        return
    for f in found:
        s = f["setting"]
        print_text(
            f"client {f['client']}: learning rate {s['learning_rate']:.4g}, noise multiplier "
            f"{_noise(s['noise_multiplier'])}, clip {s['clip']:.4g}, batch {s['batch_size']} -> "
            f"{tune_file(job.run, f['client'])}"
        )


def _noise(multiplier: float | None) -> str:
    return "the least that the budget needs" if multiplier is None else f"{multiplier:.4g}"
