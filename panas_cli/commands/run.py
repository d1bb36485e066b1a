"""`panas run`: join, search, tune, train, audit, report: all stages that the method has.

It reaches sites by this machine's processes, a hub's sockets, or Flower.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from attacks.audit.run import audit_run
from dprbft.config.files import load_config
from dprbft.config.hub import HubSettings, public_keys, read_hub, socket_paths
from dprbft.engines.framed import AROUND, UnixCarrier
from dprbft.engines.inprocess import InProcess
from dprbft.engines.protocol import Engine
from dprbft.methods.serve import Machine
from dprbft.paths import embeddings_folder, is_hub, read_sites, sites_file
from dprbft.run.bookkeeping import is_done, timed
from dprbft.run.directory import OpenRun, hold
from dprbft.run.hub import Wire, answer_caps, open_hub
from dprbft.run.stages import (
    begin,
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
from panas.runtime.errors import BadInput, BudgetExhausted, PanasError
from panas_cli.commands.audit import steps
from panas_cli.commands.job import Job, prices, show_forecast, start
from panas_cli.options import Reach, Request
from panas_cli.progress import Display, encoding_shown
from panas_cli.text.output import show
from panas_cli.text.sentences import PublicSamples, data_lines, seen_lines


def with_hub(request: Request, reach: Reach) -> Request:
    """The request with the sites that a hub's folder names."""
    if reach.hub is None:
        if request.resume and request.out and is_hub(request.out):
            raise BadInput(
                f"expected --hub DIR to go on with {request.out}, whose sites are elsewhere, got "
                "none; give the hub's folder"
            )
        return request
    names = list(read_hub(reach.hub).names)
    if request.resume and request.out and is_hub(request.out):
        names = list(load_config(request.out).federation.remote)  # those that it has begun with
    settings = {"remote": names, "clients": len(names)}
    facts = {"facts": str(reach.facts.resolve())} if reach.facts else {}
    federation = request.settings.get("federation", {}) | settings | facts
    return replace(request, settings=request.settings | {"federation": federation})


@contextmanager
def opened(job: Job, display: Display, reach: Reach) -> Iterator[OpenRun]:
    """A run whose sites can be asked, as long as the block lasts.

    A new run whose sites cannot be reached leaves nothing behind.

    Args:
        job: configuration, directory, device and processes.
        display: hears of the run's events.
        reach: how its sites are reached.
    """
    with ExitStack() as held:
        try:
            if reach.hub is None:
                engine = held.enter_context(_engine(job, reach))
            else:
                hub = read_hub(reach.hub)
                wire = held.enter_context(_wire(job, display, reach.hub, hub))
        except PanasError:
            job.ground.restore()
            raise
        if reach.hub is None:
            yield OpenRun(job.run, job.config, engine, display.event)
        else:
            yield open_hub(job.run, job.config, hub, wire, listener=display.event)


def _engine(job: Job, reach: Reach) -> AbstractContextManager[Engine]:
    sites = read_sites(job.run)
    if reach.engine != "flower":
        return InProcess(sites, job.workers, job.device)
    from dprbft.engines.flower.simulation import flower_simulation

    # Few sites share the workers out, as they do in process.
    at_once = min(job.workers, len(sites))
    machine = Machine(job.device, job.workers // at_once)
    return flower_simulation(job.run, sites, machine, at_once)


@contextmanager
def _wire(job: Job, display: Display, folder: Path, hub: HubSettings) -> Iterator[Wire]:
    """What brings frames to a hub's sites: their sockets where hub.toml names them, else Flower."""
    keys = public_keys(folder, hub)
    if hub.sockets:
        most = max(answer_caps(job.run, job.config).values())
        yield Wire(UnixCarrier(socket_paths(folder, hub), most + AROUND), keys)
        return
    from dprbft.engines.deploy.settings import flower_hub
    from dprbft.engines.flower.carrier import FlowerCarrier
    from dprbft.engines.flower.door.control import tell
    from dprbft.engines.flower.link import Deployed

    result, names = flower_hub(folder), job.config.federation.remote
    keys = {name: result.keys[name] for name in names if name in result.keys}
    link = Deployed(result.home, result.local_address, result.ca, keys)
    with FlowerCarrier(
        link, minimum=hub.minimum, patience=result.flower.patience, tell=display.say
    ) as carrier:
        yield Wire(carrier, keys, partial(tell, result.home))


NO_NETWORKS = (
    "no public samples: without them no network can be taught, and sites predict with heads on the "
    "common map; --public-data or --unlabelled-data give some; with --set privacy.network=stays "
    "each network learns from its site's own samples, and stays there"
)
MOST_COUNTED = 50
"""Sites whose samples are counted for the first lines."""


def run(request: Request, reach: Reach) -> None:
    """Carry out all stages of a run, and report."""
    job = start(with_hub(request, reach))
    try:
        with hold(job.run):
            _stages(job, reach)
    except BudgetExhausted as e:
        if not _has_results(job.run):
            raise BudgetExhausted(f"{e}; a run keeps its settings: give another --out") from e
        show(job.run, summarise(job.run, job.config), job.json)
        raise
    show(job.run, summarise(job.run, job.config), job.json)


def _stages(job: Job, reach: Reach) -> None:
    config, clients = job.config, job.config.federation.clients
    totals = event_counts(config, clients)
    with Display(brief=True) as display:
        display.say(f"run directory: {job.run}")
        with opened(job, display, reach) as run, encoding_shown(_places(run), display.say):
            there = begin(run, job.ground)
            stages = stages_of(config)
            for line in data_found(run):
                display.say(line)
            if not run.elsewhere:
                for line in (*seen_lines(run.view), *prices(run, there)):
                    display.say(line)
                show_forecast(job, run, display, [s for s in stages if not is_done(job.run, s)])
            if "join" in stages:
                display.stage("join", totals["join"])
                exchange_stage(run)
            if "join" in stages and "search" not in stages:
                display.say(NO_NETWORKS)
            elif "search" in stages and not is_done(job.run, "search"):
                display.stage("search", totals["search"])
                there = search_stage(run, progress=display.generations(last_generation(config)))
            if "tune" in stages and not is_done(job.run, "tune"):
                display.stage("tune", totals["tune"])
                tune_stage(run, there, display.trials(config.tuning.config.trials))
            if not is_done(job.run, "train"):
                display.stage("train", totals["train"])
                train_stage(run)
        summarise(job.run, config)
        if "audit" in stages and not is_done(job.run, "audit"):
            display.stage("audit", steps(clients, job.workers))
            with timed(job.run, "audit", lambda: is_done(job.run, "train"), anew=True):
                audit_run(job.run, workers=job.workers, on_progress=display.report)


def _places(run: OpenRun) -> dict[str, Path]:
    """Folders in which sites on this machine keep embeddings, by their names; none elsewhere."""
    if run.elsewhere or run.view.facts.encoder is None:
        return {}
    return {paths.name: embeddings_folder(paths.folder) for paths in run.view.sites}


def _has_results(run: Path) -> bool:
    """Whether there is a run, of which a summary can tell something."""
    if not sites_file(run).exists():
        return False
    return is_hub(run) or any(has_results(paths) for paths in read_sites(run))


def data_found(run: OpenRun) -> list[str]:
    """What is known of the data: sizes, classes, and what of them is public."""
    view, source = run.view, run.config.data.source
    sites = len(run.sites.names)
    split = run.config.federation.comes_split  # by their owners, not by this run
    own = not (split or source.built_in or source.public_data)
    few = range(sites if sites <= MOST_COUNTED and not run.elsewhere else 0)
    return data_lines(
        "data that come split" if split else Path(source.dataset).name,
        view.facts,
        sites,
        [len(view.site(i)) for i in few if view.sites[i].is_present],
        PublicSamples(labelled=len(view.public), unprotected=own, unlabelled=len(view.unlabelled)),
    )
