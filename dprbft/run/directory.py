"""A run directory: made, or opened again, by one process or by several."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dprbft.config.files import load_config, save_config
from dprbft.config.schema import RunConfig
from dprbft.engines.protocol import Engine
from dprbft.run.bookkeeping import check_ledger
from dprbft.server.events import Listener
from dprbft.simulation.federation import Federation, load_federation
from dprbft.site.search import search_space
from dprbft.site.site import spec_of
from panas.architecture.operators import random_genome
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream, torch_generator
from panas.runtime.store import exclusive


@dataclass(frozen=True)
class OpenRun:
    """A run directory that is open for work."""

    folder: Path
    config: RunConfig
    engine: Engine
    device: str = "cpu"  # where the clients compute
    listener: Listener = lambda event: None


def prepare(run: Path, config: RunConfig, *, resume: bool, shared: bool = False) -> RunConfig:
    """Make a run directory, or check that an existing one may be continued; returns `config`.

    `resume` continues what is there; so does `shared`, for commands that fill a directory one
    after the other (search, tune, train). Nothing is written where a directory in use, a data set
    or the settings are refused.
    """
    # Looked at before config.toml: several commands may begin at once, and one be ahead.
    # A name with a dot is a lock, or a file that is being written.
    used = run.exists() and not (run.is_dir() and all(p.name[0] == "." for p in run.iterdir()))
    if (run / "config.toml").exists():
        if not (resume or shared):
            raise BadInput(
                f"expected a new run directory, got {run}, which holds a run; give --resume to "
                "continue it or another --out"
            )
        check_ledger(run)
        _check_settings(run, config)
    elif used:
        raise BadInput(f"expected a new or empty run directory, got {run}; give another --out")
    _check_stages(config, load_federation(config))
    with exclusive(run / "config.toml"):
        if not (run / "config.toml").exists():
            save_config(run, config)
    _check_settings(run, config)
    return config


def hold(run: Path) -> AbstractContextManager[None]:
    """Keep other processes from training in the same run directory; refuses at once."""
    return exclusive(run / "run", wait=False)


def missing(
    config: RunConfig, clients: Sequence[int] | None, file: Callable[[int], Path]
) -> list[int]:
    """Those of the clients (all, if None) whose file is not there yet."""
    everyone = range(config.federation.clients)
    for i in clients or ():
        if i not in everyone:
            raise BadInput(f"expected a client of 0 to {len(everyone) - 1}, got {i}")
    return [i for i in (clients if clients is not None else everyone) if not file(i).exists()]


def _check_settings(run: Path, config: RunConfig) -> None:
    if load_config(run) != config:
        raise BadInput(
            f"expected the settings that {run} was made with (see its config.toml), got "
            "others; give the same settings or another --out"
        )


def _check_stages(config: RunConfig, federation: Federation) -> None:
    """Refuse settings that a later stage would refuse, before anything is written or charged."""
    spec, mode = spec_of(config, federation), config.privacy.mode
    spec.head(torch_generator(stream(config.seed, "head")))
    random_genome(search_space(config, spec, None), stream(config.seed, "check"))
    for client in federation.clients:
        if len(client.search) < mode.least_search:
            raise BadInput(
                f"expected at least {mode.least_search} search samples for client {client.id}, "
                f"got {len(client.search)}; raise data.search_fraction"
            )
    if mode.needs_public and not len(federation.public):
        raise BadInput(
            "expected public samples to search on, got none; give --public-data, or raise "
            "data.public_fraction"
        )
