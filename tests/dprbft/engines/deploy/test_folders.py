"""What `panas deploy init` and `renew` write, and who may read it."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from dprbft.engines.deploy import folders
from dprbft.engines.deploy.certificates import fits, look, vouches
from dprbft.engines.deploy.change import renew
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.settings import NODES, bracketed, flower_hub, read_federation
from dprbft.engines.deploy.start import hub_part, site_parts, start_hub
from dprbft.secure_sum.identity import public_of
from dprbft.site.directory import SiteSettings, write_site
from panas.runtime.errors import BadInput
from panas.runtime.store import Busy, exclusive

SITES = ("a", "b-2", "c.org")
DEPLOYMENT = Deployment(sites=SITES, host="hub.example.org", port=8443, days=90)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "federation"
    make_deployment(out, DEPLOYMENT)
    return out


def test_a_hub_that_runs_is_not_started_again(tmp_path: Path):
    out = tmp_path / "federation"
    make_deployment(out, DEPLOYMENT)
    hub = flower_hub(out / "hub")
    with exclusive(hub.home / "hub"):
        (hub.home / NODES).write_text("{}")
        with pytest.raises(Busy, match="another process is working on"):
            start_hub(out / "hub")
        assert (hub.home / NODES).exists()


def test_everybody_knows_everybodys_key_and_holds_their_own(out: Path):
    hub = flower_hub(out / "hub")
    assert hub.settings.names == SITES
    for name in SITES:
        folder = out / "sites" / name
        federation = read_federation(folder)
        assert (federation.site, federation.hub) == (name, "hub.example.org:8443")
        assert federation.sites == hub.keys
        assert public_of((folder / "node.key").read_bytes()) == hub.keys[name]
        assert (folder / "ca.crt").read_bytes() == hub.ca.read_bytes()


def test_the_unit_of_a_hub_allows_a_file_a_connection(out: Path):
    assert "\nLimitNOFILE=65536\n" in (out / "hub/panas-hub.service").read_text()


def test_each_administrator_is_told_which_file_to_install(out: Path):
    wheel = f"panas-{version('panas')}-py3-none-any.whl"
    assert f"makes `{wheel}`" in (out / "hub/README.md").read_text()
    for name in SITES:
        assert (
            f"pip install './{wheel}[flower]'" in (out / "sites" / name / "README.md").read_text()
        )


def test_nobody_else_may_read_it_and_the_authority_is_apart(out: Path):
    for path in (out, *out.rglob("*")):
        private = path.is_dir() or path.name == "start.sh"
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if private else 0o600), path
    assert [p.relative_to(out).as_posix() for p in out.rglob("ca.key")] == ["ca/ca.key"]
    for script in out.rglob("start.sh"):
        assert "ca.key" not in script.read_text()
        assert 'cd "$(dirname "$0")"\n' in script.read_text()


def test_the_certificate_is_for_the_host_and_for_loopback(out: Path):
    hub, authority = flower_hub(out / "hub"), (out / "ca/ca.crt").read_bytes()
    own, key = (out / "hub/hub.crt").read_bytes(), (out / "hub/hub.key").read_bytes()
    seen = look(own)
    assert set(seen.hosts) == {"hub.example.org", "localhost", "127.0.0.1"}
    assert timedelta(days=89) < seen.ends - datetime.now(UTC) <= timedelta(days=90)
    assert vouches(authority, own)
    assert fits(own, key)
    assert look(authority).ends > seen.ends
    assert hub.local_address == "127.0.0.1:8443"
    # What a TLS library makes of them.
    ssl.create_default_context(cafile=out / "ca/ca.crt")
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        out / "hub/hub.crt", out / "hub/hub.key"
    )


def test_one_machine_listens_to_itself_alone(tmp_path: Path):
    make_deployment(tmp_path / "here", Deployment(sites=("a",)))
    hub = flower_hub(tmp_path / "here/hub")
    assert (hub.flower.bind, hub.settings.minimum) == ("127.0.0.1", 1)
    make_deployment(tmp_path / "six", Deployment(sites=("a",), host="2001:db8::1"))
    assert flower_hub(tmp_path / "six/hub").address == "[2001:db8::1]:8000"
    for host, bind in ("127.0.0.2", "127.0.0.2"), ("::1", "::1"), ("192.0.2.1", "0.0.0.0"):
        make_deployment(tmp_path / bind, Deployment(sites=("a",), host=host))
        hub = flower_hub(tmp_path / bind / "hub")
        assert hub.flower.bind == bind
        assert hub.local_address == f"{bracketed(bind if bind != '0.0.0.0' else '127.0.0.1')}:8000"
    assert look((tmp_path / "six/hub/hub.crt").read_bytes()).hosts[-1] == "127.0.0.1"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sites": ()}, "at least one site"),
        ({"sites": ("a", "a")}, "twice"),
        ({"sites": ("a/b",)}, "names of sites"),
        ({"sites": ("..",)}, "names of sites"),
        ({"host": "no host"}, "--host"),
        ({"host": ""}, "--host"),
        ({"host": "é"}, "--host"),
        *(({"host": h}, "--host") for h in ("-x", "--", ".", "a..b", "999.1.1.1", "0.0.0.0", "::")),
        ({"port": 0}, "--port"),
        ({"days": 0}, "--days"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(changes: dict, told: str, tmp_path: Path):
    with pytest.raises(BadInput, match=told):
        make_deployment(tmp_path / "new", Deployment(**({"sites": ("a",)} | changes)))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path):
    (tmp_path / "old").mkdir()
    with pytest.raises(BadInput, match="which exists"):
        make_deployment(tmp_path / "old", Deployment(sites=("a",)))
    with pytest.raises(BadInput, match="make it first"):
        make_deployment(tmp_path / "no/new", Deployment(sites=("a",)))
    assert [p.name for p in tmp_path.rglob("*")] == ["old"]


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*anything: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(folders, "write_site", full)
    with pytest.raises(OSError, match="no space"):
        make_deployment(tmp_path / "new", Deployment(sites=("a",)))
    assert list(tmp_path.iterdir()) == []


def test_a_renewed_certificate_is_of_the_same_authority(tmp_path: Path):
    out = tmp_path / "federation"
    make_deployment(out, Deployment(sites=("a",), days=1))
    before = (out / "hub/hub.crt").read_bytes()
    renew(out, 30)
    own, key = (out / "hub/hub.crt").read_bytes(), (out / "hub/hub.key").read_bytes()
    assert own != before
    assert vouches((out / "sites/a/ca.crt").read_bytes(), own)
    assert fits(own, key)
    assert look(own).ends - look(before).ends > timedelta(days=28)
    (out / "ca/ca.key").unlink()
    with pytest.raises(BadInput, match=r"ca\.key"):
        renew(out, 30)


def test_another_authority_renews_nothing(tmp_path: Path):
    for name in ("one", "other"):
        make_deployment(tmp_path / name, Deployment(sites=("a",)))
    (tmp_path / "one/ca").rename(tmp_path / "gone")
    (tmp_path / "other/ca").rename(tmp_path / "one/ca")
    before = (tmp_path / "one/hub/hub.crt").read_bytes()
    with pytest.raises(BadInput, match="authority of this hub"):
        renew(tmp_path / "one", 30)
    assert (tmp_path / "one/hub/hub.crt").read_bytes() == before


def test_what_is_started_has_this_folders_files(out: Path):
    hub = hub_part(flower_hub(out / "hub")).command
    assert {"--ssl-keyfile", str(out / "hub/hub.key"), "8443", "0.0.0.0"} <= {*hub}
    assert "--insecure" not in hub
    settings = SiteSettings(name="a", data="data.npz", epsilon=1.0, delta=1e-5)
    write_site(out / "sites/a", settings)
    node, relay = site_parts(out / "sites/a")
    assert str(out / "sites/a") in node.command
    assert {"hub.example.org:8443", str(out / "sites/a/node.key")} <= {*relay.command}


@pytest.mark.parametrize("change", ["a key less", "no JSON", "another form", "a key twice"])
def test_a_damaged_federation_is_refused(change: str, tmp_path: Path):
    make_deployment(tmp_path / "f", Deployment(sites=("a", "b")))
    path, text = tmp_path / "f/sites/a/federation.json", ""
    text = path.read_text()
    keys = read_federation(path.parent).sites
    path.write_text(
        {
            "a key less": text.replace('"a":', '"z":'),
            "no JSON": "{",
            "another form": "[]",
            "a key twice": text.replace(
                keys["a"].decode().replace("\n", "\\n"), keys["b"].decode().replace("\n", "\\n")
            ),
        }[change]
    )
    with pytest.raises(BadInput, match="expected"):
        read_federation(path.parent)


def test_a_folder_without_a_federation_is_told_so(tmp_path: Path):
    with pytest.raises(BadInput, match="found none; `panas deploy init` makes one"):
        read_federation(tmp_path)
