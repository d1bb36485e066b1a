"""All sites of a run on this machine, over Flower's simulation engine.

Each simulated site is a relay, as in a deployment; one node in this process answers for all
sites, each from its own directory.
"""

import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dprbft.engines.flower.carrier import FlowerCarrier
from dprbft.engines.flower.link import Simulated
from dprbft.engines.framed import Framed
from dprbft.engines.frames import MAX_FRAME
from dprbft.engines.node.call import bound, receive, send
from dprbft.engines.node.daemon import Node
from dprbft.engines.protocol import Engine
from dprbft.methods.serve import Machine
from dprbft.paths import SitePaths

START = 120.0
"""Seconds in which Flower must have made its sites."""


@contextmanager
def flower_simulation(
    run: Path, sites: Sequence[SitePaths], machine: Machine, workers: int
) -> Iterator[Engine]:
    """An `Engine` of a run's sites over Flower.

    BadInput if Flower is not installed, or a name cannot cross; PanasError if it does not start.

    Args:
        run: directory of the run.
        sites: all of the run, in the order of their numbers.
        machine: where their node computes.
        workers: sites that are asked at once.
    """
    names = [paths.name for paths in sites]
    node = Node({p.name: p.folder for p in sites if p.is_present}, machine, shared=run)
    with tempfile.TemporaryDirectory(prefix="panas-") as folder:
        path = Path(folder) / "node.sock"
        link = Simulated(names, path, workers)
        with (
            _answering(node, path),
            FlowerCarrier(link, minimum=len(names), patience=START) as carrier,
        ):
            yield Framed(carrier=carrier, run=sites[0].run, names=names)


@contextmanager
def _answering(node: Node, path: Path) -> Iterator[None]:
    """A node at a socket, for as long as this process needs it."""
    with bound(path) as door:
        door.listen(128)
        threading.Thread(target=_accept, args=(node, door), daemon=True).start()
        try:
            yield
        finally:
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)


def _accept(node: Node, door: socket.socket) -> None:
    with suppress(OSError):
        while True:
            link, _ = door.accept()
            threading.Thread(target=_answer, args=(node, link), daemon=True).start()


def _answer(node: Node, link: socket.socket) -> None:
    with link, suppress(OSError):
        if (frame := receive(link, MAX_FRAME)) and (answer := node.answer(frame)):
            send(link, answer)
