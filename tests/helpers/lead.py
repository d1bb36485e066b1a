"""`python -m lead WAY FOLDER RUN [EPSILON]`: lead the joining of a run, in a process of its own.

WAY is `alone` (sites here, workers), `simulated` (sites here, over Flower's simulation) or
`deployed` (a hub's folder; answers come in shuffled order). On stdout: one line a thing of note.
"""

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elsewhere import NAMES, hub_config

from dprbft.config.files import build_config, without_unread
from dprbft.config.schema import RunConfig
from dprbft.engines.deploy.register import link_of
from dprbft.engines.deploy.settings import flower_hub
from dprbft.engines.flower.carrier import FlowerCarrier
from dprbft.engines.flower.door.control import tell
from dprbft.engines.flower.simulation import flower_simulation
from dprbft.engines.framed import Carrier
from dprbft.engines.inprocess import InProcess
from dprbft.engines.protocol import Engine
from dprbft.methods.serve import Machine
from dprbft.paths import config_file, read_sites
from dprbft.run.directory import Ground, OpenRun, prepare
from dprbft.run.hub import Wire, open_hub
from dprbft.run.stages import begin, exchange_stage
from panas.runtime.errors import PanasError


@dataclass(frozen=True)
class Shuffled:
    """A carrier that hands answers on in an order of its own."""

    carrier: Carrier

    def carry(
        self, frames: Mapping[str, bytes], seconds: float | None, cap: int
    ) -> Iterator[tuple[str, bytes]]:
        """As `Carrier.carry`."""
        results = list(self.carrier.carry(frames, seconds, cap))
        random.Random(len(results)).shuffle(results)
        yield from results


def local_config(folder: Path) -> RunConfig:
    """The settings of a hub's run, of sites on this machine."""
    config = hub_config(folder)
    sites = {"remote": (), "sites": [str(folder / name) for name in NAMES]}
    federation = config.federation.model_dump() | sites
    return build_config(without_unread(config.model_dump() | {"federation": federation}))


def asked(folder: Path) -> RunConfig:
    """The settings of a hub's run, with the epsilon that is asked for."""
    names = flower_hub(folder / "deployment" / "hub").settings.names
    config = hub_config(folder, changes={"federation": {"remote": names, "clients": len(names)}})
    epsilon = float(sys.argv[4]) if len(sys.argv) > 4 else 8.0
    return build_config(without_unread(config.model_dump()), {"privacy": {"epsilon": epsilon}})


@contextmanager
def opened(way: str, folder: Path, run: Path) -> Iterator[OpenRun]:
    """A run that is open for work, new or again."""
    resume = config_file(run).exists()
    if way == "deployed":
        config, hub = asked(folder), flower_hub(folder / "deployment" / "hub")
        prepare(run, config, resume=resume)
        least, patience = hub.settings.minimum, hub.flower.patience
        with FlowerCarrier(link_of(hub), minimum=least, patience=patience, tell=say) as carrier:
            wire = Wire(Shuffled(carrier), hub.keys, partial(tell, hub.home))
            yield open_hub(run, config, hub.settings, wire, listener=say)
        return
    config = local_config(folder)
    prepare(run, config, resume=resume)
    sites = read_sites(run)
    engine: AbstractContextManager[Engine] = InProcess(sites)
    if way == "simulated":
        engine = flower_simulation(run, sites, Machine(), workers=1)
    with engine as way_there:
        yield OpenRun(run, config, way_there, say)


def say(thing: object) -> None:
    """Tell a line or an event."""
    sys.stdout.write(f"{thing}\n")
    sys.stdout.flush()


def main(way: str, folder: Path, run: Path) -> None:
    """Lead; what stops it is its last line, and its exit code is that of `panas run`."""
    try:
        with opened(way, folder, run) as open_run:
            begin(open_run, Ground.of(run))
            exchange_stage(open_run)
    except PanasError as e:
        say(f"error: {e}")
        sys.exit(e.exit_code)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
