"""Whenever a hub dies, it goes on from its own folder to the same head, and nobody pays twice."""

import shutil
from pathlib import Path

import pytest
from deaths import SERVER, Death, dies
from elsewhere import NAMES, InThread, charges, hub_config, make_sites, opened, repeat_noise

from dprbft.config.schema import RunConfig
from dprbft.paths import server_folder
from dprbft.run.directory import Ground
from dprbft.run.stages import begin, exchange_stage, search_stage
from dprbft.server.records import read_rounds

FRAMED = "dprbft.engines.framed:"
REMOTE = "dprbft.run.sites.remote:Remote."
DEATHS = [
    Death(FRAMED + "Framed._checked", call=1),  # a hello is answered
    Death(FRAMED + "Framed._checked", call=8, after=True),
    Death(SERVER + "begin", after=True),
    Death(SERVER + "put_release"),  # a release has come, and is not kept
    Death(SERVER + "put_release", call=2, after=True),
    Death(SERVER + "put_answer"),
    Death(SERVER + "put_answer", after=True),
    Death(REMOTE + "_keep"),  # a site has the head, and the hub does not know
    Death(REMOTE + "_keep", call=2, after=True),
    Death(SERVER + "end"),
    Death(SERVER + "end", after=True),
]
QUICK = (3,)
"""Of them; the others are slow."""


def joined(run: Path, config: RunConfig, carrier: InThread, *, resume: bool = False) -> None:
    again = opened(run, config, carrier, resume=resume)
    begin(again, Ground.of(run))
    exchange_stage(again)


def head_of(run: Path) -> bytes:
    return (server_folder(run) / "round-001/broadcast.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "death",
    [
        pytest.param(d, marks=() if at in QUICK else pytest.mark.thorough)
        for at, d in enumerate(DEATHS)
    ],
    ids=str,
)
def test_a_hub_that_died_comes_to_the_same_head(
    death: Death, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    repeat_noise(monkeypatch)
    places = make_sites(tmp_path / "a")
    config = hub_config(tmp_path / "a")
    joined(tmp_path / "whole" / "trial", config, InThread(places))
    clean = charges(places)
    shutil.rmtree(tmp_path / "a")
    monkeypatch.setenv("PANAS_STATE", str(tmp_path / "state"))  # which knows no such sites
    places = make_sites(tmp_path / "a")
    run = tmp_path / "hub" / "trial"

    with dies(death):
        joined(run, config, InThread(places))
    paid = charges(places)
    joined(run, config, InThread(places), resume=True)
    assert head_of(run) == head_of(tmp_path / "whole" / "trial")
    assert charges(places) == clean
    assert all(charges(places)[name][: len(c)] == c for name, c in paid.items())
    (record,) = read_rounds(server_folder(run))
    assert (record.sites, record.absent) == ((0, 1, 2), ())


@pytest.mark.slow
def test_a_hub_that_died_asks_only_for_what_is_missing(tmp_path: Path):
    places, run = make_sites(tmp_path), tmp_path / "trial"
    config, first = hub_config(tmp_path), InThread(places)

    with dies(Death(REMOTE + "_keep", call=5)):
        search_stage(opened(run, config, first))
    again = InThread(places)
    search_stage(opened(run, config, again, resume=True))
    assert {site for site, verb in again.asked if verb == "search"} == {"a", "b"}
    assert {verb for _, verb in again.asked} == {"hello", "search"}
    assert {site for site, verb in again.asked if verb == "hello"} == set(NAMES)
