"""Small runs of the federation, in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dprbft.config.files import build_config, merge, without_unread
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, train_stage, tune_stage
from dprbft.run.view import RunView
from dprbft.site.joining import join
from dprbft.site.site import Site, open_site

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
        for stage in todo:
            stage(OpenRun(run, config, engine))


def opened(config: RunConfig, run: Path, index: int = 0) -> Site:
    """A site of a simulated run, which is made if need be, that has answered the hello."""
    prepare(run, config, resume=True)
    view = RunView(run, config)
    join(view.sites[index], view.hello(index))
    return open_site(view.sites[index])


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
