"""`panas deploy`: what its commands print, and their exit codes."""

import json
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from elsewhere import NAMES, InThread, hub_config, make_sites, opened
from node_sites import owned_site

from dprbft.engines.deploy import accept as accepting
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.log import LOG, read_log
from dprbft.run.directory import Ground
from dprbft.run.stages import begin, search_stage
from dprbft.site.directory import read_site, site_account
from panas.runtime.errors import PanasError
from panas_cli.commands.sites.status import last_request
from panas_cli.text.privacy_card import largest_request


@pytest.fixture
def out(tmp_path: Path) -> Path:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    make_deployment(tmp_path / "f", Deployment(sites=NAMES, port=port))
    return tmp_path / "f"


def test_init_says_who_gets_what(cli: Callable, tmp_path: Path):
    told = cli("deploy", "init", "--sites", "a, b", "--out", tmp_path / "f", "--host", "h.org")
    assert (told.code, told.err) == (0, "")
    assert [w for w in ("ca", "hub", "sites/a", "sites/b") if str(tmp_path / "f" / w) in told.out]
    assert cli("deploy", "init", "--sites", "a", "--out", tmp_path / "f", "--json").refusal
    assert cli("deploy", "renew", tmp_path / "f").code == 0


def test_a_federation_is_changed_by_its_commands(
    cli: Callable, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(accepting, "ask_log", lambda *_: (out / "hub" / LOG).read_bytes())
    site, hub = out / "sites/a", out / "hub"
    told = cli("deploy", "add", out, "west")
    assert (told.code, told.err) == (0, "")
    shown = " ".join(told.out.split())
    assert f"{out / 'sites/west'}: for the administrator of west; its key is a secret" in shown
    assert f"copy {hub / LOG}, {hub / 'hub.toml'}, in this order" in shown
    told = cli("deploy", "remove", out, "b")
    assert told.out.startswith("b is removed; 3 sites left, of which a run needs 2")
    assert cli("deploy", "key", "--site", site, "--new").code == 0
    told = cli("deploy", "renew", out, "--site", "a", "--key", site / "node.pub")
    assert told.out.startswith("a has a new key\n")
    log = read_log(hub / LOG, (out / "ca/ca.crt").read_bytes())
    told = cli("deploy", "accept", "--site", site, "--log", log.head[:32])
    assert told.out.startswith(f"{site} now knows 3 sites:")
    record = json.loads(cli("deploy", "accept", "--site", site, "--log", log.head, "--json").out)
    assert [*record["sites"]] == ["a", "c", "west"]
    for refused in (
        ("add", out, "west"),
        ("remove", out, "b"),
        ("renew", out, "--key", site / "node.pub"),
        ("renew", out, "--site", "a", "--key", tmp_path / "none"),
        ("accept", "--site", site, "--log", "0" * 64),
    ):
        outcome = cli("deploy", *refused)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)


def test_sites_make_their_keys_and_compare_them(cli: Callable, tmp_path: Path):
    (tmp_path / "keys").mkdir()
    for name in ("a", "b"):
        told = cli("deploy", "key", "--site", tmp_path / name)
        assert (told.code, told.err) == (0, "")
        assert "panas deploy init --keys" in told.out
        shutil.copy(tmp_path / name / "node.pub", tmp_path / "keys" / f"{name}.pub")
    out, keys = tmp_path / "f", tmp_path / "keys"
    init = cli("deploy", "init", "--sites", "a,b", "--out", out, "--keys", keys)
    assert (init.code, " ".join(init.out.split()).count("no secret")) == (0, 2)
    shutil.copytree(out / "sites" / "a", tmp_path / "a", dirs_exist_ok=True)
    shown = json.loads(cli("deploy", "key", "--site", tmp_path / "a", "--json").out)
    assert shown["sites"]["a"] == shown["fingerprint"] != shown["sites"]["b"]
    assert shown["sites"]["b"] in cli("deploy", "key", "--site", tmp_path / "a").out
    none = cli("deploy", "init", "--sites", "a,c", "--out", tmp_path / "g", "--keys", keys)
    assert (none.code, none.err.count("\n"), (tmp_path / "g").exists()) == (2, 1, False)


def test_a_check_ends_with_2_where_something_is_wrong(cli: Callable, out: Path):
    record = cli("deploy", "check", "--hub", out / "hub")
    assert record.code == 2
    (to_do,) = record.out.split("\nDO")[1:] if "\nDO" in record.out else [record.out]
    assert "see with its administrator" in " ".join(to_do.split())
    record = json.loads(cli("deploy", "check", "--site", out / "sites/a", "--json").out)
    assert record["holds"] is False
    assert {c["what"] for c in record["checks"] if c["holds"] is False} >= {"hub", "data", "node"}


@pytest.mark.parametrize("arguments", [(), ("--site", "{0}", "--hub", "{0}"), ("--hub", "{0}/no")])
@pytest.mark.parametrize("command", ["check", "status", "start"])
def test_one_folder_is_to_be_given(arguments: tuple, command: str, cli: Callable, tmp_path: Path):
    assert cli("deploy", command, *(a.format(tmp_path) for a in arguments)).refusal


def seen(**connected: str) -> Callable[[Path], dict]:
    """What the hub's process says, in its place."""
    return lambda home: {"closed": {"idle": 2}, "connected": connected}


def silent(home: Path) -> dict:
    raise PanasError("no answer")


@pytest.mark.slow
def test_status_shows_who_is_connected_and_what_releases_cost(
    cli: Callable, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    places = make_sites(tmp_path)
    path = places["b"] / "site.toml"
    path.write_text(path.read_text().replace("moments", "class_sums"))  # b refuses
    run = out / "hub/runs/trial"
    opened_run = opened(run, hub_config(tmp_path), InThread(places), [])
    begin(opened_run, Ground.of(run))
    search_stage(opened_run)
    state = "panas_cli.commands.sites.status.state"
    monkeypatch.setattr(state, seen(a="online", c="offline"))
    record = json.loads(cli("deploy", "status", "--hub", out / "hub", "--json").out)
    assert record["connected"] == {"a": "online", "b": "not registered", "c": "offline"}
    assert (record["run"]["rounds"], record["run"]["absent"]) == (1, ["b"])
    assert record["run"]["down_bytes"] > record["run"]["up_bytes"] > 1000
    assert record["refused_at_port"] == {"idle": 2}
    a, b, _ = record["run"]["sites"]
    assert 0 < a["epsilon_of_releases"] < a["asks_for"]
    assert b["epsilon_of_releases"] is None
    text = cli("deploy", "status", "--hub", out / "hub").out
    assert "1 of 3 sites connected" in text
    assert re.search(r"\d kB to the sites, [\d.]+ kB from them", text)
    assert "its own ledger" in text
    monkeypatch.setattr(state, silent)
    record = cli("deploy", "status", "--hub", out / "hub").out
    assert "does not answer" in record
    assert "unknown" in record  # a line for each site
    # At a site, its own ledger: more than the release that a hub sees.
    assert "site a: expected a node at" in cli("deploy", "status", "--site", places["a"]).out
    own = json.loads(cli("deploy", "status", "--site", places["a"], "--json").out)
    assert own["answers"] is False
    assert own["spent"] >= a["epsilon_of_releases"]
    assert [r["name"] for r in own["runs"]] == ["trial"]
    site = read_site(places["a"])
    most = largest_request(site, site_account(places["a"], site))
    text = " ".join(cli("deploy", "status", "--site", places["a"]).out.split())
    assert "spent, a run may ask for" in text
    assert ("the epsilon of several charges is less than their sum" in text) == (
        own["spent"] + most > 8.001
    )


def test_a_run_of_other_sites_is_refused(cli: Callable, out: Path, tmp_path: Path):
    told = cli("deploy", "status", "--hub", out / "hub", "--run", tmp_path)
    assert (told.code, told.out) == (2, "")


def test_the_last_request_is_told_without_its_reason(tmp_path: Path):
    assert last_request(tmp_path / "node.log") is None
    lines = ({"time": "1", "verb": "hello", "run": "r", "code": "REFUSED", "reason": "why"}, {})
    text = "".join(json.dumps(x) + "\n" for x in lines) + '{"at'
    (tmp_path / "node.log").write_text(text)
    texts = last_request(tmp_path / "node.log")
    assert texts == {"time": "1", "verb": "hello", "run": "r", "code": "REFUSED"}


def test_a_node_with_a_key_that_is_none_does_not_begin(cli: Callable, tmp_path: Path):
    site = owned_site(tmp_path / "north")
    (site / "node.key").write_bytes(b"junk")
    outcome = cli("node", "--site", site)
    assert outcome.code == 2
    assert "expected a private key of a node" in outcome.err
