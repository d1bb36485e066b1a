"""What the hub's SuperLink and a site's SuperNode refuse to be started with, and who may ask."""

import importlib
import inspect
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dprbft.engines.deploy.certificates import new_authority
from dprbft.engines.flower import hub, site
from dprbft.engines.flower.hub import free_port
from dprbft.engines.flower.link import environment
from panas.runtime.errors import BadInput


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the project in its path."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "hub.example.org", "::"])
def test_an_address_that_others_reach_needs_tls(host: str):
    with pytest.raises(BadInput, match="expected TLS"):
        hub.checked(["--insecure", "--host", host])
    with pytest.raises(BadInput, match="expected TLS"):
        site.checked(["--insecure", "--superlink", f"{host}:8000", "--socket", "s"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_loopback_may_go_without(host: str):
    assert "--insecure" in hub.checked(["--insecure", f"--host={host}"])
    assert "--insecure" in site.checked(["--insecure", f"--superlink={host}:1", "--socket", "s"])


def test_nodes_of_a_deployment_always_need_a_registered_key():
    assert hub.checked([]) == ["--enable-supernode-auth"]
    assert hub.checked(["--enable-supernode-auth"]) == ["--enable-supernode-auth"]
    assert hub.checked(["--simulation", hub.with_parent()]) == ["--simulation"]


def test_what_starts_programs_at_a_site_cannot_be_chosen():
    given = ["--superlink", "h:1", "--socket", "s", "--isolation", "subprocess", "--port=7"]
    assert site.checked(given) == ["--superlink", "h:1", "--port=7"]


def test_what_is_wrong_with_the_options_is_one_line():
    done = python("-m", site.__name__, "--superlink", "localhost:1")
    assert done.returncode == 1
    assert done.stderr.startswith("panas: expected --superlink HOST:PORT and --socket")
    assert done.stderr.count("\n") == 1


def test_a_hub_that_nobody_serves_is_unreachable(tmp_path: Path):
    (tmp_path / "ca.crt").write_bytes(new_authority(1).certificate)
    with pytest.raises(hub.Unreachable, match=r"expected a hub at localhost:1, got no answer") as e:
        hub.check_hub("localhost:1", tmp_path / "ca.crt")
    assert e.value.exit_code == 2  # 1 is a leak


@pytest.mark.parametrize("content", [None, b"", b"junk"])
def test_a_certificate_that_is_none_is_told_as_such(content: bytes | None, tmp_path: Path):
    if content is not None:
        (tmp_path / "ca.crt").write_bytes(content)
    with pytest.raises(BadInput, match=r"expected a certificate .*ca\.crt"):
        hub.check_hub("localhost:1", tmp_path / "ca.crt")


def test_nothing_here_loads_torch():
    code = (
        f"import sys, {hub.__name__}, {site.__name__}, dprbft.engines.flower.app.packets;"
        "print('torch' in sys.modules, 'flwr' in sys.modules)"
    )
    assert python("-c", code).stdout.split() == ["False", "False"]


@pytest.mark.parametrize("module", [hub, site])
def test_one_whose_parent_has_gone_before_it_began_ends_at_once(module: Any, tmp_path: Path):
    address = ("--superlink", "127.0.0.1:1", "--socket", str(tmp_path / "s"))
    given = address if module is site else ("--port", str(free_port()))
    nobody = 0  # no process has this number
    done = subprocess.run(
        [sys.executable, "-m", module.__name__, *given, "--insecure", f"--with-parent={nobody}"],
        env=environment(tmp_path / "flower") | {"PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGTERM


def test_a_hub_may_open_as_many_files_as_the_system_allows():
    code = (
        "import resource as r; from dprbft.engines.flower.hub import raise_open_files as f;"
        "hard = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (64, hard));"
        "f(); print(r.getrlimit(r.RLIMIT_NOFILE)[0] == min(hard, 1 << 16))"
    )
    assert python("-c", code).stdout.strip() == "True"


def test_options_are_left_out_in_either_form():
    given = ["--host", "h", "--port=1", "--insecure", "--database", "d"]
    assert hub.without(given, "--host", "--port") == ["--insecure", "--database", "d"]


STARTED = """
import ast, sys
from dprbft.engines.flower import site

class Thread:
    def __init__(self, **of):
        tree = ast.parse(open(site.__file__).read())
        wanted = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        flower = {name for name in wanted if name.startswith("flwr")}
        print(len(flower), *sorted(flower - sys.modules.keys()))
        sys.exit()

site.threading.Thread = Thread
site.main(["--superlink", "localhost:1", "--socket", "s", "--insecure"])
"""


@pytest.mark.slow
def test_flower_is_imported_before_a_second_thread_could_import_it_too():
    count, *missing = python("-c", STARTED).stdout.split()
    assert int(count) > 5
    assert missing == []


def test_a_site_asks_less_often_when_all_is_quiet(monkeypatch: pytest.MonkeyPatch):
    slept = list[float]()
    monkeypatch.setattr(time, "sleep", slept.append)
    pace = site.Pace()
    pace.sleep(site.NO_MESSAGE)
    pace.sleep(0.5)  # while it waits for an answer that the relay is about to give
    pace.seen -= site.BUSY
    pace.sleep(site.NO_MESSAGE)
    pace.sleep(0.5)
    assert slept == [1.0, 0.5, 4.0, 0.5]
    source = inspect.getsource(pytest.importorskip("flwr.supernode.start_client_internal"))
    assert f"time.sleep({site.NO_MESSAGE})" in source


def test_a_site_whose_connection_flower_gives_up_ends_and_is_started_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """By `deploy start`; else a thread of Flower's would keep a process that asks nobody."""
    pytest.importorskip("flwr")
    module = importlib.import_module("flwr.supernode.cli.flower_supernode")
    client = importlib.import_module("flwr.supernode.start_client_internal")
    monkeypatch.setattr(client, "time", client.time)  # whatever it becomes, it is again what it was
    monkeypatch.setattr(module, "flower_supernode", lambda: None)
    codes = list[int]()
    monkeypatch.setattr(site.os, "_exit", codes.append)
    site._run_supernode("hub.example.org:8000", None, site.Pace())
    assert codes == [1]
    assert (
        "panas: the connection to the hub hub.example.org:8000 was lost" in capfd.readouterr().err
    )


def test_whatever_flower_raises_ends_a_site_s_relay(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    pytest.importorskip("flwr")
    module = importlib.import_module("flwr.supernode.cli.flower_supernode")
    client = importlib.import_module("flwr.supernode.start_client_internal")
    monkeypatch.setattr(client, "time", client.time)

    def fail() -> None:
        raise ValueError("a payload of somebody")

    monkeypatch.setattr(module, "flower_supernode", fail)
    codes = list[int]()
    monkeypatch.setattr(site.os, "_exit", codes.append)
    site._run_supernode("hub.example.org:8000", None, site.Pace())
    said = capfd.readouterr().err
    assert codes == [1]
    assert "Flower's client failed (ValueError)" in said
    assert "payload" not in said
