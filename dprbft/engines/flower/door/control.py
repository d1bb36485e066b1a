"""The hub's control socket: Flower's Control interface, the hub's state, and events of its runs.

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
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dprbft.engines.node.call import short
from dprbft.engines.watch.hub import RunEvent
from panas.runtime.errors import PanasError

SOCKET = "control.sock"
"""Name of the socket in the hub's folder for Flower (FLWR_HOME)."""
STATE, EVENT, SITES = "/panas/state", "/panas/event", "/panas/sites"
WHOLE = "/panas/whole"
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
    """What the hub of a folder has refused, and who is connected (`requests.Door.state`).

    PanasError if it is silent.
    """
    try:
        return dict(json.loads(_asked(home, "GET", STATE)[1]))
    except (OSError, ValueError, http.client.HTTPException) as e:
        raise _silent(home, e) from e


def whole(home: Path) -> list[str]:
    """Messages to which the hub of a folder has a whole reply; none if it is silent."""
    try:
        return [str(message) for message in json.loads(_asked(home, "GET", WHOLE)[1])]
    except (OSError, ValueError, TypeError, http.client.HTTPException):
        return []


def tell(home: Path, event: RunEvent) -> None:
    """Tell the hub of a folder what happened in a run; nothing, where it does not listen."""
    with suppress(OSError, http.client.HTTPException):
        _asked(home, "POST", EVENT, event.to_bytes())


def register(home: Path, keys: Mapping[str, bytes]) -> None:
    """Let the holders of public keys (PEM, by site) into the hub of a folder, and no others;
    PanasError if it refuses one, or is silent."""
    body = json.dumps({name: key.decode() for name, key in keys.items()}).encode()
    try:
        status, answer = _asked(home, "POST", SITES, body)
    except (OSError, http.client.HTTPException) as e:
        raise _silent(home, e) from e
    if status != http.client.OK:
        raise PanasError(str(json.loads(answer)))


def _asked(home: Path, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and content of an answer."""
    with short(home / SOCKET) as address, closing(_Unix(address)) as link:
        link.request(method, path, body, headers={"Connection": "close"})
        answer = link.getresponse()
        return answer.status, answer.read()


def _silent(home: Path, error: Exception) -> PanasError:
    return PanasError(
        f"expected the hub at {home / SOCKET} to answer, got {type(error).__name__}; start it"
    )


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
