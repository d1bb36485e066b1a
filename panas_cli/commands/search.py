"""`panas search`: the architecture of one site, or of several."""

from dataclasses import asdict

from dprbft.paths import search_file
from dprbft.run.bookkeeping import is_done
from dprbft.run.stages import (
    event_counts,
    exchange_stage,
    last_generation,
    search_stage,
    stages_of,
)
from dprbft.site.results.records import SearchRecord
from panas.architecture.cost import LayerCost
from panas.runtime.errors import BadInput
from panas_cli.commands.job import of_sites, prices, tell_time
from panas_cli.requests import Request
from panas_cli.text.printing import print_files, print_json, print_table, print_text


def search(request: Request, site: list[str] | None) -> None:
    """Search a site's architecture; writes search/best.json in its folder for the run."""
    with of_sites(request, site) as stage:
        job, ids, display = stage.job, stage.clients, stage.display
        if "search" not in stages_of(job.config):
            raise BadInput(
                "expected public samples for networks to learn from, got none, so that there is "
                "nothing to search; give --public-data or --unlabelled-data, or go on with "
                f"`panas tune --out {job.run}`"
            )
        for line in prices(stage.run, ids):
            display.say(line)
        joins = "join" in stages_of(job.config) and not is_done(job.run, "join")
        tell_time(job, stage.run, display, ["join", "search"] if joins else ["search"])
        if joins:
            display.stage("join", event_counts(job.config, 0)["join"])
            exchange_stage(stage.run)
        display.stage("search", len(ids))
        progress = display.generations(last_generation(job.config))
        done = search_stage(stage.run, ids, progress)
        sites = [stage.run.view.sites[i] for i in done]
    records = [SearchRecord.read(paths.home) for paths in sites]
    if job.json:
        print_json({"run": str(job.run), "clients": [f.to_json() for f in records]})
        return
    for paths, f in zip(sites, records, strict=True):
        print_text(f"{paths.name}: {f.genome}, fitness {f.fitness:.3f}")
        print_table(("layer", "output", "parameters", "MACs", "bytes"), _costs(f), left=2)
        print_files(search_file(paths.home).parent)


def _costs(found: SearchRecord) -> list[list[str]]:
    """Where a network's cost lies: a line a layer, and the sums."""
    sums = LayerCost("all", (), **asdict(found.cost))
    return [
        [
            row.name,
            " x ".join(str(n) for n in row.out_shape),
            *(f"{n:,}" for n in (row.parameters, row.macs, row.bytes)),
        ]
        for row in (*found.cost_table, sums)
    ]
