"""A run on another device than the CPU: no tensor is left behind, and results are the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerator import NAME, TwoDevices, accelerator
from tiny_methods import FREE, method_config, tiny_options
from tiny_runs import joined_config, tiny_config

from dprbft.config.families import method_names
from dprbft.config.schema import RunConfig
from dprbft.config.sections import FederationSettings
from dprbft.engines.inprocess import InProcess
from dprbft.paths import read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, stages_of, train_stage, tune_stage
from dprbft.site.results.records import SearchRecord

STAGES = {"search": search_stage, "tune": tune_stage, "train": train_stage}
UPDATES = [n for n in method_names() if FederationSettings(method=n).family.sends == "updates"]
SEARCHES = ("decnas", "dp_fnas", "feathers", "perfedrlnas")


def carried_out(run: Path, config: RunConfig, device: str) -> int:
    """Make a run; returns how many operations the device has done."""
    prepare(run, config, resume=False)
    with accelerator() as there, InProcess(read_sites(run), 1, device) as engine:
        for stage in stages_of(config):
            STAGES[stage](OpenRun(run, config, engine))
    return there.operations


def searched(run: Path) -> list[dict[str, Any]]:
    return [SearchRecord.read(paths.home).to_json() for paths in read_sites(run)]


def test_operations_on_two_devices_fail() -> None:
    with accelerator(), pytest.raises(TwoDevices):
        _ = torch.ones(3, device=NAME) + torch.ones(3)


@pytest.mark.slow
def test_a_search_on_a_device_finds_what_one_on_the_cpu_finds(tmp_path: Path) -> None:
    config = joined_config()
    assert carried_out(tmp_path / "cpu", config, "cpu") == 0
    assert carried_out(tmp_path / "device", config, NAME) > 1000
    results = [json.dumps(searched(tmp_path / of)) for of in ("cpu", "device")]
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        joined_config(privacy={"network": "stays"}),
        tiny_config(),
        tiny_config(privacy__search="unaccounted", privacy__allow_unprotected=True),
    ],
    ids=["stays", "dprbft", "unaccounted"],
)
def test_a_whole_run_stays_on_its_device(tmp_path: Path, config: RunConfig) -> None:
    assert carried_out(tmp_path / "run", config, NAME) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_each_method_of_the_literature_stays_on_its_device(tmp_path: Path, name: str) -> None:
    config = method_config(name, tiny_options(name), FREE if name in SEARCHES else None)
    assert carried_out(tmp_path / "run", config, NAME) > 100
