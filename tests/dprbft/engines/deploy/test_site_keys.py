"""Keys that sites make themselves: the deployment holds no secret of theirs, and answers verify."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dprbft.engines.deploy.checks import check_site
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.keys import fingerprint, given_keys, own_key
from dprbft.engines.deploy.settings import read_federation
from dprbft.secure_sum.identity import public_of, sign, ssh_public, verify
from panas.runtime.errors import BadInput

NAMES = ("north", "south")


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    """A deployment of sites that have made their keys in `tmp_path/NAME`."""
    (tmp_path / "keys").mkdir()
    for name in NAMES:
        (tmp_path / "keys" / f"{name}.pub").write_bytes(own_key(tmp_path / name))
    made = Deployment(sites=NAMES)
    make_deployment(tmp_path / "f", made, given_keys(tmp_path / "keys", NAMES))
    return tmp_path / "f"


def test_no_secret_of_a_site_is_in_the_deployment(federation: Path, tmp_path: Path):
    assert not [*federation.rglob("node.key")]
    for name in NAMES:
        private = (tmp_path / name / "node.key").read_bytes()
        held = [p for p in federation.rglob("*") if p.is_file() and private in p.read_bytes()]
        assert not held
        assert (tmp_path / name / "node.key").stat().st_mode & 0o077 == 0
        assert "nobody else has seen" in (federation / "sites" / name / "README.md").read_text()


def test_a_site_that_copies_its_files_is_known_by_its_own_key(federation: Path, tmp_path: Path):
    for name in NAMES:
        shutil.copytree(federation / "sites" / name, tmp_path / name, dirs_exist_ok=True)
        private = (tmp_path / name / "node.key").read_bytes()
        known = read_federation(tmp_path / name).sites
        assert verify(known[name], b"said", sign(private, b"said"))
        results = {c.what: c.holds for c in check_site(tmp_path / name)}
        assert results["key"] is True


def test_a_key_is_made_once(tmp_path: Path):
    first, content = own_key(tmp_path / "a"), (tmp_path / "a" / "node.key").read_bytes()
    (tmp_path / "a" / "node.pub").unlink()
    assert own_key(tmp_path / "a") == first == public_of(content)
    assert (tmp_path / "a" / "node.key").read_bytes() == content
    assert (tmp_path / "a" / "node.pub").read_bytes() == first


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
def test_fingerprints_are_those_of_openssh(tmp_path: Path):
    public = own_key(tmp_path / "a")
    (tmp_path / "line.pub").write_bytes(ssh_public(public))
    told = subprocess.run(
        ["ssh-keygen", "-l", "-f", tmp_path / "line.pub"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert fingerprint(public) in told.stdout.split()


def test_what_is_no_public_key_of_each_site_is_refused(federation: Path, tmp_path: Path):
    keys = tmp_path / "keys"
    with pytest.raises(BadInput, match=r"west\.pub, found none.*panas deploy key"):
        given_keys(keys, (*NAMES, "west"))
    (keys / "west.pub").write_bytes((tmp_path / "north" / "node.key").read_bytes())
    with pytest.raises(BadInput, match="public key of a node"):
        given_keys(keys, ("west",))
    with pytest.raises(BadInput, match="which is none"):
        given_keys(tmp_path / "no", NAMES)
    (keys / "south.pub").write_bytes((keys / "north.pub").read_bytes() + b"\n")
    with pytest.raises(BadInput, match="got one twice"):
        make_deployment(tmp_path / "g", Deployment(sites=NAMES), given_keys(keys, NAMES))
    assert not (tmp_path / "g").exists()
    with pytest.raises(BadInput, match="make it first"):
        own_key(tmp_path / "no" / "a")
    with pytest.raises(BadInput, match="got the file"):
        own_key(keys / "north.pub")
