"""A site's relay: hands a frame that came through Flower to the site's node, and its answer back.

It holds no data and decodes nothing. Where the node's socket is, the site itself says
(`--node-config 'socket="..."'`; in a simulation the environment), never a message. Whatever goes
wrong, a word goes back and no text: Flower would send an exception's text to the hub.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from dprbft.engines.flower.app.packets import SOCKET, end_with_parent
from dprbft.engines.node.call import ask

LONGEST = 7 * 24 * 3600.0
"""Seconds that a relay waits for its node, at most."""

app = ClientApp()


@app.query()
def relay(message: Message, context: Context) -> Message:
    """Hand the frame on, and the answer back, where the environment says the node is."""
    end_with_parent()
    path = context.node_config.get("socket") or os.environ.get(SOCKET, "")
    return answered(message, Path(str(path)))


def answered(
    message: Message, path: Path, tell: Callable[[str], None] = lambda line: None
) -> Message:
    """The reply to a message with a frame for a site's node; raises nothing.

    Args:
        message: of the hub's relay, untrusted.
        path: socket of the node.
        tell: hears a line for the site's owner where the node has not answered.
    """
    state, answer, why = "failed", b"", "the message is none of a hub of panas"
    with suppress(Exception):
        job = message.content.config_records["job"]
        frame, seconds = job["frame"], job["seconds"]
        if isinstance(frame, bytes) and isinstance(seconds, float):
            state, answer, why = carried(path, frame, seconds)
    if state != "answered":
        with suppress(OSError):
            tell(f"the node at {path} has not answered the hub ({state}): {why}")
    content = ConfigRecord({"state": state, "answer": answer})
    return Message(RecordDict({"job": content}), reply_to=message)


def carried(path: Path, frame: bytes, seconds: float) -> tuple[str, bytes, str]:
    """What a node makes of a frame: "answered" and an answer, or "silent", "late" or "failed" and
    why, which stays at the site.

    Args:
        path: socket of the node.
        frame: a request, not decoded here.
        seconds: to wait, `LONGEST` at most.
    """
    try:
        return "answered", ask(path, frame, min(seconds, LONGEST)), ""
    except TimeoutError:
        return "late", b"", "the time for its answer was over"
    except OSError as e:
        return "silent", b"", f"{e.strerror or type(e).__name__}; see that it runs"
    except Exception as e:
        return "failed", b"", f"{type(e).__name__}; see its memory and its open files"
