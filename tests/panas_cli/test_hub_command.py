"""The command line of a hub: what does not fit, and what it can say of its run."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from elsewhere import InThread, hub_config, make_sites, opened
from node_sites import serving

from dprbft.engines.node.call import SOCKET
from dprbft.engines.node.daemon import LOG, Node
from dprbft.run.stages import exchange_stage
from panas.runtime.errors import PanasError
from panas.runtime.store import read_json, write_json


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
        (["--hub", hub, "--clients", "3"], "federation.clients (--clients) as well"),
        (["--hub", hub, "--facts", tmp_path / "none"], "check --facts"),
        (["--hub", hub, "--facts", facts], "which is another kind of file, or was edited"),
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


@pytest.mark.slow
def test_a_hub_reports_what_it_knows_and_says_what_it_cannot(cli: Callable, tmp_path: Path):
    places, run = make_sites(tmp_path), tmp_path / "trial"
    exchange_stage(opened(run, hub_config(tmp_path), InThread(places)))
    record = json.loads(cli("report", run, "--json").out)
    assert [s["through"] for s in record["sites"]] == [["join"]] * 3
    assert record["absent"] == ["a", "b", "c"]
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
    monkeypatch.setattr("panas_cli.commands.run.UnixCarrier", refuse)
    public = ("--public-data", tmp_path / "public.npz", "--method", "joined")
    outcome = cli("run", "--hub", hub, *public, "--out", tmp_path / "run")
    assert outcome.err.splitlines()[-1] == "error: expected at least 2 of 3 sites, got 1"
    assert not (tmp_path / "run").exists()


def of_facts(tmp_path: Path, facts: Path) -> list[object]:
    """A small run over sites whose hub has no samples, only what they declare."""
    settings = {
        "federation.method": "joined",
        "federation.baselines": "false",
        "network.width": "16",
        "network.features": "16",
        "privacy.delta": "1e-3",
        "privacy.network": "stays",
    }
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    reach = ["--hub", tmp_path / "hub", "--facts", facts, "--out", tmp_path / "run"]
    return ["run", *reach, *options]


@pytest.fixture
def sites(hub: Path, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Three sites whose nodes answer at sockets, which the hub knows."""
    places = make_sites(tmp_path)
    sockets = "".join(f'{name} = "{place / SOCKET}"\n' for name, place in places.items())
    (hub / "hub.toml").write_text(f'names = ["a", "b", "c"]\nminimum = 2\n[sockets]\n{sockets}')
    with ExitStack() as up:
        for name, place in places.items():
            up.enter_context(serving(Node({name: place}), place / SOCKET))
        yield places


@pytest.mark.thorough
def test_declared_facts_are_enough_for_a_hub(cli: Callable, sites: dict[str, Path], tmp_path: Path):
    outcome = cli(*of_facts(tmp_path, sites["a"] / "facts.json"))
    assert outcome.code == 0, outcome.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["public_samples"], summary["absent"]) == (0, [])


@pytest.mark.slow
def test_facts_that_the_sites_do_not_declare_are_refused_by_them(
    cli: Callable, sites: dict[str, Path], tmp_path: Path
):
    facts = read_json(sites["a"] / "facts.json")
    write_json(tmp_path / "facts.json", facts | {"shape": [1, 9, 9]})
    outcome = cli(*of_facts(tmp_path, tmp_path / "facts.json"))
    assert outcome.code == 2
    assert "a (refused), b (refused), c (refused)" in outcome.err.splitlines()[-1]
    assert "the facts that facts.json declares" in (sites["a"] / LOG).read_text()
    assert not (tmp_path / "run").exists()
    assert not any((place / "runs").exists() for place in sites.values())


@pytest.mark.parametrize("damage", [b"{}", b"no facts", b'{"shape": [1, 8, 8]}'])
def test_a_file_that_holds_no_facts_is_refused_here(
    damage: bytes, cli: Callable, sites: dict[str, Path], tmp_path: Path
):
    (tmp_path / "facts.json").write_bytes(damage)
    outcome = cli(*of_facts(tmp_path, tmp_path / "facts.json"))
    assert (outcome.code, len(outcome.errors)) == (2, 1)
    assert "facts.json" in outcome.err
    assert not (tmp_path / "run").exists()
    assert not any((place / LOG).exists() for place in sites.values())
