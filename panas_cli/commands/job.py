"""What run, search, tune and train share: a request made definite, and a stage of some sites."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dprbft.config.files import build_config, first_run, read_run, with_paths
from dprbft.config.schema import RunConfig
from dprbft.config.toml import read_toml
from dprbft.engines.inprocess import InProcess
from dprbft.paths import embeddings_folder, read_sites, settings_file, sites_file
from dprbft.run.directory import Ground, OpenRun, prepare
from dprbft.run.progress.forecast import forecast
from dprbft.run.sites.plan import site_names
from dprbft.run.stages import join_stage, joining_prices, search_prices
from panas.privacy.ledger.charge import assumption
from panas.runtime.device import device_named
from panas.runtime.errors import BadInput
from panas.runtime.pool import default_workers
from panas_cli.options import Request
from panas_cli.progress import Display, encoding_shown
from panas_cli.text.joining import joining_price_line
from panas_cli.text.sentences import price_lines

LARGE_EPSILON = 50.0
"""Above it a budget is warned of; the paper's own is 50."""
MOST_PRICED = 20  # sites, at most, whose price is told before they join
SHOWN = 5  # names of sites, at most, in a message


@dataclass(frozen=True)
class Job:
    """A request made definite: a configuration, a run directory, and where to compute."""

    config: RunConfig
    run: Path
    device: str
    workers: int
    json: bool
    ground: Ground  # what was there before the run directory
    chosen: tuple[int, ...] = ()  # numbers of the sites that the user names


def start(
    request: Request,
    *,
    shared: bool = False,
    after: str | None = None,
    clients: Sequence[str] = (),
) -> Job:
    """Check everything, and make or reopen the run directory.

    Args:
        request: what the user asked for.
        shared: several commands fill one directory: reopening it needs no --resume.
        after: command that must have filled the directory; None: it may be new.
        clients: names or numbers of sites that the user gives.
    """
    run = request.out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}"
    if after and (request.out is None or not (run / "config.toml").is_file()):
        raise BadInput(
            f"expected --out DIR, a directory that `panas {after}` has filled, got "
            f"{request.out or 'none'}; run `panas {after}` first"
        )
    layers, settings = [read_toml(request.config)] if request.config else [], request.settings
    if (run / "config.toml").is_file() and (request.resume or shared):
        layers.insert(0, read_run(run))
        settings = _with_those_away(settings, layers[0])
    elif request.resume:
        raise BadInput(f"expected a run to resume at {run}, found none; leave --resume out")
    layers = layers or [first_run(settings)]
    config = build_config(*(with_paths(layer) for layer in (*layers, settings)))
    _warn_of_large(config.largest_epsilon)
    device = device_named(request.device)
    chosen = _numbers(run, config, clients)
    # Several processes on one GPU only get into each other's way.
    workers = request.workers or (1 if device == "cuda" else default_workers())
    ground = Ground.of(run)
    with encoding_shown({"public samples": embeddings_folder(run)}):
        prepare(run, config, resume=request.resume, shared=shared, device=device)
    return Job(config, run, device, workers, request.json, ground, chosen)


def _numbers(run: Path, config: RunConfig, clients: Sequence[str]) -> tuple[int, ...]:
    if not clients:
        return ()
    made = sites_file(run).exists()
    names = [paths.name for paths in read_sites(run)] if made else site_names(config)
    known = {str(i): i for i in range(len(names))} | {name: i for i, name in enumerate(names)}
    for site in clients:
        if site not in known:
            few = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
            raise BadInput(
                f"expected --client as a site's name ({few}) or a number of 0 to "
                f"{len(names) - 1}, got {site!r}; name a site of the run"
            )
    return tuple(dict.fromkeys(known[site] for site in clients))


def _warn_of_large(epsilon: float) -> None:
    if LARGE_EPSILON < epsilon < math.inf:
        warnings.warn(
            f"epsilon {epsilon:g} bounds next to nothing: what is released may be e^{epsilon:g} "
            "times likelier with a sample than without it; 1 to 10 is usual",
            stacklevel=2,
        )


def _with_those_away(settings: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the run's own list of sites, where theirs lacks only sites that are not
    there: a folder of sites holds no more than are."""
    given = settings.get("federation", {})
    all_, some = set(known.get("federation", {}).get("sites", [])), set(given.get("sites", []))
    if not (some and some < all_) or any(settings_file(Path(s)).is_file() for s in all_ - some):
        return settings
    kept = {key: value for key, value in given.items() if key not in ("sites", "clients")}
    return settings | {"federation": kept}


def prices(run: OpenRun, clients: Sequence[int]) -> list[str]:
    """What searching, or joining and all that follows, will have cost, in lines."""
    family = run.config.federation.family.name
    if family == "rounds":
        return price_lines(search_prices(run, clients), run.view)
    return _joining_prices(run, clients) if family == "joined" else []


def _joining_prices(run: OpenRun, clients: Sequence[int]) -> list[str]:
    f = run.config.federation
    result = joining_prices(run, clients[:MOST_PRICED])
    budgets = [run.config.budget(i).epsilon for i in result]
    summed = run.config.secure_sum
    rests = assumption(f.secure_missing_of(f.clients), f.clients) if summed else ""
    return joining_price_line(list(result.values()), budgets, rests)


def show_forecast(job: Job, run: OpenRun, display: Display, stages: Sequence[str]) -> None:
    """Say how long stages to come will take, for the sites that the user names.

    Args:
        job: device, processes and sites.
        run: that is open.
        display: shows the forecast.
        stages: to come, in order.
    """
    result = forecast(
        run, stages, workers=job.workers, device=job.device, clients=job.chosen or None
    )
    if result.seconds:
        display.forecast(result)


@dataclass(frozen=True)
class Stage:
    """A stage about to run: for whom, on what, and where to show it."""

    job: Job
    clients: list[int]
    display: Display
    run: OpenRun


@contextmanager
def of_sites(
    request: Request, clients: list[str] | None, *, after: str | None = None
) -> Iterator[Stage]:
    """Open the run directory that sites share, display and engine.

    Args:
        request: what the user asked for.
        clients: names or numbers of sites; None: the first.
        after: command that must have filled the directory; None: it may be new.
    """
    job = start(request, shared=True, after=after, clients=clients or ["0"])
    ids, sites = job.chosen, read_sites(job.run)
    with (
        Display() as display,
        InProcess(sites, job.workers, job.device, asked=len(ids)) as engine,
    ):
        run = OpenRun(job.run, job.config, engine, display.event)
        yield Stage(job, join_stage(run, ids), display, run)
