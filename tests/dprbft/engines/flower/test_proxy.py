"""Flower's connection of a site, through an outgoing proxy that asks for a password."""

import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from dprbft.engines.deploy.certificates import new_authority, new_certificate

pytest.importorskip("flwr")
PASSWORD = "Basic " + base64.b64encode(b"north:secret").decode()


class Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *anything: object) -> None:
        pass


class Proxy(BaseHTTPRequestHandler):
    """CONNECT to the hub's port, for who has the password."""

    hub: ClassVar[int]
    asked: ClassVar[list[tuple[str, bool]]]

    def do_CONNECT(self) -> None:
        known = self.headers.get("Proxy-Authorization") == PASSWORD
        self.asked.append((self.path, known))
        self.send_response(200 if known else 407)
        self.end_headers()
        if not known:
            return
        with socket.create_connection(("127.0.0.1", self.hub)) as there:
            up = threading.Thread(target=pump, args=(self.connection, there), daemon=True)
            up.start()
            pump(there, self.connection)

    def log_message(self, *anything: object) -> None:
        pass


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def serving(server: HTTPServer) -> Iterator[int]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("user", "passes"), [("north:secret@", True), ("", False)])
def test_a_connection_goes_through_the_proxy_of_the_environment(
    user: str, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import httpx
    from flwr.supernode.fleet_http_client import FleetHttpClient

    authority = new_authority(9)
    pair = new_certificate(authority, "hub.example.org", 9)
    for name, content in (("crt", pair.certificate), ("key", pair.key)):
        (tmp_path / name).write_bytes(content)
    hub = HTTPServer(("127.0.0.1", 0), Hub)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    hub.socket = context.wrap_socket(hub.socket, server_side=True)
    Proxy.asked, proxy = [], HTTPServer(("127.0.0.1", 0), Proxy)
    with serving(hub) as Proxy.hub, serving(proxy) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{user}127.0.0.1:{port}")
        with contextlib.closing(
            FleetHttpClient.from_server_address(
                server_address="hub.example.org:8000",
                insecure=False,
                root_certificates=authority.certificate,
                interceptors=[],
            )
        ) as client:
            if passes:
                assert client._client.get("https://hub.example.org:8000/health").status_code == 204
            else:
                with pytest.raises(httpx.ProxyError, match="407"):
                    client._client.get("https://hub.example.org:8000/health")
    assert Proxy.asked == [("hub.example.org:8000", passes)]
