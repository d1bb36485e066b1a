"""What the hub's process and its ServerApp say to each other on a local socket: packets.

A packet is a frame of `dprbft.engines.node.call` with a line of JSON and bytes. Down go jobs
(`{"job", "node", "seconds", "most"}` and a request, whose answer has `most` bytes at most); up come
nodes (`{"nodes": [[number, key as hex, since when it is connected]]}`) and what became of jobs
(`{"job", "state"}` and an answer). A relay that waits for hours ends with the process that started
it. Nothing here imports torch or Flower.
"""

import json
import os
import socket
import threading
import time
from typing import Any

from dprbft.engines.frames import MAX_FRAME
from dprbft.engines.node import call
from panas.runtime.errors import BadInput

MAX_PACKET = MAX_FRAME + (1 << 20)
"""Bytes: the largest frame, or the nodes of a few thousand sites."""

SOCKET = "PANAS_NODE_SOCKET"
"""Environment variable with a node's socket, where Flower has no settings of a node."""

Packet = tuple[dict[str, Any], bytes]


def send(to: socket.socket, about: dict[str, Any], content: bytes = b"") -> None:
    """Send a packet; OSError if the other side is gone.

    Args:
        to: a connected socket.
        about: its line of JSON.
        content: the bytes behind that line.
    """
    call.send(to, json.dumps(about).encode() + b"\n" + content)


def receive(source: socket.socket) -> Packet | None:
    """The next packet; None if the other side is gone, or does not speak this way."""
    try:
        head, _, content = (call.receive(source, MAX_PACKET) or b"").partition(b"\n")
        about = json.loads(head)
    except (OSError, ValueError, BadInput):
        return None
    return (about, content) if isinstance(about, dict) else None


def end_with_parent() -> None:
    """End this process at once when the one that started it is gone, whatever it waits for."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
