"""Small runs of the federation, in this process."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Broadcast
from dprbft.methods.rounds.state import State
from dprbft.paths import SitePaths, read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, stages_of, train_stage, tune_stage
from dprbft.run.view import RunView
from dprbft.site.joining import join
from dprbft.site.site import Site, open_site
from panas.architecture.genome import Genome
from panas.architecture.network import weights_of
from panas.runtime.seeds import stream, torch_generator
from panas.tuning.space import DPSGDSettings

SEARCH: dict[str, Any] = {
    **{"population": 2, "generations": 0, "epochs": 1, "student_steps": 1},
    **{"max_blocks": 3, "widths": [16]},
}
"""A search of two candidates of at most three blocks."""
TINY: dict[str, Any] = {
    "data": {"limit": 200},
    "network": {"width": 16},
    "search": SEARCH,
    "tuning": {"trials": 0, "batch_sizes": [1000]},
    # Full batches: one Gaussian a step, which is priced in closed form instead of seconds.
    "training": {"epochs": 1, "warm_epochs": 2, "batch_size": 1000, "student_steps": 1},
    "federation": {"method": "dprbft", "clients": 2, "rounds": 1, "baselines": False},
    "audit": {"decoder_epochs": 1},
}

JOINED: dict[str, Any] = {
    "data": {"limit": 200, "public_limit": 60},
    "network": {"width": 16, "features": 16},
    "search": SEARCH,
    "training": {"student_steps": 1},
    "federation": {"method": "joined", "clients": 2, "baselines": False},
}


def joined_config(**sections: dict[str, Any]) -> RunConfig:
    """A run of two sites by method joined; `sections` go over it."""
    return build_config(merge(JOINED, sections))


def tiny_config(**changes: Any) -> RunConfig:
    """A configuration whose run takes about a second; `changes` name a key as section__key."""
    nested: dict[str, Any] = {}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            nested.setdefault(section, {})[name] = value
        else:
            nested[section] = value
    method = nested.get("federation", {}).get("method", "dprbft")
    usual = merge(TINY, {"federation": {"method": method}})
    return build_config(without_unread(usual), nested)


def carry_out(run: Path, config: RunConfig, *, workers: int = 1, stages: str = "stt") -> None:
    """Search, tune and train, as `panas run` does."""
    prepare(run, config, resume=(run / "config.toml").exists())
    todo = (search_stage, tune_stage, train_stage)[: len(stages)]
    with InProcess(read_sites(run), workers) as engine:
        for stage in todo[0 if "search" in stages_of(config) else 1 :]:
            stage(OpenRun(run, config, engine))


def opened(config: RunConfig, run: Path, index: int = 0) -> Site:
    """A site of a simulated run, which is made if need be, that has answered the hello."""
    prepare(run, config, resume=True)
    view = RunView(run, config)
    join(view.sites[index], view.hello(index))
    return open_site(view.sites[index])


def greeted(run: Path, config: RunConfig, index: int = 0) -> tuple[SitePaths, bytes]:
    """A site of method joined that has said hello, and the broadcast before the round."""
    site = opened(config, run, index)
    zero = torch.zeros(site.spec.classes, site.width)
    return site.paths, Broadcast(0, zero, zero[:, 0].clone()).to_bytes()


GENOME = Genome.parse("c4k3-max-c4k3")


def fresh_state(site: Site, learning_rate: float = 0.1, **changes: Any) -> State:
    """Where a site stands before round 1, with random weights."""
    b = weights_of(site.spec.bottom(GENOME, torch_generator(stream(0))))
    h = weights_of(site.spec.head(torch_generator(stream(1))))
    settings = DPSGDSettings(
        learning_rate=learning_rate, noise_multiplier=1e-6, clip=1.0, batch_size=64
    )
    state = State(bottom=b, head=h, kept_bottom=b, kept_head=h, genome=GENOME, settings=settings)
    return replace(state, **changes)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run that is not there yet."""
    return tmp_path / "run"


@pytest.fixture
def tiny() -> Callable[..., RunConfig]:
    """`tiny_config`."""
    return tiny_config


@pytest.fixture
def carry() -> Callable[..., None]:
    """`carry_out`."""
    return carry_out


@pytest.fixture
def make_site() -> Callable[..., Site]:
    """`opened`."""
    return opened
