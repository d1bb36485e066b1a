"""Requests at the hub's three doors, with an app in Flower's place that reads every body."""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    Metadata,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
)
from flwr.proto.runtime_pb2 import PushAppMessagesRequest

from dprbft.engines.flower.door import requests
from dprbft.engines.flower.door.control import EVENT, SITES, STATE, WHOLE
from dprbft.engines.flower.door.nodes import Nodes
from dprbft.engines.flower.door.requests import ENVELOPE, GONE, HISTORY, SMALL, Door, read
from dprbft.engines.flower.door.sockets import CONTROL, PUBLIC, RUNTIME, Hall
from dprbft.engines.outward import KEY
from dprbft.engines.watch.hub import RunEvent
from panas.runtime.errors import BadInput

NODE = 7
KNOWN = {"key": "a site's"}
LARGE = 300 << 20


@dataclass
class Visitor:
    """A connection."""

    door: str
    is_known: bool = False

    def known(self, node: int) -> None:
        self.is_known = node == NODE

    def asked(self) -> None:
        pass

    def answered(self) -> None:
        pass


class Known(Nodes):
    """Nodes of which one is known, without Flower."""

    registered: Mapping[str, bytes] = {}

    def __init__(self) -> None:
        super().__init__()
        self.here, self.signed_off = set[str](), list[int]()

    def node_of(self, headers: Mapping[str, str]) -> int | None:
        return NODE if headers.get("key") == KNOWN["key"] else None

    def has(self, parts: Iterable[str]) -> bool:
        return set(parts) <= self.here

    def sign_off(self, node: int) -> None:
        self.signed_off.append(node)

    def register(self, keys: Mapping[str, bytes]) -> None:
        if b"refused" in keys.values():
            raise BadInput("expected another key")
        self.registered = keys

    def states(self) -> dict[str, str]:
        return {"north": "online"}


@dataclass
class Hub:
    """A door, and what has come through it."""

    bodies: list[tuple[str, int]] = field(default_factory=list)
    read: int = 0  # bytes of bodies, by whomever
    nodes: Known = field(default_factory=Known)
    events: list[RunEvent] = field(default_factory=list)
    door: Door = field(init=False)
    visitor: Visitor = field(init=False)

    def __post_init__(self) -> None:
        self.door = Door(self.app, Hall(), self.nodes, heard=self.events.append)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        body = await read(receive, 1 << 40)
        self.bodies.append((scope["path"], -1 if body is None else len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"flower"})

    def ask(
        self, door: str, path: str, body: bytes = b"", *, size: int | None = None, **headers: str
    ) -> int:
        """The status that a request gets; `size` is what it declares."""
        return self.answered(door, path, body, size=size, **headers)[0]

    def answered(
        self, door: str, path: str, body: bytes = b"", *, size: int | None = None, **headers: str
    ) -> tuple[int, bytes]:
        result: list[Any] = []

        async def receive() -> Any:
            self.read += len(body)
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: Any) -> None:
            result.append(event)

        given = {"content-length": str(len(body) if size is None else size)} | headers
        lines = [(k.encode(), v.encode()) for k, v in given.items() if v]
        self.visitor = Visitor(door)
        scope = {"type": "http", "method": "GET", "path": path, "headers": lines}
        asyncio.run(self.door(scope | {"state": {"visit": self.visitor}}, receive, send))
        return result[0]["status"], result[1]["body"]

    def announce(self, cap: int) -> None:
        """Let the hub ask the node, and the node announce its reply."""
        about = Metadata(
            message_id="m", dst_node_id=NODE, group_id=str(cap), ttl=60, created_at=time.time()
        )
        asks = PushAppMessagesRequest(messages_list=[Message(metadata=about)])
        assert self.ask(RUNTIME, "/v1/runtime/push-messages", asks.SerializeToString()) == 200
        reply = Message(metadata=Metadata(reply_to_message_id="m", src_node_id=NODE))
        tree = ObjectTree(object_id="r", children=[ObjectTree(object_id="p")])
        says = PushMessagesRequest(messages_list=[reply], message_object_trees=[tree])
        path = "/v1/fleet/push-messages"
        assert self.ask(PUBLIC, path, says.SerializeToString(), **KNOWN) == 200


@pytest.mark.parametrize(
    ("door", "path", "status"),
    [
        (PUBLIC, "/v1/fleet/pull-messages", 200),
        (PUBLIC, "/health", 200),
        (PUBLIC, "/v1/control/start-run", 403),
        (PUBLIC, "/v1/runtime/acquire-task", 403),
        (PUBLIC, "/docs", 403),
        (PUBLIC, STATE, 403),
        (PUBLIC, EVENT, 403),
        (PUBLIC, SITES, 403),
        (RUNTIME, EVENT, 403),
        (RUNTIME, SITES, 403),
        (PUBLIC, "/v1/fleet/../control/start-run", 403),
        (RUNTIME, "/v1/runtime/acquire-task", 200),
        (RUNTIME, "/v1/control/start-run", 403),
        (CONTROL, "/v1/control/start-run", 200),
        (CONTROL, "/v1/runtime/acquire-task", 403),
        (CONTROL, STATE, 200),
    ],
)
def test_each_interface_answers_at_its_own_door_wherever_a_request_comes_from(
    door: str, path: str, status: int
):
    assert Hub().ask(door, path) == status


def test_a_body_that_was_not_asked_for_is_not_read():
    hub = Hub()
    for headers in ({}, KNOWN):
        for path in ("push-object", "push-messages", "activate-node"):
            assert hub.ask(PUBLIC, f"/v1/fleet/{path}", b"x", size=LARGE, **headers) == 413
    assert (hub.read, hub.bodies) == (0, [])


@pytest.mark.parametrize("more", [{"transfer-encoding": "chunked"}, {"content-length": "-1"}])
def test_a_body_without_a_size_is_not_read(more: dict[str, str]):
    hub = Hub()
    assert hub.ask(PUBLIC, "/v1/fleet/push-object", b"x", **KNOWN, **more) == 411
    assert hub.read == 0


@pytest.mark.parametrize("cap", [0, 1000, 10**7])
def test_a_reply_may_be_as_large_as_what_was_asked_allows(cap: int):
    hub = Hub()
    hub.announce(cap)
    most, path = cap + SMALL + ENVELOPE, "/v1/fleet/push-object"
    assert hub.ask(PUBLIC, path, bytes(most), **KNOWN) == 200
    assert hub.bodies[-1] == (path, most)
    assert hub.ask(PUBLIC, path, bytes(most), key="of nobody") == 413
    before = hub.read
    assert hub.ask(PUBLIC, path, b"x", size=most + 1, **KNOWN) == 413
    assert hub.read == before
    state = hub.door.state()
    assert (state["closed"], state["waiting"], state["refused"]) == ({"large": 1}, 0, {"m": cap})


def test_the_relay_hears_at_once_that_a_refused_reply_will_not_come():
    hub, pull = Hub(), PullObjectRequest(object_id="p").SerializeToString()
    hub.announce(0)
    assert hub.answered(RUNTIME, "/v1/runtime/pull-object", pull)[1] == b"flower"
    hub.ask(PUBLIC, "/v1/fleet/push-object", size=LARGE, **KNOWN)
    status, body = hub.answered(RUNTIME, "/v1/runtime/pull-object", pull)
    assert (status, PullObjectResponse.FromString(body).object_found) == (200, False)


def test_a_reply_that_has_come_grants_nothing_more():
    hub = Hub()
    hub.announce(10**7)
    done = ConfirmMessageReceivedRequest(message_object_id="r").SerializeToString()
    hub.ask(RUNTIME, "/v1/runtime/confirm-message-received", done)
    assert hub.ask(PUBLIC, "/v1/fleet/push-object", size=10**7, **KNOWN) == 413


def test_a_key_is_known_or_not():
    hub = Hub()
    assert hub.ask(PUBLIC, KEY, **KNOWN) == 204
    assert hub.visitor.is_known
    assert hub.ask(PUBLIC, KEY) == 401
    assert not hub.visitor.is_known


def test_the_log_is_shown_to_registered_keys_alone(tmp_path: Path):
    hub, path = Hub(), tmp_path / "log"
    assert hub.ask(PUBLIC, HISTORY, **KNOWN) == 404
    hub.door.log = path
    assert hub.ask(PUBLIC, HISTORY, **KNOWN) == 404
    path.write_bytes(b"lines")
    assert hub.answered(PUBLIC, HISTORY, **KNOWN) == (200, b"lines")
    assert hub.answered(PUBLIC, HISTORY) == (401, b"")
    assert hub.ask(CONTROL, HISTORY) == 403
    assert hub.bodies == []


def test_a_node_has_few_requests_under_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(requests, "AT_ONCE", 0)
    assert Hub().ask(PUBLIC, "/v1/fleet/pull-messages", **KNOWN) == 429


def test_an_upload_of_which_nothing_more_comes_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(requests, "STALLED", 0.01)
    hub = Hub()

    async def never() -> None:
        await asyncio.Event().wait()

    async def send(event: Any) -> None:
        pass

    visit = {"visit": Visitor(PUBLIC)}
    lines = [(b"content-length", b"5"), (b"key", KNOWN["key"].encode())]
    scope = {"type": "http", "path": "/v1/fleet/get-run", "headers": lines, "state": visit}
    asyncio.run(hub.door(scope, never, send))
    assert hub.bodies == [("/v1/fleet/get-run", -1)]
    assert hub.door.state()["closed"] == {"stalled": 1}


def test_the_hub_s_user_tells_of_runs_and_registers_keys():
    hub, event = Hub(), RunEvent(kind="round_begun", run="first", round=1)
    assert hub.ask(CONTROL, EVENT, event.to_bytes()) == 200
    assert hub.events == [event]
    assert hub.ask(CONTROL, EVENT, b"junk") == 400
    assert hub.ask(CONTROL, SITES, b'{"north": "a key"}') == 200
    assert hub.nodes.registered == {"north": b"a key"}
    assert hub.door.hall.sites == 1
    for junk in (b"", b"[]", b"{", b'{"north": 1}', b'{"north": "refused"}'):
        assert hub.ask(CONTROL, SITES, junk) == 400
    assert json.loads(hub.answered(CONTROL, STATE)[1])["connected"] == {"north": "online"}
    assert hub.bodies == []


def test_a_node_without_a_message_is_told_so_without_flower():
    hub, path = Hub(), "/v1/fleet/pull-messages"
    assert hub.answered(PUBLIC, path, b"who", **KNOWN) == (200, b"")
    assert hub.bodies == []
    hub.door.replies.ask("m0", NODE, 5, time.time() + 60)
    assert hub.answered(PUBLIC, path, b"who", **KNOWN) == (200, b"flower")
    hub.door.replies.announce("m0", NODE, "r0", ["p0"])  # it has answered
    assert hub.answered(PUBLIC, path, b"who", **KNOWN) == (200, b"")
    assert hub.answered(PUBLIC, path, b"who") == (
        200,
        b"flower",
    )  # Flower refuses whom it does not know


def test_the_hub_says_which_replies_are_whole():
    hub = Hub()
    assert hub.answered(CONTROL, WHOLE) == (200, b"[]")
    hub.announce(5)
    hub.nodes.here = {"r"}
    assert hub.answered(CONTROL, WHOLE) == (200, b"[]")
    hub.nodes.here = {"r", "p"}
    assert hub.answered(CONTROL, WHOLE) == (200, b'["m"]')
    hub.nodes.here = set()
    hub.door.replies.refuse(NODE)
    assert hub.answered(CONTROL, WHOLE) == (200, b'["m"]')  # Flower says at once that it is cut
    assert hub.ask(PUBLIC, WHOLE, **KNOWN) == 403


def test_a_key_connects_anew_once_its_last_process_has_gone(monkeypatch: pytest.MonkeyPatch):
    hub, path = Hub(), "/v1/fleet/activate-node"
    now = [1000.0]
    monkeypatch.setattr(requests.time, "monotonic", lambda: now[0])
    hub.ask(PUBLIC, "/v1/fleet/pull-messages", **KNOWN)
    now[0] += GONE - 1
    hub.ask(PUBLIC, path, **KNOWN)
    assert hub.nodes.signed_off == []  # it may live: another process with its key is refused
    now[0] += 2
    hub.ask(PUBLIC, path)
    assert hub.nodes.signed_off == []
    hub.ask(PUBLIC, path, **KNOWN)
    assert hub.nodes.signed_off == [NODE]


def test_what_is_none_of_control_s_passes_fewer_layers_of_the_same_app():
    superlink = pytest.importorskip("flwr.superlink.main")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    passed = list[str]()

    def layer(name: str) -> type:
        async def call(self: Any, scope: Any, receive: Any, send: Any) -> None:
            passed.append(name)
            await self.app(scope, receive, send)

        made = {"__init__": lambda self, app: setattr(self, "app", app), "__call__": call}
        return type(name, (), made)

    async def shown(request: Any) -> PlainTextResponse:
        return PlainTextResponse(request.app.state.what)

    layers = [Middleware(layer(name)) for name in ("ControlLicense", "NodeAuth")]
    app = Starlette(routes=[Route("/v1/fleet/x", shown)], middleware=layers)
    app.state.what = "flower"
    hub = Hub()
    short = requests.without_control(app)

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        await short(scope | {"app": app}, receive, send)  # as Starlette, whose layer the door is

    hub.door.short = inside
    assert hub.answered(PUBLIC, "/v1/fleet/x") == (200, b"flower")
    assert passed == ["NodeAuth"]
    assert [each.cls.__name__ for each in app.user_middleware] == ["ControlLicense", "NodeAuth"]
    # Which layers Flower has: a new one that is named so must concern Control alone.
    names = [each.cls.__name__ for each in superlink._get_middleware()]
    assert [name for name in names if name.startswith("Control")] == [
        "ControlSensitiveResponseMiddleware",
        "ControlAuthenticationMiddleware",
        "ControlLicenseMiddleware",
        "ControlEventLogMiddleware",
    ]
