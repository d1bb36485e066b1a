"""Asking a node on this machine: one frame down its Unix socket, one frame back.

On the socket a frame follows its length, 8 bytes with the highest first. Nothing here imports
torch.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dprbft.engines.frames import HEAD, MAX_FRAME
from panas.runtime.errors import BadInput

SOCKET = "node.sock"
"""Name of a node's socket in its site's directory."""

LONGEST = 100
"""Bytes of a socket's path that every system takes."""

CHUNK = 1 << 20


def ask(path: Path, frame: bytes, seconds: float | None = None, *, cap: int = MAX_FRAME) -> bytes:
    """The answer of the node at a socket.

    The node goes on with what it was asked when nobody waits any more.

    Args:
        path: of the node's Unix socket.
        frame: the request.
        seconds: for all of it; None: as long as the node works.
        cap: bytes of the answer, at most.

    Raises:
        TimeoutError: if there was no answer in that time.
        OSError: if nobody listens there, or the node closes the connection without an answer.
        BadInput: if the answer is larger.
    """
    until = None if seconds is None else time.monotonic() + seconds
    with connected(path, until) as link:
        send(link, frame, until)
        answer = receive(link, cap, until)
    if answer is None:
        raise ConnectionResetError(f"the node at {path} closed the connection")
    return answer


@contextlib.contextmanager
def connected(path: Path, until: float | None = None) -> Iterator[socket.socket]:
    """A connection to a socket; OSError if nobody listens there, or not by then (monotonic)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link, short(path) as address:
        limit(link, until)
        link.connect(address)
        yield link


@contextlib.contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    """A socket that its owner alone can reach, until the block ends; one that a dead process left
    at the path is replaced."""
    with short(path) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            made.bind(address)
        finally:
            os.umask(before)
        try:
            yield made
        finally:
            path.unlink(missing_ok=True)


def send(link: socket.socket, frame: bytes, until: float | None = None) -> None:
    """Send a frame after its length; TimeoutError if that takes too long.

    Args:
        link: a connected socket.
        frame: the bytes to send.
        until: the latest time, of `time.monotonic`; None: no limit.
    """
    for part in (len(frame).to_bytes(8, "big"), frame):
        rest = memoryview(part)
        while rest:
            limit(link, until)
            rest = rest[link.send(rest[:CHUNK]) :]


def receive(
    link: socket.socket,
    cap: int,
    until: float | None = None,
    *,
    look: Callable[[bytes, int], None] = lambda head, size: None,
) -> bytes | None:
    """Read one frame; None if the other side has closed before it.

    Room is made as bytes come, never for what is only declared.

    Args:
        link: a connected socket.
        cap: bytes of the frame, at most; BadInput if more are declared, none of which is read.
        until: the latest time, of `time.monotonic`; None: no limit.
        look: sees the first `HEAD` bytes and the frame's size; if it raises, the rest is not read.
    """
    head = _exactly(link, 8, until)
    if not head:
        return None
    size = int.from_bytes(head, "big")
    if len(head) < 8 or size > cap:
        raise BadInput(f"expected a frame of at most {cap} bytes, got one of {size}; send less")
    content = _exactly(link, min(size, HEAD), until)
    if len(content) == min(size, HEAD):
        look(content, size)
        content += _exactly(link, size - len(content), until)
    if len(content) < size:
        raise ConnectionResetError(f"closed after {len(content)} of {size} bytes")
    return content


def limit(link: socket.socket, until: float | None) -> None:
    """Let the next call on a socket last until then, at most; TimeoutError if that is past."""
    if until is None:
        link.settimeout(None)
        return
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time for this answer is over")
    link.settimeout(left)


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """An address for a socket's path: systems take about 100 bytes, so a longer one goes by an
    open folder. BadInput if there is no such way here."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    links = Path("/proc/self/fd")
    if not links.is_dir() or len(os.fsencode(path.name)) > LONGEST // 2:
        raise BadInput(
            f"expected a socket's path of at most {LONGEST} bytes, got {path}; give a shorter one"
        )
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield str(links / str(folder) / path.name)
    finally:
        os.close(folder)


def _exactly(link: socket.socket, size: int, until: float | None) -> bytes:
    """So many bytes; fewer if the other side closes before."""
    content = bytearray()
    while len(content) < size:
        limit(link, until)
        part = link.recv(min(CHUNK, size - len(content)))
        if not part:
            break
        content += part
    return bytes(content)


def held_port(host: str, port: int) -> socket.socket:
    """An address that is taken, and does not listen yet: whoever waits for the hub must wait."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
