"""`panas search`: the architecture of one client, or of several."""

from typing import Annotated

import typer

from dprbft.engines.inprocess import InProcess
from dprbft.layout import search_file
from dprbft.stages import search_prices, search_stage
from panas.store import read_json
from panas_cli.display import Display
from panas_cli.options import Request, start, with_common
from panas_cli.report import print_json, print_text


@with_common
def search(
    request: Request,
    client: Annotated[
        list[int] | None, typer.Option(help="Which client (default 0). May be repeated.")
    ] = None,
) -> None:
    """Search one client's architecture; writes search/client-000/best.json."""
    ids = client or [0]
    job = start(request, shared=True, clients=ids)
    with Display() as display, InProcess(min(job.workers, len(ids))) as engine:
        for line in search_prices(job.run, job.config, ids):
            display.say(line)
        display.stage("search", len(ids))
        search_stage(job.run, job.config, engine, job.device, display.report, ids)
    found = [read_json(search_file(job.run, i)) for i in ids]
    if job.json:
        print_json({"run": str(job.run), "clients": found})
        return
    for f in found:
        c = f["cost"]
        print_text(
            f"client {f['client']}: {f['genome']}, fitness {f['fitness']:.3f}, "
            f"{c['parameters']} parameters, {c['macs']} MACs -> {search_file(job.run, f['client'])}"
        )
