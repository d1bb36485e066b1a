"""The hub's control socket: Flower's Control interface, and what the door has refused.

It is a Unix socket of mode 0600 in the hub's own folder (FLWR_HOME), so that its user alone can
start runs and register keys. Flower's command line knows no Unix sockets; `python -m
dprbft.engines.flower.door.control` is `flwr` with all that it sends going there.
"""

import http.client
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dprbft.engines.node.call import short
from panas.runtime.errors import PanasError

SOCKET = "control.sock"
"""Name of the socket in the hub's folder for Flower (FLWR_HOME)."""
STATE = "/panas/state"
PATIENCE = 10.0
"""Seconds to wait for an answer."""
TO_SHOW_A_KEY = 10.0
"""Seconds in which a connection to the public port must show a registered key."""
SAID: Mapping[str, str] = {
    "idle": f"connections closed that showed no registered key within {TO_SHOW_A_KEY:g} s",
    "crowded": "connections without a key closed to make room for newer ones",
    "stalled": "uploads given up because nothing came any more",
    "removed": "connections closed of sites that were removed, or have a new key",
    "large": "answers of registered sites refused, larger than what was asked allows",
}
"""What is counted of what the port refuses, and what each means."""


def state(home: Path) -> dict[str, Any]:
    """What the hub of a folder has refused (`requests.Door.state`); PanasError if it is silent."""
    try:
        with short(home / SOCKET) as address, closing(_Unix(address)) as link:
            link.request("GET", STATE, headers={"Connection": "close"})
            record = json.loads(link.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException) as e:
        raise PanasError(
            f"expected the hub at {home / SOCKET} to answer, got {type(e).__name__}; start it"
        ) from e
    return dict(record)


class _Unix(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("hub", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def main(arguments: Sequence[str]) -> None:
    """Be `flwr`, through the control socket of FLWR_HOME."""
    import flwr.supercore.protobuf.client as sending
    import httpx

    with short(Path(os.environ["FLWR_HOME"]) / SOCKET) as address:

        def client(*, verify: object, **options: Any) -> httpx.Client:
            return httpx.Client(transport=httpx.HTTPTransport(uds=address), **options)

        sending.httpx = SimpleNamespace(**vars(httpx) | {"Client": client})  # type: ignore[assignment]
        from flwr.cli.app import app

        sys.argv = ["flwr", *arguments]
        app()


if __name__ == "__main__":
    main(sys.argv[1:])
