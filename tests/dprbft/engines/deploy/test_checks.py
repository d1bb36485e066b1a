"""Every fault that a check looks for is found, in one line, and tells nothing of the data."""

import hashlib
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from dprbft.engines.deploy import certificates, checks
from dprbft.engines.deploy.accept import accept
from dprbft.engines.deploy.certificates import Pair, new_certificate
from dprbft.engines.deploy.change import add
from dprbft.engines.deploy.checks import Check, check_hub, check_site
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.log import HEAD, LOG
from dprbft.engines.deploy.probe import HISTORY
from dprbft.engines.flower.door.control import SOCKET as CONTROL
from dprbft.engines.node.call import bound
from dprbft.secure_sum.identity import new_key, public_of
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import release_multiplier
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger

SECRET = 987_654_321  # a label of the data, which is no part of a path or a port


class Answers(BaseHTTPRequestHandler):
    """A hub that says that it is well."""

    late = 0.0  # seconds by which its clock is behind

    knows = True  # the key of whoever asks
    control = 403  # what its Control interface answers at this port
    log = b""  # of the federation; none: it has none

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        signed = {"flwr-public-key", "flwr-timestamp", "flwr-signature"} <= {*self.headers}
        known, log = signed and type(self).knows, type(self).log
        told = self.path == HISTORY
        self.send_response((200 if log else 404) if known and told else 204 if known else 401)
        self.end_headers()
        if known and told:
            self.wfile.write(log)

    def do_POST(self) -> None:
        self.send_response(type(self).control)
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        import time

        return super().date_time_string(time.time() - type(self).late)

    def log_message(self, *anything: object) -> None:
        pass


@dataclass
class Place:
    """A deployment on this machine, with a hub that listens and a node's socket."""

    out: Path
    server: ThreadingHTTPServer
    trust: ssl.SSLContext

    @property
    def site(self) -> Path:
        return self.out / "sites/a"

    @property
    def hub(self) -> Path:
        return self.out / "hub"

    def show(self) -> None:
        """Let the hub show the certificate that is in its folder."""
        self.trust.load_cert_chain(self.hub / "hub.crt", self.hub / "hub.key")

    def certify(self, days: int = 10, host: str = "localhost") -> None:
        """Give the hub another certificate of its authority."""
        authority = Pair(*((self.out / "ca" / n).read_bytes() for n in ("ca.crt", "ca.key")))
        made = new_certificate(authority, host, days)
        (self.hub / "hub.crt").write_bytes(made.certificate)
        (self.hub / "hub.key").write_bytes(made.key)
        self.show()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment of one site with 60 samples."""
    folder = tmp_path_factory.mktemp("deployed")
    data, random = folder / "data.npz", np.random.default_rng(0)
    images = random.integers(0, 255, (60, 8, 8), dtype=np.uint8)
    np.savez(data, train_images=images, train_labels=np.arange(60) % 3)
    make_deployment(folder / "f", Deployment(sites=("a",)))
    site = SiteSettings(name="a", data=str(data), epsilon=8, delta=1e-3)
    facts, _ = declared(folder / "f/sites/a", site)
    write_site(folder / "f/sites/a", site, facts=facts)
    return folder / "f"


@pytest.fixture
def place(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    out = tmp_path / "f"
    shutil.copytree(original, out)
    log = (out / "hub" / LOG).read_bytes()
    for name, value in (("late", 0.0), ("knows", True), ("control", 403), ("log", log)):
        monkeypatch.setattr(Answers, name, value)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    place = Place(out, server, trust)
    place.show()
    server.socket = trust.wrap_socket(server.socket, server_side=True)
    for path, old in ((out / "hub/hub.toml", "8000"), (out / "sites/a/federation.json", "8000")):
        path.write_text(path.read_text().replace(old, str(server.server_port)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    node = socket.socket(socket.AF_UNIX)
    node.bind(str(out / "sites/a/node.sock"))
    (out / "sites/a/node.sock").chmod(0o600)
    node.listen()
    (out / "hub/flower").mkdir()
    monkeypatch.setattr(checks, "state", lambda home: {"connected": {"a": "online"}})
    with bound(out / "hub/flower" / CONTROL):
        yield place
    server.shutdown()
    server.server_close()
    node.close()


def faults(found: Iterator[Check]) -> dict[str, str]:
    """Lines of what does not hold."""
    return {check.what: check.line for check in found if check.holds is not True}


def test_where_nothing_is_wrong_all_holds(place: Place):
    before = {p: p.read_bytes() for p in place.out.rglob("*") if p.is_file()}
    assert faults(check_site(place.site)) == {}
    assert faults(check_hub(place.hub)) == {}
    assert {p: p.read_bytes() for p in place.out.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("now", "says"),
    [("online", "1 of 1 are connected"), ("offline", "0 of 1 are connected; not yet: a")],
)
def test_a_hub_says_who_is_connected(
    now: str, says: str, place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checks, "state", lambda home: {"connected": {"a": now}})
    (check,) = (c for c in check_hub(place.hub) if c.what == "sites")
    assert (check.holds, check.line) == (True, says)


def spend_all(place: Place) -> None:
    budget = Budget(8.0, 1e-3)
    ledger = Ledger(place.site / "ledger.jsonl")
    ledger.open_account(budget)
    event = Gaussian(release_multiplier(budget, 1, 1.0))
    charge = Charge(
        event=event, phase="release", mechanism="moments", recipient="server", sensitivity=1.0
    )
    with ledger.begin_run("run", budget).charge(charge):
        pass


def expired(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "EARLY", timedelta(days=9))
    place.certify(-1)


def not_yet_valid(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "EARLY", -timedelta(hours=2))
    place.certify(9)


def of_another_host(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LOCAL", ())
    place.certify(9, "other.example.org")


def of_another_authority(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other = certificates.new_authority(9)
    (place.site / "ca.crt").write_bytes(other.certificate)


def stopped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        path = place.site / "federation.json"
        text = path.read_text().replace(
            f"localhost:{place.server.server_port}", f"127.0.0.1:{free.getsockname()[1]}"
        )
        path.write_text(text)


def fast(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "late", 60.0)


def slow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "late", -400.0)


def another_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.site / "node.key").write_bytes(new_key())


def open_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.site / "node.key").chmod(0o644)


def other_data(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place.site / "other.npz"
    labels = np.full(60, SECRET)
    np.savez(path, train_images=np.zeros((60, 9, 9), np.uint8), train_labels=labels)
    settings = place.site / "site.toml"
    lines = settings.read_text().splitlines()
    lines = [f'data = "{path}"' if x.startswith("data =") else x for x in lines]
    settings.write_text("\n".join(lines))


def another_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = place.site / "site.toml"
    settings.write_text(settings.read_text().replace('name = "a"', 'name = "z"'))


def no_node(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.site / "node.sock").unlink()


def no_flower(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        from importlib.metadata import PackageNotFoundError

        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)


def unknown(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "knows", False)


FAULTS = [
    (unknown, "key at the hub", "to know this site's key, got a refusal"),
    (expired, "hub's certificate", "certificate has expired"),
    (not_yet_valid, "hub's certificate", "not yet valid"),
    (of_another_host, "hub's certificate", "not valid for 'localhost'"),
    (of_another_authority, "hub's certificate", "vouches for"),
    (stopped, "hub", "see with its administrator"),
    (fast, "clock", "ahead of it; set this machine's clock"),
    (slow, "clock", "behind it; set this machine's clock"),
    (another_key, "key", "to be the key of a"),
    (open_key, "key", "chmod 600"),
    (other_data, "data", "panas site show"),
    (another_name, "data", "the name a in site.toml"),
    (no_node, "node", "start.sh"),
    (no_flower, "versions", "pip install"),
]


@pytest.mark.parametrize(("fault", "what", "told"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_each_fault_at_a_site_is_one_line(
    fault: Callable, what: str, told: str, place: Place, monkeypatch: pytest.MonkeyPatch
):
    fault(place, monkeypatch)
    texts = faults(check_site(place.site))
    assert told in texts.pop(what)
    # Nothing else is at fault; what the fault hides is said to be unseen.
    assert all(line.startswith("not seen") for line in texts.values()), texts


def test_no_line_tells_of_the_data(place: Place, monkeypatch: pytest.MonkeyPatch):
    other_data(place, monkeypatch)
    assert not any(str(SECRET) in check.line for check in check_site(place.site))


def test_a_spent_budget_is_told(place: Place):
    spend_all(place)
    texts = faults(check_site(place.site))
    assert [*texts] == ["budget"]
    assert "no further run" in texts["budget"]


def test_a_folder_of_no_federation_is_told(place: Place):
    (place.site / "federation.json").unlink()
    texts = faults(check_site(place.site))
    assert "panas deploy init" in texts["folder"]


def test_faults_of_a_hub_are_told(place: Place, monkeypatch: pytest.MonkeyPatch):
    shutil.copy(place.out / "ca/ca.key", place.hub / "ca.key")
    (place.hub / "hub.key").chmod(0o640)
    texts = faults(check_hub(place.hub))
    assert "off line" in texts.pop("authority")
    assert "chmod 600" in texts.pop("key")
    assert texts == {}
    expired(place, monkeypatch)
    assert "renew" in faults(check_hub(place.hub))["certificate"]
    (place.hub / "hub.toml").unlink()
    assert [*faults(check_hub(place.hub))] == ["folder"]


@pytest.mark.parametrize("status", [200, 401, 404])
def test_a_hub_whose_port_starts_runs_is_told(
    status: int, place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Answers, "control", status)
    assert "to start no runs" in faults(check_hub(place.hub))["control"]


def test_a_control_socket_that_others_reach_is_told(place: Place):
    path = place.hub / "flower/control.sock"
    path.chmod(0o666)
    assert "chmod 600" in faults(check_hub(place.hub))["control"]
    path.unlink()
    assert "found none" in faults(check_hub(place.hub))["control"]


def test_a_certificate_is_to_be_renewed_before_its_end(place: Place):
    place.certify(days=10)
    (line,) = (c.line for c in check_hub(place.hub) if c.what == "certificate")
    assert line.startswith("holds for 9 days; panas deploy renew")
    assert checks.SOON > 10


def test_sites_that_have_changed_are_told_until_the_owner_accepts(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    before = (place.site / "federation.json").read_bytes()
    add(place.out, "b")
    log = (place.hub / LOG).read_bytes()
    monkeypatch.setattr(Answers, "log", log)
    (line,) = faults(check_site(place.site)).values()
    assert "b is new (SHA256:" in line
    head = line.rpartition(" --log ")[2].strip("`")
    assert head == hashlib.sha256(log.splitlines(keepends=True)[-1]).hexdigest()[:HEAD]
    assert (place.site / "federation.json").read_bytes() == before
    accept(place.site, head)
    assert faults(check_site(place.site)) == {}


def test_a_hub_with_a_site_that_the_log_does_not_name_is_told(place: Place):
    other = public_of(new_key()).decode()
    path = place.hub / "hub.toml"
    text = path.read_text().replace('names = ["a"]', 'names = ["a", "b"]')
    path.write_text(f'{text}b = """{other}"""\n')
    assert "b is new (SHA256:" in faults(check_hub(place.hub))["federation's log"]


def test_each_federation_of_a_site_is_checked(place: Place):
    """The second one is of another authority, at a hub that this one's certificate is not for."""
    make_deployment(place.out.parent / "g", Deployment(sites=("a",), port=place.server.server_port))
    other, settings = place.out.parent / "g/sites/a", place.site / "site.toml"
    settings.write_text(f'{settings.read_text()}\n[federation.trial]\nfolder = "{other}"\n')
    texts = faults(check_site(place.site))
    assert "vouches for" in texts.pop("trial: hub's certificate")
    assert "expected a node at" in texts.pop("trial: node")
    assert all(line.startswith("not seen") for line in texts.values()), texts
    (other / "federation.json").unlink()
    assert "panas deploy init" in faults(check_site(place.site))["folder trial"]
