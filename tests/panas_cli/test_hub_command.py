"""The command line of a hub: what does not fit, and what it can say of its run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from elsewhere import InThread, hub_config, make_sites, opened

from dprbft.run.stages import exchange_stage
from panas.runtime.errors import PanasError


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "hub.toml").write_text('names = ["a", "b"]\n[sockets]\na = "a"\nb = "b"\n')
    return folder


def test_what_does_not_fit_a_hub_is_refused(cli: Callable, hub: Path, tmp_path: Path):
    facts = tmp_path / "facts.json"
    facts.write_text("{}")
    for arguments, told in (
        (["--facts", facts], "--hub DIR with --facts"),
        (["--hub", tmp_path], "found none; `panas deploy init`"),
        (["--hub", hub, "--engine", "inprocess"], "leave one out"),
        (["--hub", hub, "--clients", "3"], "federation.clients as well"),
        (["--hub", hub, "--facts", tmp_path / "none"], "check --facts"),
        (["--hub", hub, "--method", "joined"], "give --public-data, or --facts"),
    ):
        outcome = cli("run", *arguments, "--out", tmp_path / "run")
        assert outcome.code == 2
        assert told in outcome.err
        assert len(outcome.err.splitlines()) == 1
        assert not (tmp_path / "run").exists()


def test_where_nobody_answers_the_run_ends_in_one_line(cli: Callable, hub: Path, tmp_path: Path):
    make_sites(tmp_path)
    public = ("--public-data", tmp_path / "public.npz", "--method", "joined")
    outcome = cli("run", "--hub", hub, *public, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert "at least 1 of 2 sites (minimum of hub.toml)" in outcome.err.splitlines()[-1]
    assert "a (absent), b (absent)" in outcome.err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_a_hub_reports_what_it_knows_and_says_what_it_cannot(cli: Callable, tmp_path: Path):
    places, run = make_sites(tmp_path), tmp_path / "trial"
    exchange_stage(opened(run, hub_config(tmp_path), InThread(places)))
    told = json.loads(cli("report", run, "--json").out)
    assert [s["through"] for s in told["sites"]] == [["join"]] * 3
    assert told["absent"] == ["a", "b", "c"]
    shown = cli("report", run).out
    assert "never cross the wire" in shown
    assert "shared head: accuracy" in shown
    for command, why in (("audit", "an audit scores"), ("ledger", "their data, ledgers")):
        outcome = cli(command, run)
        assert outcome.code == 2
        assert why in outcome.err
        assert len(outcome.err.splitlines()) == 1
    outcome = cli("run", "--resume", "--out", run)
    assert outcome.code == 2
    assert "expected --hub DIR" in outcome.err


def test_a_new_run_whose_carrier_does_not_start_leaves_nothing(
    cli: Callable, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*given: object) -> None:
        raise PanasError("expected at least 2 of 3 sites, got 1")

    make_sites(tmp_path)
    monkeypatch.setattr("panas_cli.commands.sites.hub.UnixCarrier", refuse)
    public = ("--public-data", tmp_path / "public.npz", "--method", "joined")
    outcome = cli("run", "--hub", hub, *public, "--out", tmp_path / "run")
    assert outcome.err.splitlines()[-1] == "error: expected at least 2 of 3 sites, got 1"
    assert not (tmp_path / "run").exists()
