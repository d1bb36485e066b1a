"""What the hub's SuperLink is asked, looked at before a body is read.

Flower answers three interfaces at one port: Fleet, for the nodes of sites, Control, which starts
runs and registers keys, and Runtime, for what it has started. It reads every body whole, whoever
sends it and however large. Here each interface has a door of its own (`gate`), whatever address a
request seems to come from: a proxy on this machine reaches no more than anybody else. And a body is
read only if a registered key has signed its request, and the node was asked for that much; all
others may be `SMALL`. `KEY` answers whether a key is registered; `HISTORY`, to registered keys, is
the federation's log. At the control socket `SITES` says whose keys are registered from now on,
`STATE` what was refused and who is connected, `WHOLE` which replies have come, and `EVENT` takes
what happens in a run.

The hub's relay says with every message how many bytes its answer has at most (Flower carries that
as the message's group). A site first announces a reply, by the numbers of its parts, and then sends
these. So a site that was asked nothing, or has announced nothing, may send `SMALL` bodies alone.
"""

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprbft.engines.flower.door.control import EVENT, SITES, STATE, WHOLE
from dprbft.engines.flower.door.nodes import Nodes
from dprbft.engines.flower.door.sockets import CONTROL, PUBLIC, RUNTIME, Hall
from dprbft.engines.outward import KEY, LET_IN
from dprbft.engines.watch.hub import RunEvent
from panas.runtime.errors import BadInput

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


def headers_of(scope: Scope) -> dict[str, str]:
    """A request's headers by name; one that comes twice counts as none."""
    counts = Counter(name for name, _ in scope["headers"])
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if counts[name] == 1
    }


def size_of(scope: Scope) -> int | None:
    """Bytes of a request's body, as it declares them; None where it does not."""
    names = [name for name, _ in scope["headers"]]
    if b"transfer-encoding" in names or names.count(b"content-length") > 1:
        return None
    text = headers_of(scope).get("content-length", "0")
    return int(text) if text.isdecimal() else None


def parsed(kind: Any, body: bytes | None) -> Any:
    """A message of Flower's; None if these bytes are none, which Flower then says itself."""
    from google.protobuf.message import DecodeError

    if body is None:
        return None
    message = kind()
    try:
        message.ParseFromString(body)
    except DecodeError:
        return None
    return message


async def read(receive: Receive, most: int) -> bytes | None:
    """A whole body; None if it ends early, or is larger."""
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] != "http.request":
            return None
        body += part.get("body", b"")
        if len(body) > most:
            return None
        if not part.get("more_body"):
            return bytes(body)


def again(body: bytes | None, receive: Receive) -> Receive:
    """A body that was read, for the app behind; one that was not is as if who asked had gone."""
    waiting = [body]

    async def next_part() -> Any:
        if not waiting:
            return await receive()
        content = waiting.pop()
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}

    return next_part


async def answer(send: Send, status: int, content: Any = b"") -> None:
    """Answer a request without reading its body, and end its connection.

    Args:
        send: of the ASGI connection.
        status: of HTTP.
        content: bytes of a protobuf message, or what is written as JSON.
    """
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    kind = b"application/protobuf" if body and isinstance(content, bytes) else b"application/json"
    headers = [
        (b"connection", b"close"),
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def nothing_new(send: Send) -> None:
    """Say to a node that there is no message for it, as Flower would, and keep the connection.

    Flower's own way to this answer is most of what an idle hub does.
    """
    headers = [(b"content-type", b"application/protobuf"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


SMALL = 1 << 16
"""Bytes of a request that is no part of a reply, at most."""
ENVELOPE = 1 << 12
"""Bytes around an answer's frame, at most: what Flower adds to it."""
PARTS = 4
"""Parts of a reply, at most: message, records, and the one record with the frame."""
REMEMBERED = 1_000
"""Refused messages that are remembered."""


@dataclass
class Reply:
    """One that was asked for."""

    node: int
    cap: int  # bytes of its frame, at most
    until: float  # on the wall clock
    root: str = ""  # its own name, once it is announced
    parts: frozenset[str] = frozenset()


@dataclass
class Replies:
    """What all nodes were asked; by the name of the message that asks."""

    asked: dict[str, Reply] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # most bytes, by message
    _cut: dict[str, frozenset[str]] = field(default_factory=dict)  # parts, by message

    def ask(self, message: str, node: int, cap: int, until: float) -> None:
        """A node is asked, and may answer.

        Args:
            message: id of the message that asks.
            node: number that Flower gives the node.
            cap: bytes of the answer's frame, at most.
            until: seconds since the epoch; later answers are not let in.
        """
        now = time.time()
        self.asked = {name: each for name, each in self.asked.items() if each.until > now}
        self.asked[message] = Reply(node, max(cap, 0), until)

    def announce(self, message: str, node: int, root: str, parts: Collection[str]) -> bool:
        """Take note of what a node's reply consists of; whether it may be that.

        Args:
            message: id of the message that the reply is to.
            node: number of the node that sends it, whose key signed the request.
            root: id of the reply.
            parts: ids of its objects, `PARTS` at most.
        """
        reply = self.asked.get(message)
        if reply is None or reply.node != node:
            return True  # Flower refuses it: it grants nothing here
        if len(parts) > PARTS or reply.root not in ("", root):
            self._refuse(message)
            return False
        reply.root, reply.parts = root, frozenset(parts)
        return True

    def most(self, node: int) -> int:
        """Bytes of one request of a node, at most."""
        caps = [each.cap for _, each in self._open(node)]
        return max(caps) + SMALL + ENVELOPE if caps else SMALL

    def waits(self, node: int) -> bool:
        """Whether there may be a message for a node, which it has not answered."""
        now = time.time()
        return any(
            each.node == node and not each.root and each.until > now for each in self.asked.values()
        )

    def announced(self) -> dict[str, frozenset[str]]:
        """The parts of each reply that was announced, by the message that it is to."""
        return {message: each.parts for message, each in self.asked.items() if each.root}

    def cut(self) -> list[str]:
        """Messages whose replies were announced, and refused while they came."""
        return [message for message, parts in self._cut.items() if parts]

    def refuse(self, node: int) -> None:
        """A node sends more than it may: none of its replies that are under way counts."""
        for message, _ in list(self._open(node)):
            self._refuse(message)

    def is_cut(self, part: str) -> bool:
        """Whether a part belongs to a reply that was refused, and will never be whole."""
        return any(part in parts for parts in self._cut.values())

    def received(self, root: str) -> None:
        """The hub has a reply: nothing more of it may come."""
        self.asked = {name: each for name, each in self.asked.items() if each.root != root}

    def _open(self, node: int) -> Iterator[tuple[str, Reply]]:
        now = time.time()
        for message, each in self.asked.items():
            if each.node == node and each.root and each.until > now:
                yield message, each

    def _refuse(self, message: str) -> None:
        reply = self.asked.pop(message)
        self.refused[message], self._cut[message] = reply.cap, reply.parts
        for old in list(self.refused)[:-REMEMBERED]:
            del self.refused[old], self._cut[old]


HISTORY = "/panas/log"
FLEET = "/v1/fleet/"
OPEN: Mapping[str, tuple[str, ...]] = {
    PUBLIC: (FLEET, "/health", KEY, HISTORY),
    RUNTIME: ("/v1/runtime/", "/health"),
    CONTROL: ("/v1/control/", "/health", STATE, EVENT, SITES, WHOLE),
}
"""What may be asked for, by door."""

AT_ONCE = 32
"""Requests of one node at a time, at most."""
GONE = 30.0
"""Seconds without a request of a node, after which its key may connect anew: one that was killed
has not signed off. One that lives asks every few seconds, and sends heartbeats while it works."""
STALLED = 30.0
"""Seconds after which a body of which nothing more comes is given up."""
LOCAL = 1 << 24
"""Bytes of a request of the hub's relay that is looked into, at most."""

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def without_control(app: Any) -> Asgi:
    """Flower's app without the layers that look at requests of Control alone.

    Each layer costs every request about a thousandth of a second, also one that it lets through.

    Args:
        app: Flower's, of FastAPI, before anything was asked of it.
    """
    layers = app.user_middleware
    app.user_middleware = [
        layer for layer in layers if not layer.cls.__name__.startswith("Control")
    ]
    try:
        stack: Asgi = app.build_middleware_stack()
    finally:
        app.user_middleware = layers
    return stack


@dataclass
class Door:
    """An ASGI app before Flower's: lets requests through, or answers them itself.

    `app` is Flower's, and `short` what answers requests that are none of Control's.
    """

    app: Asgi
    hall: Hall
    nodes: Nodes
    log: Path | None = None  # of the federation
    short: Asgi | None = None
    replies: Replies = field(default_factory=Replies)
    heard: Callable[[RunEvent], None] = lambda event: None  # what happens in a run
    _last: dict[int, float] = field(default_factory=dict)
    """When a node has asked for something, on the monotonic clock."""
    _under_way: Counter[int] = field(default_factory=Counter)  # requests, by node
    _bytes: Counter[int] = field(default_factory=Counter)  # of their bodies, by node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit, path = scope["state"]["visit"], scope["path"]
        if not path.startswith(OPEN[visit.door]) or ".." in path:
            await answer(send, 403)
        elif path == STATE:
            await answer(send, 200, self.state())
        elif path == WHOLE:
            await answer(send, 200, self.whole())
        elif path in (EVENT, SITES):
            await answer(send, *await self._take(path, receive))
        elif visit.door == PUBLIC:
            visit.asked()
            try:
                await self._public(scope, receive, send)
            finally:
                visit.answered()
        elif visit.door == RUNTIME:
            await self._runtime(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def state(self) -> dict[str, Any]:
        """What was refused since the start: connections and requests by why, messages by name; and
        who is connected."""
        return {
            "closed": dict(self.hall.closed),
            "waiting": len(self.hall.waiting),
            "refused": dict(self.replies.refused),
            "connected": self.nodes.states(),
        }

    def whole(self) -> list[str]:
        """Messages to which a whole reply is here, or one was cut: Flower tells at once."""
        announced = self.replies.announced().items()
        whole = [message for message, parts in announced if self.nodes.has(parts)]
        return [*whole, *self.replies.cut()]

    async def _take(self, path: str, receive: Receive) -> tuple[int, Any]:
        """Hear an event, or register keys; the status and content of the answer."""
        body = await read(receive, LOCAL) or b""
        try:
            if path == EVENT:
                self.heard(RunEvent.from_bytes(body))
            else:
                keys = {name: key.encode() for name, key in json.loads(body).items()}
                self.nodes.register(keys)
                self.hall.sites = len(keys)
        except (BadInput, ValueError, AttributeError) as e:
            return 400, str(e)
        return 200, ""

    async def _public(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit, headers, path = scope["state"]["visit"], headers_of(scope), scope["path"]
        node = await asyncio.to_thread(self.nodes.node_of, headers)
        if node is not None:
            visit.known(node)
        if path in (KEY, HISTORY):
            await self._show(path, node, send)
            return
        size, receive = size_of(scope), self._lively(receive)
        most = SMALL
        if node is not None and path == f"{FLEET}push-object":
            most = self.replies.most(node)
        if size is None:
            await answer(send, 411)
        elif size > most:
            if node is not None:
                self.replies.refuse(node)
                self.hall.count("large")
            await answer(send, 413)
        elif node is None:
            await self._pass(scope, receive, send)
        else:
            await self._counted(node, size, scope, (receive, send))

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let Flower answer what is none of Control's."""
        await (self.short or self.app)(scope, receive, send)

    async def _show(self, path: str, node: int | None, send: Send) -> None:
        """Answer what a site asks of its own key, or of the others."""
        if node is None:
            await answer(send, 401)
        elif path == KEY:
            await answer(send, LET_IN)
        elif self.log is None or not self.log.is_file():
            await answer(send, 404)
        else:
            await answer(send, 200, await asyncio.to_thread(self.log.read_bytes))

    async def _counted(
        self, node: int, size: int, scope: Scope, wire: tuple[Receive, Send]
    ) -> None:
        """Let a node's request through, unless it has too many under way."""
        full = self._bytes[node] + size > self.replies.most(node) + AT_ONCE * SMALL
        if full or self._under_way[node] >= AT_ONCE:
            await answer(wire[1], 429)
            return
        self._under_way[node] += 1
        self._bytes[node] += size
        try:
            if scope["path"] == f"{FLEET}activate-node":
                if time.monotonic() - self._last.get(node, -math.inf) > GONE:
                    await asyncio.to_thread(self.nodes.sign_off, node)
            else:
                self._last[node] = time.monotonic()
            if scope["path"] == f"{FLEET}push-messages":
                await self._announced(node, scope, *wire)
            elif scope["path"] == f"{FLEET}pull-messages" and not self.replies.waits(node):
                await read(wire[0], SMALL)
                await nothing_new(wire[1])
            else:
                await self._pass(scope, *wire)
        finally:
            self._under_way[node] -= 1
            self._bytes[node] -= size

    def _lively(self, receive: Receive) -> Receive:
        """The same body, given up where nothing more comes of it."""
        whole = False

        async def next_part() -> Any:
            nonlocal whole
            if whole:
                return await receive()
            try:
                part = await asyncio.wait_for(receive(), STALLED)
            except TimeoutError:
                self.hall.count("stalled")
                return {"type": "http.disconnect"}
            whole = not part.get("more_body")
            return part

        return next_part

    async def _announced(self, node: int, scope: Scope, receive: Receive, send: Send) -> None:
        """A reply is announced: note its parts."""
        from flwr.proto.fleet_pb2 import PushMessagesRequest

        body = await read(receive, SMALL)
        pushed = parsed(PushMessagesRequest, body)
        if pushed is not None:
            for message, tree in zip(
                pushed.messages_list, pushed.message_object_trees, strict=False
            ):
                about, parts = message.metadata, parts_of(tree)
                if not self.replies.announce(
                    about.reply_to_message_id, node, tree.object_id, parts
                ):
                    self.hall.count("large")
                    await answer(send, 413)
                    return
        await self._pass(scope, again(body, receive), send)

    async def _runtime(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the hub's own relay asks: note what it asks of nodes, and what it has received."""
        from flwr.proto.message_pb2 import (
            ConfirmMessageReceivedRequest,
            PullObjectRequest,
            PullObjectResponse,
        )
        from flwr.proto.runtime_pb2 import PushAppMessagesRequest

        call = scope["path"].rpartition("/")[2]
        if call not in ("push-messages", "pull-object", "confirm-message-received"):
            await self._pass(scope, receive, send)
            return
        body = await read(receive, LOCAL)
        done = [False]

        async def noting(event: Any) -> None:
            if event["type"] == "http.response.start" and event["status"] == 200:
                done[0] = True
                if call == "push-messages":
                    self._note_asked(parsed(PushAppMessagesRequest, body))
            await send(event)

        if call == "pull-object":
            request = parsed(PullObjectRequest, body)
            if request is not None and self.replies.is_cut(request.object_id):
                content = PullObjectResponse(object_found=False).SerializeToString()
                await answer(send, 200, content)
                return
        await self._pass(scope, again(body, receive), noting)
        if done[0] and call == "confirm-message-received":
            request = parsed(ConfirmMessageReceivedRequest, body)
            if request is not None:
                self.replies.received(request.message_object_id)

    def _note_asked(self, pushed: Any) -> None:
        for message in pushed.messages_list if pushed is not None else ():
            about = message.metadata
            cap = int(about.group_id) if about.group_id.isdecimal() else 0
            self.replies.ask(about.message_id, about.dst_node_id, cap, about.created_at + about.ttl)


def parts_of(tree: Any) -> set[str]:
    """The names of all parts of a reply; more than are allowed are not counted to the end."""
    names, rest = set[str](), [tree]
    while rest and len(names) < SMALL:
        node = rest.pop()
        names.add(node.object_id)
        rest.extend(node.children)
    return names
