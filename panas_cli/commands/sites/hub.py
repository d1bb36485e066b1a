"""What `panas run` reaches sites with: this machine's processes, a hub's sockets, or Flower."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from dprbft.config.hub import HubSettings, public_keys, read_hub, socket_paths
from dprbft.engines.framed import AROUND, Carrier, UnixCarrier
from dprbft.engines.inprocess import InProcess
from dprbft.engines.protocol import Engine
from dprbft.methods.serve import Machine
from dprbft.paths import is_hub, read_sites
from dprbft.run.directory import OpenRun
from dprbft.run.hub import answer_caps, open_hub
from panas.runtime.errors import BadInput, PanasError
from panas_cli.commands.job import Job
from panas_cli.progress import Display
from panas_cli.requests import Reach, Request


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
    settings = {"remote": names, "clients": len(names)}
    facts = {"facts": str(reach.facts.resolve())} if reach.facts else {}
    federation = request.settings.get("federation", {}) | settings | facts
    return replace(request, settings=request.settings | {"federation": federation})


@contextmanager
def opened(job: Job, display: Display, reach: Reach) -> Iterator[OpenRun]:
    """A run whose sites can be asked, as long as the block lasts.

    A new run whose sites cannot be reached leaves nothing behind.
    """
    with ExitStack() as held:
        try:
            if reach.hub is None:
                engine = held.enter_context(_engine(job, reach))
            else:
                hub = read_hub(reach.hub)
                carrier = held.enter_context(_carrier(job, display, reach.hub, hub))
        except PanasError:
            job.ground.restore()
            raise
        if reach.hub is None:
            yield OpenRun(job.run, job.config, engine, display.event)
        else:
            keys = public_keys(reach.hub, hub)
            yield open_hub(job.run, job.config, hub, carrier, keys=keys, listener=display.event)


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
def _carrier(job: Job, display: Display, folder: Path, hub: HubSettings) -> Iterator[Carrier]:
    """What brings frames to a hub's sites: their sockets where hub.toml names them, else Flower."""
    if hub.sockets:
        most = max(answer_caps(job.run, job.config).values())
        yield UnixCarrier(socket_paths(folder, hub), most + AROUND)
        return
    from dprbft.engines.deploy.settings import flower_hub
    from dprbft.engines.flower.carrier import FlowerCarrier
    from dprbft.engines.flower.link import Deployed

    result = flower_hub(folder)
    link = Deployed(result.home, result.local_address, result.ca, result.keys)
    with FlowerCarrier(
        link, minimum=hub.minimum, patience=result.flower.patience, tell=display.say
    ) as carrier:
        yield carrier
