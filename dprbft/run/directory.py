"""A run directory: made, or opened again, by one process or by several."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dprbft.config.files import load_config, save_config
from dprbft.config.schema import RunConfig
from dprbft.engines.protocol import Engine
from dprbft.methods import update_method
from dprbft.methods.side import Side
from dprbft.paths import (
    config_file,
    embeddings_folder,
    facts_file,
    map_file,
    public_file,
    sites_file,
    sites_folder,
    unlabelled_file,
)
from dprbft.run.events import Listener
from dprbft.run.sites.known import Local
from dprbft.run.sites.plan import SitesPlan, plan_sites
from dprbft.run.sites.remote import Remote
from dprbft.run.view import RunView
from dprbft.server.events import RoundBegun, RoundEnded
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
    listener: Listener = lambda event: None
    elsewhere: Remote | None = None  # what it knows of sites that are not on this machine
    minimum: int = 1  # sites that it begins with, at least, and of a round
    rounds: Callable[[RoundBegun | RoundEnded], None] = lambda event: None  # hears of each round

    @property
    def sites(self) -> Local | Remote:
        """What it knows of its sites."""
        return self.elsewhere or Local(self.view)

    @property
    def view(self) -> RunView:
        """All of it, as a simulator sees it."""
        return RunView(self.folder, self.config)


def prepare(
    run: Path, config: RunConfig, *, resume: bool, shared: bool = False, device: str = "cpu"
) -> RunConfig:
    """Make a run directory and its sites, or check that an existing one may be continued.

    Nothing is written where a directory in use, a data set or the settings are refused. Returns
    `config`.

    Args:
        run: the directory, made if need be.
        config: the settings of the run.
        resume: whether to continue what is there.
        shared: the same, for commands that fill a directory one after the other (search, tune).
        device: that public samples are encoded on.
    """
    # Looked at before config.toml: several commands may begin at once, and one be ahead.
    # A name with a dot is a lock, or a file that is being written.
    used = run.exists() and not (run.is_dir() and all(p.name[0] == "." for p in run.iterdir()))
    if config_file(run).exists():
        if not (resume or shared):
            raise BadInput(
                f"expected a new run directory, got {run}, which holds a run; give --resume to "
                "continue it or another directory"
            )
        check_settings(run, config)
    elif used:
        raise BadInput(f"expected a new or empty run directory, got {run}; give another directory")
    plan = None if sites_file(run).exists() else plan_sites(run, config)
    check_stages(config, plan or RunView(run, config))
    with exclusive(config_file(run)):
        # The settings first: a run that died while its sites were made goes on with them alone.
        if not config_file(run).exists():
            save_config(run, config)
        check_settings(run, config)
        if plan and not sites_file(run).exists():
            plan.write(run, device)
    return config


MADE = (
    *(config_file, sites_file, sites_folder, facts_file, public_file, unlabelled_file, map_file),
    embeddings_folder,
)
"""What a run's directory holds before its first stage."""


@dataclass(frozen=True)
class Ground:
    """What was where a run's directory is to be, before it was made."""

    run: Path
    missing: tuple[Path, ...]  # folders, the innermost first: its own, and those above it
    kept: frozenset[Path]  # what its own held
    new: bool  # whether it held no run

    @staticmethod
    def of(run: Path) -> "Ground":
        """What is there now."""
        missing = tuple(f for f in (run, *run.parents) if not f.exists())
        kept = frozenset(run.iterdir()) if run.is_dir() else frozenset[Path]()
        return Ground(run, missing, kept, new=not config_file(run).exists())

    def restore(self) -> None:
        """Remove a run that was made since; nothing that was there before, or is of another."""
        if not self.new:
            return
        made = {file(self.run) for file in MADE} | set(self.run.glob(".*.lock"))
        for path in made - self.kept:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for folder in self.missing:
            if any(folder.iterdir()):
                break
            folder.rmdir()


def hold(run: Path) -> AbstractContextManager[None]:
    """Keep other processes from training in the same run directory; refuses at once."""
    return exclusive(run / "run", wait=False)


def chosen(config: RunConfig, clients: Sequence[int] | None) -> list[int]:
    """The sites that were asked for; all, if None."""
    everyone = range(config.federation.clients)
    for i in clients or ():
        if i not in everyone:
            raise BadInput(f"expected a site of 0 to {len(everyone) - 1}, got {i}")
    return list(everyone if clients is None else clients)


def check_settings(run: Path, config: RunConfig) -> None:
    """Refuse settings other than those that a run directory was made with."""
    if load_config(run) != config:
        raise BadInput(
            f"expected the settings that {run} was made with (see its config.toml), got "
            "others; give the same settings or another directory"
        )


def check_stages(config: RunConfig, view: RunView | SitesPlan) -> None:
    """Refuse settings that a later stage would refuse, before anything is charged."""
    checks = {"updates": _check_updates}.get(config.federation.family.name, _check_networks)
    checks(config, view)


def _check_updates(config: RunConfig, view: RunView | SitesPlan) -> None:
    side = Side(config, view.facts, view.public)
    update_method(config.federation.method).check(side)


def _check_networks(config: RunConfig, view: RunView | SitesPlan) -> None:
    spec, mode = spec_of(config, view.facts), config.privacy.mode
    spec.head(torch_generator(stream(config.seed, "head")))
    random_genome(search_space(config, view.facts, None), stream(config.seed, "check"))
    inputs = len(view.public) + len(view.unlabelled)
    if mode.needs_public and config.has_inputs and inputs < 2:
        raise BadInput(
            f"expected public samples for networks to learn from, got {inputs}; give more, or "
            "data.public_limit=0 for none"
        )
    if config.needs_public and not len(view.public):
        raise BadInput(
            "expected public samples to search on, got none; give data.public_data, or "
            "privacy.search=data-free"
        )
