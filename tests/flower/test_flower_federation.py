"""A hub and three sites as real processes over TLS: the same run in three ways, and every fault.

All tests share one deployment, and leave it at work for the next. Runs are joined, no more: what
comes after is the sites' own. Each fault must be one clear line where an administrator looks.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from elsewhere import charges, make_sites
from exposition import value_of
from federation import METRICS, Federation, federation, wait_for

from dprbft.engines.deploy.accept import look_at
from dprbft.engines.deploy.certificates import Pair, new_certificate
from dprbft.engines.deploy.change import add, remove, renew, renew_key
from dprbft.engines.deploy.probe import greet
from dprbft.engines.flower.door.control import state
from dprbft.engines.flower.hub import free_port
from dprbft.engines.node.call import connected
from dprbft.paths import declared_file, server_folder
from dprbft.secure_sum.identity import new_key
from dprbft.server.records import RoundRecord, read_rounds
from dprbft.site.directory import read_site, write_site
from panas.data.facts import Facts
from panas.runtime.store import read_json, read_lines

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with federation(tmp_path_factory.mktemp("federation"), epsilon=200.0) as up:
        yield up


def arguments(way: str, folder: Path, run: Path) -> list[str]:
    return [sys.executable, "-m", "lead", way, str(folder), str(run)]


def lead(
    made: Federation,
    run: Path,
    way: str = "deployed",
    folder: Path | None = None,
    *,
    code: int = 0,
    epsilon: str = "8",
) -> str:
    """Lead a run in a process of its own; returns what it said."""
    folder = folder or made.folder
    command = [*arguments(way, folder, run), epsilon]
    # Sites of the same keys elsewhere are no copies of these: they have another owner.
    own = made.environment() | {"PANAS_STATE": str(folder / "state")}
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    return said


def round_of(run: Path) -> RoundRecord:
    (record,) = read_rounds(server_folder(run))
    return record


def head_of(run: Path) -> bytes:
    return (server_folder(run) / "round-001/broadcast.safetensors").read_bytes()


@contextmanager
def changed(path: Path, pattern: str, text: str) -> Iterator[None]:
    """A file with one line changed, for a while."""
    before = path.read_text()
    after = re.sub(pattern, text, before, flags=re.MULTILINE)
    assert after != before
    path.write_text(after)
    try:
        yield
    finally:
        path.write_text(before)


def plant(made: Federation, site: str, fault: str) -> Path:
    """Let a site's node fail once; returns a file that is gone once it does."""
    path = made.sites[site] / "fault"
    path.write_text(fault)
    return path


@pytest.fixture(scope="module")
def whole(made: Federation) -> Path:
    """A run without a fault."""
    run = made.folder / "whole"
    lead(made, run)
    return run


def metrics_at(folder: Path) -> str:
    """What /metrics answers at a socket in a folder."""
    with connected(folder / METRICS, time.monotonic() + 10) as link:
        link.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: link.recv(1 << 16), b"")).decode().partition("\r\n\r\n")[2]


def test_an_operator_sees_the_run_at_the_hub_and_at_a_site(made: Federation, whole: Path):
    hub, site = metrics_at(made.out / "hub"), metrics_at(made.sites["a"])
    rounds = ("panas_hub_rounds_begun_total", "panas_hub_rounds_ended_total")
    assert [value_of(hub, name) for name in rounds] == [1, 1]
    assert value_of(hub, "panas_hub_answers_total", site="a", verb="round", code="DONE") == 1
    assert value_of(hub, "panas_hub_site_connected", site="a") == 1
    assert abs(value_of(hub, "panas_hub_clock_skew_seconds", site="a")) < 5
    assert value_of(site, "panas_node_answers_total", verb="round", code="DONE") == 1
    assert "budget" not in site
    events = [x["event"] for x in read_lines(made.out / "hub/hub.log") if x["run"] == "whole"]
    assert {"round begun", "call", "round ended"} == set(events)


def test_three_ways_come_to_one_head_and_to_the_same_ledgers(made: Federation, whole: Path):
    assert round_of(whole).sites == (0, 1, 2)
    deployed = charges(made.sites)
    assert all(len(result) == 2 for result in deployed.values())
    for way in ("alone", "simulated"):
        folder = made.folder / way
        places = make_sites(folder)
        lead(made, folder / "whole", way, folder)
        assert head_of(folder / "whole") == head_of(whole)
        assert charges(places) == deployed


def test_a_hub_that_is_killed_goes_on_to_the_same_head(made: Federation, whole: Path):
    run, hung = made.folder / "killed", plant(made, "b", "hang round")
    with (made.folder / "killed.log").open("wb") as log:
        hub = subprocess.Popen(
            arguments("deployed", made.folder, run), env=made.environment(), stdout=log, stderr=log
        )
        wait_for(lambda: not hung.exists(), 120)
        os.kill(hub.pid, signal.SIGKILL)
        hub.wait()
    wait_for(lambda: not made.processes("flwr-serverapp"), 120)
    (made.sites["b"] / "freed").touch()
    lead(made, run)
    assert round_of(run).sites == (0, 1, 2)
    assert head_of(run) == head_of(whole)
    for result in charges(made.sites).values():
        assert len([charge for charge in result if charge.run == "killed"]) == 2


def test_a_site_that_raises_and_one_that_dies_cost_the_run_no_more_than_them(made: Federation):
    run = made.folder / "faults"
    plant(made, "b", "raise round")
    plant(made, "c", "die round")
    with changed(made.hub_file, "^minimum = .*", "minimum = 1"):
        text = lead(made, run)
    assert (round_of(run).sites, round_of(run).absent) == ((0,), (1, 2))
    # Who notices first: Flower, when it carries the message, or the hub, which looks who is there.
    gone = r"^site c( is not connected; going on without it|: its node does not answer; .*)$"
    assert re.search(gone, text, re.M)
    assert "SiteLeftOut(site='b', stage='join', why='failed'" in text
    assert "must not leave" not in text
    (line,) = [x for x in read_lines(made.sites["b"] / "node.log") if x["code"] == "FAILED"]
    assert (line["verb"], line["run"], line["reason"]) == ("round", "faults", "RuntimeError")
    # What the site that died was about to send is on its ledger, though nobody has it.
    assert len([c for c in charges(made.sites)["c"] if c.run == "faults"]) == 2
    assert made.running.pop("c").wait(60) == 1
    assert "expected the node to go on, and it ended with code -9" in made.log("c")
    made.start_site("c")
    wait_for(lambda: made.log("c").count("site c answers at") == 2)
    before, head = charges(made.sites), head_of(run)
    with changed(made.hub_file, "^minimum = .*", "minimum = 1"):
        text = lead(made, run)
    assert "SiteReleased(site='c', sent=False, " in text
    assert charges(made.sites) == before
    assert head_of(run) == head


def test_a_site_that_hangs_is_out_when_the_time_is_over(made: Federation):
    run = made.folder / "hung"
    plant(made, "a", "hang round")
    with changed(made.hub_file, "^deadline = .*", "deadline = 15.0"):
        text = lead(made, run)
    assert (round_of(run).sites, round_of(run).absent) == ((1, 2), (0,))
    assert re.search(r"^site a has not answered in 15 s$|^site a: its node has not", text, re.M)


def test_a_policy_and_a_budget_that_refuse_are_told_apart(made: Federation):
    run, settings = made.folder / "refused", made.sites["b"] / "site.toml"
    with changed(settings, r"^releases = \[[^\]]*\]", 'releases = ["class_sums"]'):
        text = lead(made, run, code=2, epsilon="500")
    assert text.splitlines()[-1].startswith("error: expected at least 2 of 3 sites")
    assert "too few without a (budget), b (refused), c (budget)" in text.splitlines()[-1]
    assert not [c for result in charges(made.sites).values() for c in result if c.run == "refused"]
    lines = {name: read_lines(folder / "node.log") for name, folder in made.sites.items()}
    told = {name: [x for x in result if x["verb"] == "hello"][-1] for name, result in lines.items()}
    codes = {name: line["code"] for name, line in told.items()}
    assert codes == {"a": "NO_BUDGET", "b": "REFUSED", "c": "NO_BUDGET"}
    assert "releases" in told["b"]["reason"]
    assert "which is left of 200 for life" in told["c"]["reason"]


def test_too_few_sites_are_one_line(made: Federation):
    made.kill("c")  # its node and its relay end with what started them
    with (
        changed(made.hub_file, "^minimum = .*", "minimum = 3"),
        changed(made.hub_file, "^patience = .*", "patience = 3.0"),
    ):
        text = lead(made, made.folder / "few", code=2)
    assert text.splitlines()[-1] == (
        "error: expected at least 3 of 3 sites within 3 s, got 2; start those that miss: c"
    )
    made.start_site("c")


def states(made: Federation) -> dict[str, str]:
    """Each site's connection, as the hub has it."""
    return dict(state(made.hub.home)["connected"])


def closed_for_removal(made: Federation) -> int:
    """Connections that the hub has closed of keys that it knows no more."""
    return int(state(made.hub.home)["closed"].get("removed", 0))


def look_now(made: Federation) -> bytes:
    """The certificate that the hub shows."""
    return greet(made.hub.local_address, made.hub.ca).certificate


def relay(made: Federation, folder: Path, address: str, authority: Path) -> tuple[int, str]:
    """A site's relay with a key that nobody knows; its exit code and last line."""
    folder.mkdir()
    (folder / "node.key").write_bytes(new_key())
    options = ["--superlink", address, "--root-certificates", str(authority)]
    options += ["--auth-supernode-private-key", str(folder / "node.key")]
    done = subprocess.run(
        [sys.executable, "-m", "dprbft.engines.flower.site", "--socket", "none.sock", *options],
        env=made.environment() | {"FLWR_HOME": str(folder / "flower")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return done.returncode, done.stderr.splitlines()[-1]


def test_a_key_that_the_hub_does_not_know_is_refused(made: Federation):
    address = made.hub.local_address
    code, line = relay(made, made.folder / "unknown", address, made.hub.ca)
    assert code == 1
    assert line.startswith(f"panas: expected the hub {address} to know this site's key")


def test_a_hub_of_another_authority_is_not_trusted(made: Federation, tmp_path: Path):
    other = Federation(tmp_path / "other")
    other.folder.mkdir()
    other.make()
    code, line = relay(made, tmp_path / "site", made.hub.local_address, other.hub.ca)
    assert code == 1
    assert "that it does not (unable to get local issuer certificate)" in line


def test_an_expired_certificate_is_told_at_both_ends(made: Federation, tmp_path: Path):
    out = made.out
    authority = Pair((out / "ca" / "ca.crt").read_bytes(), (out / "ca" / "ca.key").read_bytes())
    half_an_hour_ago = -1 / 48
    expired = new_certificate(authority, "localhost", half_an_hour_ago)  # type: ignore[arg-type]
    (tmp_path / "hub.crt").write_bytes(expired.certificate)
    (tmp_path / "hub.key").write_bytes(expired.key)
    port = free_port()
    with changed(made.hub_file, "^port = .*", f"port = {port}"):
        files = ("ssl-certfile", "hub.crt"), ("ssl-keyfile", "hub.key")
        given = [word for what, file in files for word in (f"--{what}", str(tmp_path / file))]
        given += ["--ssl-ca-certfile", str(made.hub.ca), "--port", str(port)]
        made.start("expired", *given, module="dprbft.engines.flower.hub")
        wait_for(lambda: "Uvicorn running" in made.log("expired"))
        code, line = relay(made, tmp_path / "site", f"localhost:{port}", made.hub.ca)
        assert code == 1
        assert "that it does not (certificate has expired)" in line
        text = lead(made, made.folder / "expired", code=2)
        assert "(certificate has expired)" in text.splitlines()[-1]
        made.stop("expired")


def upgraded(folder: Path, version: str) -> str:
    """A folder for the Python path, with which panas has another version."""
    about = folder / f"panas-{version}.dist-info"
    about.mkdir()
    text = f"Metadata-Version: 2.1\nName: panas\nVersion: {version}\n"
    (about / "METADATA").write_text(text)
    return str(folder)


def test_a_site_and_then_the_hub_are_upgraded_while_a_run_is_open(
    made: Federation, whole: Path, tmp_path: Path
):
    """The tests after this one have an upgraded hub and site."""
    run, hung = made.folder / "upgraded", plant(made, "c", "hang round")
    with (made.folder / "upgraded.log").open("wb") as log:
        leading = subprocess.Popen(
            arguments("deployed", made.folder, run), env=made.environment(), stdout=log, stderr=log
        )
        wait_for(lambda: not hung.exists(), 120)
        leading.kill()
        leading.wait()
    (made.sites["c"] / "freed").touch()
    before = charges(made.sites)
    made.first = (upgraded(tmp_path, "99.0.0"),)
    which = [sys.executable, "-c", "from dprbft.wire import own_version; print(own_version())"]
    said = subprocess.check_output(which, env=made.environment(), cwd=tmp_path, text=True)
    assert said == "99.0.0\n"
    made.stop("b")
    made.start_site("b")
    wait_for(lambda: made.log("b").count("site b answers at") == 2)
    made.stop("hub")
    made.start_hub()
    wait_for(lambda: set(states(made).values()) == {"online"}, 90)
    lead(made, run)
    assert round_of(run).sites == (0, 1, 2)
    assert head_of(run) == head_of(whole)
    for name, known in before.items():
        now = charges(made.sites)[name]
        assert now[: len(known)] == known
        assert len([charge for charge in now if charge.run == "upgraded"]) == 2


def test_sites_come_go_and_change_keys_while_the_hub_runs(made: Federation):
    """Without a restart of the hub; the deployment is not whole afterwards."""
    hub = made.running["hub"]
    run, hung = made.folder / "changing", plant(made, "c", "hang round")
    with (made.folder / "changing.log").open("wb") as log:
        leading = subprocess.Popen(
            arguments("deployed", made.folder, run), env=made.environment(), stdout=log, stderr=log
        )
        wait_for(lambda: not hung.exists(), 120)
        remove(made.out, "c")
        assert leading.wait(240) == 0, made.log("changing")
    assert (round_of(run).sites, round_of(run).absent) == ((0, 1), (2,))
    assert "site c is not connected; going on without it" in made.log("changing")
    wait_for(lambda: "to know this site's key" in made.log("c"), 60)

    certificate = look_now(made)
    renew(made.out, 30)
    wait_for(lambda: look_now(made) != certificate, 30)
    assert states(made) == {"a": "online", "b": "online"}

    before = charges(made.sites)["b"]
    renew_key(made.out, "b")
    wait_for(lambda: closed_for_removal(made) > 0, 60)
    wait_for(lambda: states(made)["b"] == "online", 90)
    settings = read_site(made.sites["c"]).model_copy(update={"name": "d"})
    facts = Facts.from_json(read_json(declared_file(made.sites["c"])))
    write_site(add(made.out, "d"), settings, facts=facts)
    made.names = ("a", "b", "d")
    made.start_site("d")
    wait_for(lambda: states(made).get("d") == "online", 90)
    assert hub.poll() is None

    log, news = look_at(made.sites["a"])
    assert log is not None
    assert [line.partition(" (")[0] for line in news] == [
        "d is new",
        "b has a new key",
        "c is removed",
    ]
    run = made.folder / "changed"
    text = lead(made, run)
    assert round_of(run).sites == (0, 1, 2), text
    assert len(charges(made.sites)["b"]) == len(before) + 2
