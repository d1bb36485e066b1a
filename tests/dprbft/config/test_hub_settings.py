"""What a hub's folder says."""

from pathlib import Path

import pytest

from dprbft.config.hub import public_keys, read_hub, socket_paths
from panas.runtime.errors import BadInput

WHOLE = """
names = ["a", "b"]
minimum = 2
deadline = 600
[keys]
a = "keys/a.pem"
b = \"\"\"-----BEGIN PUBLIC KEY-----
x
-----END PUBLIC KEY-----
\"\"\"
[sockets]
a = "a/node.sock"
b = "/somewhere/node.sock"
"""


def test_names_keys_and_sockets_are_read(tmp_path: Path):
    (tmp_path / "hub.toml").write_text(WHOLE)
    settings = read_hub(tmp_path)
    assert (settings.names, settings.minimum, settings.deadline) == (("a", "b"), 2, 600)
    sockets = {"a": tmp_path / "a/node.sock", "b": Path("/somewhere/node.sock")}
    assert socket_paths(tmp_path, settings) == sockets
    with pytest.raises(BadInput, match="public key of a"):
        public_keys(tmp_path, settings)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/a.pem").write_bytes(b"pem")
    keys = public_keys(tmp_path, settings)
    assert keys is not None
    assert keys["a"] == b"pem"
    assert keys["b"].startswith(b"-----BEGIN")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("names = []", "names"),
        ('names = ["a", "a"]', "different names"),
        ('names = ["../a"]', "names"),
        ('names = ["a"]\nminimum = 2', "at most 1"),
        ('names = ["a", "b"]\n[sockets]\na = "x"', "a socket of each site"),
        ('names = ["a"]\nport = 1', "port"),
        ("names = [", "does not parse"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, told: str, tmp_path: Path):
    (tmp_path / "hub.toml").write_text(text)
    with pytest.raises(BadInput, match=told):
        read_hub(tmp_path)


def test_a_folder_that_is_no_hub_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match=r"hub\.toml"):
        read_hub(tmp_path)
