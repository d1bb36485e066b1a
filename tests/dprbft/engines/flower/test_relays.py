"""The two relays: what they hand on, and what they keep from each other."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from dprbft.engines.flower.app import client_app, server_app
from dprbft.engines.flower.app.packets import receive, send


@pytest.fixture(autouse=True)
def _in_a_task(monkeypatch: pytest.MonkeyPatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def job(content: dict[str, Any]) -> Message:
    return Message(RecordDict({"job": ConfigRecord(content)}), dst_node_id=7, message_type="query")


def reply(
    message: Message, path: Path, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    message.metadata.__dict__["_message_id"] = "1"
    return dict(client_app.answered(message, path, tell).content.config_records["job"])


SECRET = "/home/somebody/patients.csv"


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (TimeoutError(SECRET), "late", "the time for its answer was over"),
        (ConnectionRefusedError(SECRET), "silent", "ConnectionRefusedError; see that it runs"),
        (RuntimeError(SECRET), "failed", "RuntimeError; see its memory and its open files"),
        (MemoryError(SECRET), "failed", "MemoryError; see its memory and its open files"),
    ],
)
def test_no_text_of_an_error_leaves_a_site_whose_owner_hears_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, state: str, why: str
):
    def fail(*given: object) -> bytes:
        raise error

    monkeypatch.setattr(client_app, "ask", fail)
    lines = list[str]()
    record = reply(job({"frame": b"f", "seconds": 1.0}), Path("node.sock"), lines.append)
    assert record == {"state": state, "answer": b""}
    assert lines == [f"the node at node.sock has not answered the hub ({state}): {why}"]


def test_a_reply_that_the_door_did_not_let_in_is_too_large(monkeypatch: pytest.MonkeyPatch):
    for refused, state in ((("m0",), "large"), ((), "error 3")):
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        relay = server_app.Relay(NotWhole(None), theirs, refused=lambda refused=refused: refused)  # type: ignore[arg-type]
        relay.jobs["m0"] = 5
        relay.pulling.found = lambda names: NotWhole(None).pull_messages(names)  # type: ignore[method-assign]
        relay.tell()
        assert receive(ours) == ({"job": 5, "state": state}, b"")
        ours.close()
        theirs.close()


@pytest.mark.parametrize("content", [{}, {"frame": "text", "seconds": 1.0}, {"frame": b"f"}])
def test_a_message_that_is_no_job_fails(content: dict[str, Any]):
    assert reply(job(content), Path("node.sock"))["state"] == "failed"


def test_a_message_cannot_say_where_the_node_is(monkeypatch: pytest.MonkeyPatch):
    paths = list[Path]()

    def note(place: Path, frame: bytes, seconds: float) -> bytes:
        paths.append(place)
        return frame

    monkeypatch.setattr(client_app, "ask", note)
    given = {"frame": b"f", "seconds": 1.0, "socket": "/elsewhere", "place": "/elsewhere"}
    assert reply(job(given), Path("node.sock"))["answer"] == b"f"
    assert paths == [Path("node.sock")]


class Grid:
    """Flower's, which answers each message at the next look."""

    def __init__(self, content: dict[str, Any] | None) -> None:
        self.content, self.sent = content, list[Message]()

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=9, public_key=b"\x01\x02", last_activated_at="t")]

    def push_messages(self, messages: list[Message]) -> list[str]:
        self.sent += messages
        return [f"m{at}" for at, _ in enumerate(messages)]

    def pull_messages(self, names: list[str]) -> list[Any]:
        results = [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=n)) for n in names]
        for message in results:
            message.has_error = lambda: self.content is None
            message.error = SimpleNamespace(code=8, reason=SECRET)
            message.content = RecordDict({"job": ConfigRecord(self.content or {})})
        return results


class NotWhole(Grid):
    """Of whose replies parts are missing."""

    def pull_messages(self, names: list[str]) -> list[Any]:
        result = super().pull_messages(names)
        for message in result:
            message.error = SimpleNamespace(code=3, reason=SECRET)
        return result


@pytest.mark.parametrize(
    ("content", "state", "answer"),
    [
        ({"state": "answered", "answer": b"yes"}, "answered", b"yes"),
        ({"state": "late", "answer": b""}, "late", b""),
        ({"state": SECRET, "answer": b""}, "malformed", b""),
        ({"state": "answered", "answer": b"more"}, "large", b""),
        ({"state": "answered", "answer": "text"}, "malformed", b""),
        ({}, "malformed", b""),
        (None, "error 8", b""),
    ],
)
def test_the_hub_hears_what_became_of_a_job(
    content: dict[str, Any] | None, state: str, answer: bytes
):
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    grid = Grid(content)
    thread = threading.Thread(target=server_app.Relay(grid, theirs).work)  # type: ignore[arg-type]
    thread.start()
    assert receive(ours) == ({"nodes": [[9, "0102", "t"]]}, b"")
    send(ours, {"job": 5, "node": 9, "seconds": 2.5, "most": 3}, b"frame")
    assert receive(ours) == ({"job": 5, "state": state}, answer)
    (sent,) = grid.sent
    assert (sent.metadata.dst_node_id, sent.content["job"]["frame"]) == (9, b"frame")
    assert sent.metadata.group_id == "3"
    assert sent.metadata.ttl == 2.5 + server_app.MARGIN
    ours.close()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.slow
def test_nobody_waits_for_a_site_that_died_while_it_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_app, "STALLED", 0.1)
    forever = threading.Event()

    class Stalled(Grid):
        def pull_messages(self, names: list[str]) -> list[Any]:
            if "m0" in names:
                forever.wait(20)
            return super().pull_messages(names)

    ours, theirs = socket.socketpair(socket.AF_UNIX)
    grid = Stalled({"state": "answered", "answer": b"yes"})
    relay = server_app.Relay(grid, theirs)  # type: ignore[arg-type]
    thread = threading.Thread(target=relay.work)
    thread.start()
    receive(ours)
    relay.jobs.update({"m0": 1, "m1": 2})
    relay.most.update({1: 3, 2: 3})
    assert receive(ours) == ({"job": 2, "state": "answered"}, b"yes")
    forever.set()
    assert receive(ours) == ({"job": 1, "state": "answered"}, b"yes")
    ours.close()
    thread.join(5)
    assert not thread.is_alive()


class Answered:
    """Flower, with replies to some messages, and what it was asked for."""

    def __init__(self, *names: str) -> None:
        self.here, self.asked = set(names), list[str]()

    def pull_messages(self, names: list[str]) -> list[str]:
        self.asked += names
        return [name for name in names if name in self.here]


def test_replies_that_are_whole_are_fetched_at_once_and_others_seldom(
    monkeypatch: pytest.MonkeyPatch,
):
    grid, names = Answered("m1", "m2"), [f"m{i}" for i in range(50)]
    pulling = server_app.Pulling(grid, lambda: ["m1"])  # type: ignore[arg-type]
    pulling.due = server_app.time.monotonic() + 1000
    assert pulling.found(names) == ["m1"]
    assert grid.asked == ["m1"]
    pulling.due = 0.0  # what Flower has by itself: a word that nobody will answer
    assert set(pulling.found(names)) == {"m1", "m2"}
    assert grid.asked[1:] == names
    seconds = pulling.due - server_app.time.monotonic()
    assert 5 < seconds < 5 + 50 * server_app.EACH + 1
