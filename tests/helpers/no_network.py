"""A process that may speak to its own machine alone; what it tries beyond that is noted.

Python's own sockets are watched, by an audit hook: it cannot be taken off again. What was tried is
a line in the file that the environment names, so that a test sees it although nobody was told.
"""

import ipaddress
import os
import socket
import sys
from pathlib import Path

NOTED = "PANAS_TEST_TRIED"
"""Environment variable with a file for what was tried."""
WATCHED = ("socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")


def forbid() -> None:
    """Refuse this process all other machines from now on."""
    own = {"localhost", "", "0.0.0.0", "::", socket.gethostname()}

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        if event not in WATCHED:
            return
        address = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
        host = address[0] if isinstance(address, tuple) else address
        if event != "socket.getaddrinfo" and not isinstance(address, tuple):
            return  # a Unix socket
        if host is None or host in own or _is_loopback(host):
            return
        if path := os.environ.get(NOTED):
            with Path(path).open("a") as file:
                file.write(f"{event} {host} {' '.join(sys.argv)}\n")
        raise OSError(101, f"no network in this test: {event} {host}")

    sys.addaudithook(refuse)


def _is_loopback(host: object) -> bool:
    text = host.decode() if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return text == "localhost"
