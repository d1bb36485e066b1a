"""A hub that answers by TLS on this machine, and an outgoing proxy before it with a password."""

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

from dprbft.engines.deploy.certificates import Pair, new_certificate

PASSWORD = "Basic " + base64.b64encode(b"north:secret").decode()


class Hub(BaseHTTPRequestHandler):
    """Answers any request with nothing."""

    def do_GET(self) -> None:
        """As any other."""
        self.send_response(204)
        self.end_headers()

    def do_HEAD(self) -> None:
        """As any other."""
        self.do_GET()

    def log_message(self, *anything: object) -> None:
        """Say nothing."""


class Proxy(BaseHTTPRequestHandler):
    """CONNECT to the hub's port, for who has the password."""

    hub: ClassVar[int]
    asked: ClassVar[list[tuple[str, bool]]]

    def do_CONNECT(self) -> None:
        """Pass bytes on, unread."""
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
        """Say nothing."""


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what comes until its end."""
    with suppress(OSError):
        while part := source.recv(1 << 16):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def serving(server: HTTPServer) -> Iterator[int]:
    """Serve meanwhile; gives the port."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class SixthHub(HTTPServer):
    """At an address of IPv6."""

    address_family = socket.AF_INET6


def hub_of(authority: Pair, folder: Path, name: str, at: str = "127.0.0.1") -> HTTPServer:
    """A hub with a certificate for a name; its files go into the folder."""
    pair = new_certificate(authority, name, 9)
    for end, content in (("crt", pair.certificate), ("key", pair.key)):
        (folder / end).write_bytes(content)
    (folder / "ca.crt").write_bytes(authority.certificate)
    hub = (SixthHub if ":" in at else HTTPServer)((at, 0), Hub)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")
    hub.socket = context.wrap_socket(hub.socket, server_side=True)
    return hub
