"""The carrier, with a relay of this process in Flower's place."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dprbft.engines.flower import carrier as calls
from dprbft.engines.flower import carrier as carrying
from dprbft.engines.flower.app.packets import Packet, receive, send
from dprbft.engines.flower.carrier import FlowerCarrier
from dprbft.engines.framed import AROUND, Framed
from dprbft.engines.frames import Answer, Request
from dprbft.messages import Code, Reply, Verb
from panas.runtime.errors import BadInput, PanasError

Behaviour = Callable[[socket.socket, Packet], None]


@dataclass
class Fake:
    """A link whose runs are threads; they tell of nodes and then do as they are told."""

    home: Path
    behave: Behaviour
    connected: Sequence[str] = ("a", "b")
    names: Sequence[str] = ("a", "b")
    log: str = "see the log"
    runs: int = 0
    stopped: list[bool] = field(default_factory=list)
    refuses: bool = False
    answers: bool = True

    def is_up(self) -> bool:
        return self.answers

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def sites(self, nodes: Mapping[str, int]) -> dict[str, int]:
        return dict(nodes)

    def flwr(self, *arguments: str) -> dict[str, Any]:
        if arguments[0] == "list":
            state = "finished:failed" if self.refuses else "finished:completed"
            return {"runs": [{"status": state}]}
        self.runs += 1
        name = arguments[-1].split('"')[1]
        if not self.refuses:
            threading.Thread(target=self._relay, args=(name,), daemon=True).start()
        return {"run-id": str(self.runs)}

    def _relay(self, name: str) -> None:
        with socket.socket(socket.AF_UNIX) as hub:
            hub.connect(str(self.home / name))
            send(hub, {"nodes": [[i, name, "1"] for i, name in enumerate(self.connected)]})
            while packet := receive(hub):
                if packet[0].get("stop"):
                    self.stopped.append(True)
                    return
                try:
                    self.behave(hub, packet)
                except OSError:
                    return


def echo(hub: socket.socket, packet: Packet) -> None:
    send(hub, {"job": packet[0]["job"], "state": "answered"}, packet[1] + b"!")


def broken(hub: socket.socket, packet: Packet) -> None:
    hub.shutdown(socket.SHUT_RDWR)
    raise OSError


@contextmanager
def up(
    home: Path, behave: Behaviour, **more: Any
) -> Iterator[tuple[FlowerCarrier, list[str], Fake]]:
    link, lines = Fake(home, behave, **more), list[str]()
    with FlowerCarrier(link, patience=0.3, tell=lines.append) as carrier:
        yield carrier, lines, link


FRAMES = {"a": b"to a", "b": b"to b"}


def test_answers_come_from_the_sites_that_were_asked(tmp_path: Path):
    with up(tmp_path, echo) as (carrier, lines, link):
        for _ in range(3):
            results = dict(carrier.carry(FRAMES, 5))
            assert results == {"a": b"to a!", "b": b"to b!"}
    assert lines == []
    assert (link.runs, link.stopped) == (1, [True])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["silent", "late", "failed", "error 8", "nonsense"])
def test_a_site_without_an_answer_is_told_of_and_left_out(tmp_path: Path, state: str):
    def behave(hub: socket.socket, packet: Packet) -> None:
        if packet[0]["node"] == 0:
            echo(hub, packet)
        else:
            send(hub, {"job": packet[0]["job"], "state": state}, b"not to be used")

    with up(tmp_path, behave) as (carrier, lines, _):
        assert dict(carrier.carry(FRAMES, 5)) == {"a": b"to a!"}
    assert len(lines) == 1
    assert lines[0].startswith("site b: ")


def test_a_node_that_was_killed_is_told_of_in_plain_words(tmp_path: Path):
    def behave(hub: socket.socket, packet: Packet) -> None:
        send(hub, {"job": packet[0]["job"], "state": "error 5"})

    with up(tmp_path, behave, connected=("a",), names=("a",)) as (carrier, lines, _):
        assert list(carrier.carry({"a": b"x"}, 5)) == []
    assert lines == [
        "site a: its relay has gone, or was ended; start the site again (panas deploy start)"
    ]


@pytest.mark.parametrize("state", ["large", "malformed"])
def test_an_answer_that_is_none_is_refused_and_the_relay_knows_the_most(tmp_path: Path, state: str):
    asked, refused = list[dict[str, Any]](), list[tuple[str, Verb, str]]()

    def behave(hub: socket.socket, packet: Packet) -> None:
        asked.append(packet[0])
        send(hub, {"job": packet[0]["job"], "state": state})

    with up(tmp_path, behave, connected=("a",), names=("a",)) as (carrier, lines, _):
        engine = Framed(
            carrier=carrier,
            run="trial",
            names=("a",),
            seconds=5,
            caps={Verb.ROUND: 1000},
            refused=lambda site, verb, why: refused.append((site, verb, str(why))),
        )
        for verb in (Verb.SEARCH, Verb.ROUND):
            assert list(engine.call(verb, {0: b""})) == [(0, Reply(Code.ABSENT))]
    assert [job["most"] for job in asked] == [AROUND, 1000 + AROUND]
    assert [(site, verb) for site, verb, _ in refused] == [("a", "search"), ("a", "round")]
    assert len(lines) == 2


def test_nothing_lasts_beyond_the_deadline(tmp_path: Path):
    with up(tmp_path, lambda hub, packet: None) as (carrier, lines, _):
        began = time.monotonic()
        assert dict(carrier.carry(FRAMES, 0.3)) == {}
        assert time.monotonic() - began < 2
    assert [line.split(" in ")[0] for line in sorted(lines)] == [
        "site a has not answered",
        "site b has not answered",
    ]


def test_a_late_answer_is_handed_on_with_its_site(tmp_path: Path):
    held = list[Packet]()

    def behave(hub: socket.socket, packet: Packet) -> None:
        if not held:
            held.append(packet)
            return
        send(hub, {"job": held[0][0]["job"], "state": "answered"}, b"old")
        echo(hub, packet)

    with up(tmp_path, behave) as (carrier, _, _):
        assert dict(carrier.carry({"a": b"1"}, 0.2)) == {}
        assert list(carrier.carry({"a": b"2"}, 5)) == [("a", b"old"), ("a", b"2!")]


def test_a_late_answer_is_refused_and_recorded(tmp_path: Path):
    held, refused = list[bytes](), list[tuple[str, str]]()

    def behave(hub: socket.socket, packet: Packet) -> None:
        held.append(_answer_to(packet[1]))
        if len(held) > 1:  # the second request is answered after the first
            numbers = packet[0]["job"] - 1, packet[0]["job"]
            for number, answer in zip(numbers, held, strict=True):
                send(hub, {"job": number, "state": "answered"}, answer)

    with up(tmp_path, behave, connected=("a",), names=("a",)) as (carrier, _, _):
        engine = Framed(
            carrier=carrier,
            run="trial",
            names=("a",),
            seconds=0.3,
            refused=lambda site, verb, why: refused.append((site, str(why))),
        )
        assert list(engine.call(Verb.SEARCH, {0: b""})) == [(0, Reply(Code.ABSENT))]
        assert refused == []
        assert list(engine.call(Verb.SEARCH, {0: b""})) == [(0, Reply(Code.DONE))]
    assert refused == [("a", "expected one answer in time to each request, got one late or twice")]


def _answer_to(frame: bytes) -> bytes:
    r = Request.from_bytes(frame)
    return Answer(run=r.run, site=r.site, verb=r.verb, nonce=r.nonce, code=0).to_bytes()


def test_a_server_that_has_stopped_is_no_fault_of_the_sites(tmp_path: Path):
    with up(tmp_path, broken) as (carrier, lines, link):
        link.answers = False
        with pytest.raises(PanasError, match="the hub's server to go on, and it has stopped"):
            dict(carrier.carry(FRAMES, 5))
        assert lines == []


def test_a_relay_that_dies_leaves_the_sites_absent_and_the_next_call_starts_anew(tmp_path: Path):
    with up(tmp_path, broken) as (carrier, lines, link):
        assert dict(carrier.carry(FRAMES, 5)) == {}
        assert lines == ["Flower's ServerApp has ended; going on without what it was asked"]
        link.behave = echo
        assert dict(carrier.carry(FRAMES, 5)) == {"a": b"to a!", "b": b"to b!"}
        assert link.runs == 2


@pytest.mark.slow
def test_a_site_that_is_not_connected_is_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(calls, "REJOIN", 0.1)
    with up(tmp_path, echo, connected=("a",)) as (carrier, lines, _):
        assert dict(carrier.carry(FRAMES, 30)) == {"a": b"to a!"}
    assert lines == [
        "site b is not connected",
        "site b is not connected; going on without it",
    ]


def test_a_site_that_comes_back_is_asked(tmp_path: Path):
    def behave(hub: socket.socket, packet: Packet) -> None:
        send(hub, {"nodes": [[0, "a", "1"], [1, "b", "1"]]})
        echo(hub, packet)

    with up(tmp_path, behave, connected=("a",)) as (carrier, _, _):
        assert dict(carrier.carry(FRAMES, 30)) == {"a": b"to a!", "b": b"to b!"}


def test_a_site_that_starts_again_is_asked_again(tmp_path: Path):
    asked = list[Packet]()

    def behave(hub: socket.socket, packet: Packet) -> None:
        asked.append(packet)
        if len(asked) == 1:  # it dies of it, and is started
            send(hub, {"nodes": [[0, "a", "2"]]})
            return
        send(hub, {"job": asked[0][0]["job"], "state": "answered"}, b"of one that died")
        echo(hub, packet)

    with up(tmp_path, behave, connected=("a",), names=("a",)) as (carrier, lines, _):
        assert list(carrier.carry({"a": b"x"}, 30)) == [("a", b"x!")]
    assert [packet[1] for packet in asked] == [b"x", b"x"]
    assert lines == []


def test_too_few_sites_are_refused_by_name(tmp_path: Path):
    link = Fake(tmp_path, echo, connected=())
    with pytest.raises(BadInput, match=r"at least 2 of 2 sites within 0.2 s, got 0; .*: a, b"):
        FlowerCarrier(link, minimum=2, patience=0.2).__enter__()
    assert link.stopped == [True]


def test_a_run_that_flower_ends_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(carrying, "KNOCK", 0.05)
    with pytest.raises(PanasError, match=r"is finished:failed\); see the log"):
        FlowerCarrier(Fake(tmp_path, echo, refuses=True)).__enter__()
    assert list(tmp_path.iterdir()) == []
