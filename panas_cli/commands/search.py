"""`panas search`: the architecture of one client, or of several."""

from typing import Any

from dprbft.paths import search_file
from dprbft.run.stages import last_generation, search_prices, search_stage
from panas.runtime.store import read_json
from panas_cli.commands.of_clients import Clients, of_clients, print_files, print_table
from panas_cli.options import Request, with_common
from panas_cli.printing import print_json, print_text


@with_common
def search(request: Request, client: Clients = None) -> None:
    """Search one client's architecture; writes search/client-000/best.json."""
    with of_clients(request, client) as stage:
        job, ids, display = stage.job, stage.clients, stage.display
        for line in search_prices(job.run, job.config, ids):
            display.say(line)
        display.stage("search", len(ids))
        search_stage(
            job.run,
            job.config,
            stage.engine,
            job.device,
            display.report,
            ids,
            progress=display.generations(last_generation(job.config)),
        )
    found = [read_json(search_file(job.run, i)) for i in ids]
    if job.json:
        print_json({"run": str(job.run), "clients": found})
        return
    for i, f in zip(ids, found, strict=True):
        print_text(f"client {i}: {f['genome']}, fitness {f['fitness']:.3f}")
        print_table(("layer", "output", "parameters", "MACs", "bytes"), _costs(f), left=2)
        print_files(search_file(job.run, i).parent)


def _costs(found: dict[str, Any]) -> list[list[str]]:
    """Where a network's cost lies: a line a layer, and the sums."""
    sums = found["cost"] | {"name": "all", "out_shape": ()}
    return [
        [
            row["name"],
            " x ".join(str(n) for n in row["out_shape"]),
            *(f"{row[key]:,}" for key in ("parameters", "macs", "bytes")),
        ]
        for row in (*found["cost_table"], sums)
    ]
