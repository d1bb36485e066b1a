"""`/metrics` by plain HTTP, at an address that the owner names: loopback, or a Unix socket.

Whoever reaches the address reads it: there is no password and no TLS. A port alone is one of this
machine's loopback interface; another interface has to be named. A Unix socket has mode 0600.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from dprbft.engines.node.call import bound, held_port
from dprbft.engines.watch.metrics import CONTENT_TYPE
from panas.runtime.errors import BadInput

PATH = "/metrics"
PATIENCE = 10.0
"""Seconds in which a request must have come."""
HERE = "127.0.0.1"


def parsed_address(text: str) -> Path | tuple[str, int]:
    """A socket's path, or host and port; BadInput for anything else."""
    if "/" in text or text.endswith(".sock"):
        return Path(text)
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise BadInput(
            f"expected metrics as HOST:PORT, PORT or a path of a Unix socket, got {text!r:.80}; "
            "127.0.0.1:9101 is usual, or metrics.sock"
        )
    return host.strip("[]") or HERE, int(port)


@contextmanager
def serving(text: str, folder: Path, metrics: Callable[[], str]) -> Iterator[str]:
    """Answer at an address until the block ends; yields where that is, for a person to read.

    BadInput if the address cannot be had.

    Args:
        text: HOST:PORT, PORT of loopback, or a path of a Unix socket.
        folder: from which such a path is, unless it is absolute.
        metrics: makes the answer, in a thread of its own.
    """
    with ExitStack() as held:
        try:
            made, where = held.enter_context(_bound(parsed_address(text), folder))
        except OSError as e:
            raise BadInput(
                f"expected metrics at {text}, got {e.strerror or e}; give another address"
            ) from e
        held.enter_context(_answering(made, metrics))
        yield where


@contextmanager
def _bound(at: Path | tuple[str, int], folder: Path) -> Iterator[tuple[socket.socket, str]]:
    if isinstance(at, Path):
        path = (folder / at).resolve()
        if path.exists() and not path.is_socket():
            raise BadInput(f"expected a socket or nothing at {path}, got a file; give another path")
        with bound(path) as made:
            yield made, f"{PATH} at {path}"
        return
    with held_port(*at) as made:
        host, port = made.getsockname()[:2]
        yield made, f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


@contextmanager
def _answering(made: socket.socket, metrics: Callable[[], str]) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            status, body = 404, b""
            if self.path.partition("?")[0] == PATH:
                try:
                    status, body = 200, metrics().encode()
                except Exception:  # its text may name what is private
                    status = 500
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "-"

        def log_message(self, *words: object) -> None:
            """Nothing: who looks at metrics is no event."""

    server = ThreadingHTTPServer((HERE, 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = made
    server.daemon_threads = True
    made.listen(8)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
