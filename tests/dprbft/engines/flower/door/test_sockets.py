"""Connections to real sockets: who shows no key is closed, and gives way; over TLS and without."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from dprbft.engines.deploy.certificates import new_authority, new_certificate
from dprbft.engines.flower.door import control, sockets
from dprbft.engines.flower.door.requests import answer
from dprbft.engines.flower.door.sockets import (
    CONTROL,
    FROM_ONE,
    PUBLIC,
    Certificate,
    Hall,
    Program,
    Server,
    serve,
    tls_of,
)
from dprbft.engines.node.call import bound

PATIENCE = 0.4


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Knows whoever asks for /known; says at which door."""
    if scope["type"] != "http":
        return
    visit = scope["state"]["visit"]
    if scope["path"] == "/known":
        visit.known(1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": visit.door.encode()})


class Up:
    """A server that listens in a thread."""

    def __init__(self, hall: Hall, port: int, lines: list[str]) -> None:
        self.hall, self.port, self.lines = hall, port, lines

    def connect(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return link


@contextmanager
def up(folder: Path, monkeypatch: pytest.MonkeyPatch, *, tls: bool, app: Any = app) -> Iterator[Up]:
    monkeypatch.setattr(sockets, "PATIENCE", PATIENCE)
    monkeypatch.setattr(sockets, "TELL", 0.05)
    made, ready, servers = None, threading.Event(), list[Server]()
    if tls:
        authority = new_authority(1)
        pair = new_certificate(authority, "localhost", 1)
        for name, content in (("crt", pair.certificate), ("key", pair.key)):
            (folder / f"hub.{name}").write_bytes(content)
        (folder / "ca.crt").write_bytes(authority.certificate)
        made = tls_of(str(folder / "hub.crt"), str(folder / "hub.key"))
    kept = sockets.Server.startup

    async def startup(self: Server, sockets: Any = None) -> None:
        await kept(self, sockets)
        servers.append(self)
        ready.set()

    monkeypatch.setattr(sockets.Server, "startup", startup)
    lines = list[str]()
    hall = Hall(lines.append)
    with ExitStack() as held:
        outside = held.enter_context(socket.socket())
        outside.bind(("127.0.0.1", 0))
        pairs = [(CONTROL, held.enter_context(bound(folder / control.SOCKET))), (PUBLIC, outside)]
        program = SimpleNamespace(terminate=lambda: None, wait=lambda seconds: None)
        begun = Program(line="up", start=lambda: program)
        thread = threading.Thread(target=serve, args=(app, hall, pairs, made, begun))
        thread.start()
        assert ready.wait(20)
        yield Up(hall, outside.getsockname()[1], lines)
        servers[0].should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def closed(link: socket.socket) -> float:
    """Seconds until the other side closes a connection."""
    began = time.monotonic()
    with suppress(ConnectionResetError):
        assert link.recv(1) == b""
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("tls", [True, False])
def test_who_says_nothing_is_closed_and_counted(
    tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with up(tmp_path, monkeypatch, tls=tls) as server:
        assert closed(server.connect()) < PATIENCE + 5
        assert server.hall.closed == {"idle": 1}
        assert server.hall.waiting == {}
    assert server.lines == [f"{control.SAID['idle']}: 1"]


def secured(server: Up, folder: Path) -> ssl.SSLSocket:
    trust = ssl.create_default_context(cafile=folder / "ca.crt")
    return trust.wrap_socket(server.connect(), server_hostname="localhost")


def said(link: socket.socket, path: str) -> bytes:
    """The body of what is answered."""
    link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    result = b""
    while b"0\r\n\r\n" not in result:
        result += link.recv(1000)
    return result.split(b"\r\n\r\n")[1]


@pytest.mark.slow
def test_a_handshake_without_a_key_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with up(tmp_path, monkeypatch, tls=True) as server:
        silent, unknown, known = (secured(server, tmp_path) for _ in range(3))
        assert b"public" in said(known, "/known")
        assert b"public" in said(unknown, "/health")
        assert closed(silent) < PATIENCE + 5
        assert closed(unknown) < PATIENCE + 5
        assert b"public" in said(known, "/known")
        assert server.hall.closed["idle"] == 2


@pytest.mark.slow
def test_a_known_key_holds_no_connection_by_half_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def timed(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            visit = scope["state"]["visit"]
            visit.asked()
            await app(scope, receive, send)
            visit.answered()

    with up(tmp_path, monkeypatch, tls=False, app=timed) as server:
        known = server.connect()
        assert b"public" in said(known, "/known")
        assert b"public" in said(known, "/known")
        known.sendall(b"GET /known HTTP/1.1\r\nX:")
        assert closed(known) < PATIENCE + 5
        assert server.hall.closed == {"idle": 1}


@pytest.mark.slow
def test_a_flood_takes_no_place_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sockets, "FROM_ONE", 4)
    with up(tmp_path, monkeypatch, tls=True) as server:
        monkeypatch.setattr(sockets, "PATIENCE", 60.0)
        crowd = [server.connect() for _ in range(10)]
        known = secured(server, tmp_path)
        assert b"public" in said(known, "/known")
        assert closed(crowd[0]) < 5
        assert len(server.hall.waiting) <= 4
        assert server.hall.closed["crowded"] == 7
        for link in crowd:
            link.close()


def test_the_control_socket_is_its_owners_and_speaks_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with up(tmp_path, monkeypatch, tls=True):
        path = tmp_path / control.SOCKET
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(path))
            assert b"control" in said(link, "/anything")
    assert not path.exists()


def test_connections_of_a_removed_node_end_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def forgetting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/forget":
            scope["state"]["visit"].hall.forget(1)
        await app(scope, receive, send)

    with up(tmp_path, monkeypatch, tls=True, app=forgetting) as server:
        monkeypatch.setattr(sockets, "PATIENCE", 60.0)
        known, stranger = (secured(server, tmp_path) for _ in range(2))
        assert b"public" in said(known, "/known")
        assert [*server.hall.known.values()] == [1]
        assert b"public" in said(stranger, "/forget")
        assert closed(known) < 5
        assert (server.hall.known, server.hall.closed) == ({}, {"removed": 1})
        assert b"public" in said(stranger, "/health")


def shown(tls: ssl.SSLContext) -> bytes:
    """The certificate that a new connection is shown."""
    ours, theirs = socket.socketpair()
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

    def serve_one() -> None:
        with suppress(OSError), tls.wrap_socket(theirs, server_side=True) as link:
            link.recv(1)

    thread = threading.Thread(target=serve_one)
    thread.start()
    with trust.wrap_socket(ours) as link:
        result = link.getpeercert(binary_form=True) or b""
    thread.join(20)
    return result


def test_a_new_certificate_is_shown_without_a_restart_once_its_key_fits(tmp_path: Path):
    authority, lines = new_authority(1), list[str]()
    files = tmp_path / "hub.crt", tmp_path / "hub.key"
    pairs = [new_certificate(authority, "localhost", 1) for _ in range(2)]
    for path, content in zip(files, (pairs[0].certificate, pairs[0].key), strict=True):
        path.write_bytes(content)
    made = Certificate(str(files[0]), str(files[1]), lines.append)
    first = shown(made.tls)
    made.look()
    assert (shown(made.tls), lines) == (first, [])
    replaced(files[0], pairs[1].certificate)
    made.look()
    assert shown(made.tls) == first
    (line,) = lines
    assert line.startswith("the new certificate is not shown")
    replaced(files[1], pairs[1].key)
    made.look()
    assert shown(made.tls) == ssl.PEM_cert_to_DER_cert(pairs[1].certificate.decode()) != first
    made.look()
    assert lines[1:] == ["a new certificate is shown from now on"]


def replaced(path: Path, content: bytes) -> None:
    """Another file of that name, as `write_bytes` of the store leaves it."""
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


def test_what_the_door_says_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def telling(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await answer(send, 200, {"closed": {"idle": 2}})

    with up(tmp_path, monkeypatch, tls=False, app=telling):
        assert control.state(tmp_path) == {"closed": {"idle": 2}}


class Visitor:
    """A connection of a proxy, behind which all sites are."""

    address = "a proxy"

    def __init__(self, number: int) -> None:
        self.number = number

    def end(self) -> None:
        pass


@pytest.mark.parametrize(("sites", "stay"), [(3, FROM_ONE), (200, 400)])
def test_all_sites_may_come_at_once_from_one_address(
    sites: int, stay: int, monkeypatch: pytest.MonkeyPatch
):
    hall = Hall(sites=sites)
    monkeypatch.setattr(hall, "count", lambda why: None)
    visits: list[Any] = [Visitor(number) for number in range(500)]
    for visit in visits:
        hall.enter(visit)
    assert list(hall.waiting) == visits[500 - stay :]
