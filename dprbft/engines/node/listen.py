"""A node's Unix socket: one connection, one request, one answer."""

import errno
import select
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dprbft.engines.frames import MAX_FRAME, check_request
from dprbft.engines.node.call import bound, connected, receive, send
from dprbft.engines.node.daemon import Node
from panas.runtime.errors import BadInput
from panas.runtime.memory import return_freed_memory
from panas.runtime.store import exclusive

CONNECTIONS = 16
"""At once, at most; whoever comes after is not heard, and asks again."""

AGAIN = 0.1
"""Seconds after which a node without a free file tries again."""
PATIENCE = 300.0
"""Seconds in which a request must have come, and an answer be taken."""


def run_node(
    node: Node,
    path: Path,
    ready: Callable[[], None] = lambda: None,
    others: Sequence[tuple[Node, Path]] = (),
) -> None:
    """Answer at a socket, which is private to its owner, until this thread is interrupted.

    What is in progress then is lost, as at a kill; it is done anew when it is asked for again.
    BadInput if another node serves one of the sites.

    Args:
        node: of the sites that are served.
        path: of the socket; BadInput if something else is there.
        ready: called once the socket is there.
        others: of the same sites, for hubs of other federations, with sockets of their own.
    """
    with _alone(node), ExitStack() as held:
        server = held.enter_context(_listening(path))
        further = [(other, held.enter_context(_listening(at))) for other, at in others]
        ready()
        for each in further:
            threading.Thread(target=_answer, args=each, daemon=True).start()
        _answer(node, server)


def _answer(node: Node, server: socket.socket) -> None:
    slots = threading.BoundedSemaphore(CONNECTIONS)
    while True:
        try:
            link, _ = server.accept()
        except OSError as e:  # too many open files, say: it goes on when some are closed
            if e.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                raise
            time.sleep(AGAIN)
            continue
        if slots.acquire(blocking=False):
            threading.Thread(target=_attend, args=(node, link, slots), daemon=True).start()
        else:
            link.close()


def _attend(node: Node, link: socket.socket, slots: threading.BoundedSemaphore) -> None:
    try:
        with link, suppress(OSError, BadInput):  # who asked has gone, or asks for too much
            try:
                frame = receive(link, MAX_FRAME, time.monotonic() + PATIENCE, look=check_request)
            except BadInput as e:
                node.refuse(e)
                raise
            if frame is not None:
                # After its one request the other side sends nothing more: it hangs up.
                answer = node.answer(frame, lambda: bool(select.select([link], [], [], 0)[0]))
                if answer is not None:
                    send(link, answer, time.monotonic() + PATIENCE)
                return_freed_memory()
    finally:
        slots.release()


@contextmanager
def _alone(node: Node) -> Iterator[None]:
    """Keep other nodes from the same sites; BadInput if one is there."""
    with ExitStack() as held:
        for name, folder in node.sites.items():
            try:
                held.enter_context(exclusive(folder / "node", wait=False))
            except BadInput as e:
                raise BadInput(
                    f"expected no other node for site {name}, got one that serves {folder}; stop "
                    "it first"
                ) from e
        yield


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """A listening socket at a path, removed in the end; one that a dead node left is replaced."""
    if not path.parent.is_dir():
        raise BadInput(f"expected a folder for the socket at {path.parent}, found none; make it")
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise BadInput(f"expected a socket or nothing at {path}, got a file; give --socket")
    with suppress(OSError), connected(path, time.monotonic() + 1.0):
        raise BadInput(f"expected no other node at {path}, got one; stop it, or give --socket")
    with bound(path) as server:
        server.listen(CONNECTIONS)
        yield server
