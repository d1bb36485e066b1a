"""/metrics on loopback or at a Unix socket, and nowhere else unless it is named."""

import http.client
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from dprbft.engines.watch.metrics import CONTENT_TYPE
from dprbft.engines.watch.serve import parsed_address, serving
from panas.runtime.errors import BadInput


def text() -> str:
    return "# HELP a b\n# TYPE a gauge\na 1\n"


def test_a_port_alone_is_one_of_loopback(tmp_path: Path):
    with serving("0", tmp_path, text) as where:
        assert where.startswith("http://127.0.0.1:")
        with urlopen(where) as answer:
            assert answer.read().decode() == text()
            assert answer.headers["Content-Type"] == CONTENT_TYPE
        host = where.removeprefix("http://").removesuffix("/metrics")
        link = http.client.HTTPConnection(host)
        for path in ("/", "/metrics/x", "/../metrics"):
            link.request("GET", path)
            answer = link.getresponse()
            assert (answer.status, answer.read()) == (404, b"")
        link.request("POST", "/metrics", b"x")
        assert link.getresponse().status == 501
        link.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=1)


def test_a_unix_socket_is_its_owner_s(tmp_path: Path):
    with serving("sub/../m.sock", tmp_path, text) as where:
        path = tmp_path / "m.sock"
        assert where == f"/metrics at {path}"
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(path))
            link.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b"a 1\n" in b"".join(iter(lambda: link.recv(1 << 16), b""))
    assert not path.exists()


@pytest.mark.parametrize("address", ["", "here", "127.0.0.1:", "127.0.0.1:99999", "a:b:c"])
def test_what_is_no_address_is_refused(address: str):
    with pytest.raises(BadInput, match="expected metrics as HOST:PORT"):
        parsed_address(address)


def test_another_interface_has_to_be_named():
    assert parsed_address("9101") == parsed_address(":9101") == ("127.0.0.1", 9101)
    assert parsed_address("[::1]:9101") == ("::1", 9101)
    assert parsed_address("0.0.0.0:9101") == ("0.0.0.0", 9101)
    assert parsed_address("run/m.sock") == Path("run/m.sock")
    assert parsed_address("m.sock") == Path("m.sock")


def test_an_address_that_is_taken_is_refused_and_a_file_stays(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadInput, match="in use"), serving(address, tmp_path, text):
            pass
    (tmp_path / "file").write_text("kept")
    for path in ("./file", "none/m.sock"):
        with pytest.raises(BadInput, match="expected"), serving(path, tmp_path, text):
            pass
    assert (tmp_path / "file").read_text() == "kept"


def test_what_goes_wrong_is_a_status_without_a_text(tmp_path: Path):
    def fails() -> str:
        raise ValueError("patient Quill")

    with serving("0", tmp_path, fails) as where:
        link = http.client.HTTPConnection(where.split("/")[2])
        link.request("GET", "/metrics")
        answer = link.getresponse()
        assert (answer.status, answer.read()) == (500, b"")
        link.close()


def test_an_error_of_the_block_is_its_own(tmp_path: Path):
    with pytest.raises(OSError, match=r"^mine$"), serving("0", tmp_path, text):
        raise OSError("mine")
