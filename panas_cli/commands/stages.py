"""`panas search`, `panas tune` and `panas train`: a run's stages, one at a time."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import SitePaths, read_sites, search_file, server_folder, tune_file
from dprbft.run.bookkeeping import is_done
from dprbft.run.directory import OpenRun, hold
from dprbft.run.stages import (
    event_counts,
    exchange_stage,
    last_generation,
    search_stage,
    stages_of,
    train_stage,
    tune_stage,
)
from dprbft.run.summary import summarise
from dprbft.run.view import has_results
from dprbft.site.results.pictures import draw_missing
from dprbft.site.results.records import SearchRecord, TuningRecord
from dprbft.site.site import spec_of
from panas.architecture.cost import LayerCost
from panas.data.facts import Facts
from panas.runtime.errors import BadInput, BudgetExhausted
from panas_cli.commands.job import of_sites, prices, show_forecast, start
from panas_cli.options import Request
from panas_cli.progress import Display
from panas_cli.text.joining import NOTHING
from panas_cli.text.output import show
from panas_cli.text.printing import print_files, print_json, print_table, print_text


def search(request: Request, site: list[str] | None) -> None:
    """Search a site's architecture; writes search/best.json in its folder for the run."""
    with of_sites(request, site) as stage:
        job, ids, display = stage.job, stage.clients, stage.display
        if "search" not in stages_of(job.config):
            raise BadInput(
                "expected public samples for networks to learn from, got none, so that there is "
                "nothing to search; give --public-data, --unlabelled-data or --set "
                f"privacy.network=stays, or go on with `panas tune --out {job.run}`"
            )
        for line in prices(stage.run, ids):
            display.say(line)
        joins = "join" in stages_of(job.config) and not is_done(job.run, "join")
        show_forecast(job, stage.run, display, ["join", "search"] if joins else ["search"])
        if joins:
            display.stage("join", event_counts(job.config, 0)["join"])
            exchange_stage(stage.run)
        display.stage("search", len(ids))
        progress = display.generations(last_generation(job.config))
        done = search_stage(stage.run, ids, progress)
        sites = [stage.run.view.sites[i] for i in done]
        _draw(job.config, stage.run.view.facts, sites)
    records = [SearchRecord.read(paths.home) for paths in sites]
    if job.json:
        print_json({"run": str(job.run), "clients": [f.to_json() for f in records]})
        return
    for paths, f in zip(sites, records, strict=True):
        print_text(f"{paths.name}: {f.genome}, fitness {f.fitness:.3f}")
        print_table(("layer", "output", "parameters", "MACs", "bytes"), _costs(f), left=2)
        print_files(search_file(paths.home).parent)


def _draw(config: RunConfig, facts: Facts, sites: Sequence[SitePaths]) -> None:
    """Draw what the sites have searched and tuned, where there is no picture yet."""
    for paths in sites:
        draw_missing(paths.home, config, spec_of(config, facts))


def _costs(found: SearchRecord) -> list[list[str]]:
    sums = LayerCost("all", (), **asdict(found.cost))
    return [
        [
            row.name,
            " x ".join(str(n) for n in row.out_shape),
            *(f"{n:,}" for n in (row.parameters, row.macs, row.bytes)),
        ]
        for row in (*found.cost_table, sums)
    ]


def tune(request: Request, site: list[str] | None) -> None:
    """Tune a site's DP-SGD settings; writes tune/best.json in its folder for the run."""
    with of_sites(request, site, after="search") as stage:
        job, ids, display = stage.job, stage.clients, stage.display
        show_forecast(job, stage.run, display, ["tune"])
        display.stage("tune", len(ids))
        done = tune_stage(stage.run, ids, display.trials(job.config.tuning.config.trials))
        sites = [stage.run.view.sites[i] for i in done]
        _draw(job.config, stage.run.view.facts, sites)
    records = [TuningRecord.read(paths.home) for paths in sites]
    if job.json:
        print_json({"run": str(job.run), "clients": [f.to_json() for f in records]})
        return
    for paths, f in zip(sites, records, strict=True):
        s = f.settings
        epochs = f", epochs {s.epochs}" if s.epochs else ""
        if f.nothing:
            print_text(f"{paths.name}: {NOTHING}")
            continue
        noise = "the least that the budget needs"
        if f.noise_multiplier is not None:
            noise = f"{f.noise_multiplier:.4g}"
        print_text(
            f"{paths.name}: learning rate {s.learning_rate:.4g}, noise multiplier "
            f"{noise}, clip {s.clip:.4g}, batch {s.batch_size}"
            f"{epochs}"
        )
        print_files(tune_file(paths.home).parent)


def train(request: Request) -> None:
    """Train the federation with the architectures and settings found before."""
    if request.out and not request.resume and _trained(request.out):
        raise BadInput(f"expected a run to train, got {request.out}, trained before; give --resume")
    job = start(request, shared=True, after="tune")
    try:
        with (
            hold(job.run),
            Display() as display,
            InProcess(read_sites(job.run), job.workers, job.device) as engine,
        ):
            run = OpenRun(job.run, job.config, engine, display.event)
            show_forecast(job, run, display, ["train"])
            display.stage("train", event_counts(job.config, 0)["train"])
            train_stage(run)
    except BudgetExhausted:
        show(job.run, summarise(job.run, job.config), job.json)
        raise
    show(job.run, summarise(job.run, job.config), job.json)


def _trained(run: Path) -> bool:
    """Whether a run has begun to train; sites that join before they search have a server then."""
    if not server_folder(run).exists():
        return False
    return not is_done(run, "join") or any(has_results(paths) for paths in read_sites(run))
