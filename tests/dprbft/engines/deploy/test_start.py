"""What a site starts: a relay that ends is started again, a node that ends ends all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from federation import is_running, wait_for
from node_sites import owned_site

from dprbft.engines.deploy import start
from dprbft.engines.deploy.change import remove
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.settings import Hub, flower_hub
from dprbft.engines.deploy.start import Part, start_site
from dprbft.engines.node.call import SOCKET
from dprbft.site.directory import SiteSettings, write_site
from dprbft.site.federations import FederationShare
from panas.runtime.errors import BadInput, PanasError


@pytest.mark.slow
def test_a_relay_that_ends_is_started_again_until_the_node_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "site.toml").touch()
    starts = tmp_path / "starts"
    note = f"open({str(starts)!r}, 'a').write('x')"
    wait = (
        "import pathlib, time\n"
        f"while len(pathlib.Path({str(starts)!r}).read_text()) < 3: time.sleep(.05)"
    )
    starts.touch()
    parts = (
        Part("node", (sys.executable, "-c", wait), tmp_path / "flower"),
        Part("relay", (sys.executable, "-c", note), tmp_path / "flower"),
    )
    monkeypatch.setattr(start, "site_parts", lambda folder: parts)
    monkeypatch.setattr(start, "AGAIN", 0.0)
    with pytest.raises(PanasError, match="expected the node to go on, and it ended with code 0"):
        start_site(tmp_path)
    assert len(starts.read_text()) >= 3


def test_a_node_is_told_to_end_with_what_starts_it(tmp_path: Path):
    make_deployment(tmp_path / "f", Deployment(sites=("a",)))
    site, settings = (
        tmp_path / "f/sites/a",
        SiteSettings(name="a", data="data.npz", epsilon=1.0, delta=1e-5),
    )
    write_site(site, settings)
    node, relay = start.site_parts(site)
    assert node.command[-2:] == ("--parent", str(os.getpid()))
    assert f"--with-parent={os.getpid()}" in relay.command


def test_a_site_connects_to_the_hub_of_each_of_its_federations(tmp_path: Path):
    for name, port in (("f", 8001), ("g", 8002)):
        make_deployment(tmp_path / name, Deployment(sites=("a",), port=port))
    site, other = tmp_path / "f/sites/a", tmp_path / "g/sites/a"
    settings = SiteSettings(
        name="a",
        data="data.npz",
        epsilon=1.0,
        delta=1e-5,
        federation={"g": FederationShare(folder=str(other))},
        log_format="json",
    )
    write_site(site, settings)
    node, first, second = start.site_parts(site)
    assert (node.name, first.name, second.name) == ("node", "relay", "relay of g")
    for part, folder, port in ((first, site, 8001), (second, other, 8002)):
        assert {f"localhost:{port}", str(folder / SOCKET), str(folder / "ca.crt")} <= {
            *part.command
        }
        assert str(folder / "node.key") in part.command
        assert (part.flower, part.log_format) == (folder / "flower", "json")


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
def test_a_node_ends_when_what_started_it_is_killed(early: bool, tmp_path: Path):
    site = owned_site(tmp_path / "north")
    node = [sys.executable, "-m", "panas_cli", "node", "--site", str(site), "--device", "cpu"]
    starter = (
        "import os, subprocess, sys, time\n"
        f"node = subprocess.Popen([*{node!r}, '--parent', str(os.getpid())])\n"
        "print(node.pid, flush=True)\n"
        "time.sleep(120)"
    )
    parent = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        if not early:
            wait_for((site / SOCKET).exists, 60)
        parent.kill()
        parent.wait()
        wait_for(lambda: not is_running(child), 60)
        assert not (site / SOCKET).exists()
    finally:
        parent.kill()
        parent.wait()
        if is_running(child):
            os.kill(child, signal.SIGKILL)


def test_a_hub_is_told_where_it_logs_and_answers_metrics(tmp_path: Path):
    make_deployment(tmp_path / "f", Deployment(sites=("a",)))
    folder = tmp_path / "f/hub"
    own = start.hub_part(flower_hub(folder)).command
    assert f"--federation-log={folder / 'federation.log.jsonl'}" in own
    assert not [x for x in own if "metrics" in x]
    path, text = folder / "hub.toml", (folder / "hub.toml").read_text()
    for given, told in (("9101", "9101"), ("m.sock", str(folder / "m.sock"))):
        own = f'metrics = "{given}"\nlog_format = "json"\n[keys]'
        path.write_text(text.replace("[keys]", own))
        part = start.hub_part(flower_hub(folder))
        assert part.command[-2:] == (f"--hub-log={folder / 'hub.log'}", f"--hub-metrics={told}")
        assert part.log_format == "json"
    path.write_text(text.replace("[keys]", 'metrics = "here"\n[keys]'))
    with pytest.raises(BadInput, match="expected metrics as HOST:PORT"):
        start.hub_part(flower_hub(folder))


def test_a_hub_registers_anew_what_its_settings_name_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    make_deployment(tmp_path / "f", Deployment(sites=("a", "b")))
    hub, asked, fails = flower_hub(tmp_path / "f/hub"), list[set[str]](), [False]

    def register(hub: Hub) -> None:
        asked.append(set(hub.keys))
        if fails[0]:
            raise PanasError("expected the hub to answer")

    monkeypatch.setattr(start, "register", register)
    registering = start._Registering(hub)
    registering.register()
    registering.look()
    assert asked == [{"a", "b"}]
    remove(tmp_path / "f", "b")
    fails[0] = True
    registering.look()
    registering.look()
    assert asked[1:] == [{"a"}]
    assert capsys.readouterr().err == "panas: expected the hub to answer\n"
    monkeypatch.setattr(registering, "_due", 0.0)
    fails[0] = False
    for _ in range(2):
        registering.look()
    assert asked[1:] == [{"a"}, {"a"}]
