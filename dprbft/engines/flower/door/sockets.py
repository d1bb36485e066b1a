"""The hub's sockets: a connection that has shown no registered key lasts seconds, and gives way.

uvicorn, which serves Flower's SuperLink, waits for a first request as long as a connection lasts. A
`Visit` stands between a socket and uvicorn's HTTP: it counts from the first packet, before TLS, and
is over after `PATIENCE` seconds unless a request has come that a registered key has signed (which
`door` looks at). After each answer the headers of the next request have as long. At most `WAITING`
visits wait to be known, and `FROM_ONE` of one address, or twice as many as there are sites: the
oldest of them gives way to a new one, so that whoever floods the port keeps no site out.

There are three doors: `PUBLIC` is the port that sites reach; `RUNTIME` a port of this machine's
loopback interface for what Flower has started here; `CONTROL` a Unix socket of mode 0600.
"""

import asyncio
import logging
import re
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dprbft.engines.flower.door.control import SAID, STATE, TO_SHOW_A_KEY, WHOLE

PATIENCE = TO_SHOW_A_KEY
PUBLIC, RUNTIME, CONTROL = "public", "runtime", "control"

GOODBYE = 2.0
"""Seconds that the other side has to take leave by TLS; it is closed then."""
WAITING = 256
"""Connections that have shown no key yet, at most."""
FROM_ONE = 64
"""Of these, those from one address."""
TELL = 10.0
"""Seconds between two lines about connections that were closed, at least."""


@dataclass
class Hall:
    """Who has come in without a key, and how many were sent away, by why."""

    tell: Callable[[str], None] = lambda line: None
    sites: int = 0  # with a key: all may come at once, and from one address, a proxy's
    closed: Counter[str] = field(default_factory=Counter)
    waiting: dict["Visit", None] = field(default_factory=dict)  # the oldest first
    known: dict["Visit", int] = field(default_factory=dict)  # those of nodes, by their number
    _told: Counter[str] = field(default_factory=Counter)
    _due: asyncio.TimerHandle | None = None

    def enter(self, visit: "Visit") -> None:
        """Let a connection in; another one gives way where there are too many."""
        same = [each for each in self.waiting if each.address == visit.address]
        from_one, waiting = (max(least, 2 * self.sites) for least in (FROM_ONE, WAITING))
        if len(same) >= from_one or len(self.waiting) >= waiting:
            self.close((same if len(same) >= from_one else list(self.waiting))[0], "crowded")
        self.waiting[visit] = None

    def close(self, visit: "Visit", why: str) -> None:
        """End a connection; a line says so, with all others of the next seconds."""
        self.waiting.pop(visit, None)
        self.known.pop(visit, None)
        visit.end()
        self.count(why)

    def forget(self, node: int) -> None:
        """End all connections of a node whose key is registered no more."""
        for visit in [each for each, number in self.known.items() if number == node]:
            self.close(visit, "removed")

    def count(self, why: str) -> None:
        """Count what was refused."""
        self.closed[why] += 1
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(TELL, self.say)

    def say(self) -> None:
        """Write a line about what was refused since the last one."""
        if self._due is not None:
            self._due.cancel()
        new, self._told, self._due = self.closed - self._told, Counter(self.closed), None
        if new:
            self.tell("; ".join(f"{SAID[why]}: {n}" for why, n in sorted(new.items())))


class Visit(asyncio.Protocol):
    """One connection: TLS where there is any, then uvicorn's HTTP.

    Args:
        hall: where it waits until it has shown a key.
        doors: name and TLS of each door, by the address that it listens at.
        config: uvicorn's, as are `server_state`, `app_state` and `_loop`.
        server_state: connections and tasks of the server.
        app_state: what the ASGI app keeps; a request's has this visit besides.
        _loop: the event loop; None: the running one.
    """

    def __init__(
        self,
        hall: Hall,
        doors: Mapping[str, tuple[str, ssl.SSLContext | None]],
        *,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.hall, self._doors = hall, doors
        self._http = H11Protocol(config, server_state, app_state | {"visit": self}, _loop)
        self._begun, self._early = False, bytearray()
        self._plain: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.door, self.address, self._known, self._over = PUBLIC, "", False, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has come."""
        assert isinstance(transport, asyncio.Transport)
        loop, self._plain = asyncio.get_running_loop(), transport
        self.door, tls = self._doors[doorplate(transport.get_extra_info("sockname"))]
        if self.door == PUBLIC:
            self.address = (transport.get_extra_info("peername") or ("",))[0]
            self.hall.enter(self)
            self._timer = loop.call_later(PATIENCE, self.hall.close, self, "idle")
        if tls is None:
            self._begin(transport)
        else:
            transport.pause_reading()
            self._task = loop.create_task(self._secure(transport, tls))

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        with suppress(OSError):
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=PATIENCE,
                ssl_shutdown_timeout=GOODBYE,
            )
            if secured is not None and not secured.is_closing():
                self._begin(secured)
                return
        self._gone()

    def _begin(self, transport: asyncio.Transport) -> None:
        self._begun = True
        self._http.connection_made(transport)
        if self._early:
            self._http.data_received(bytes(self._early))
            self._early.clear()

    def known(self, node: int) -> None:
        """The key of this node has signed a request of it: it may stay while requests come."""
        self._gone()
        if not self._over:
            self._known, self.hall.known[self] = True, node

    def asked(self) -> None:
        """A request has come, whose headers are whole."""
        if self._known and self._timer is not None:
            self._timer.cancel()

    def answered(self) -> None:
        """The headers of the next request have seconds to come, of whoever it is."""
        if self._known:
            self.asked()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PATIENCE, self.hall.close, self, "idle")

    def end(self) -> None:
        """Close it at once."""
        if self._plain is not None:
            self._plain.abort()

    def _gone(self) -> None:
        self.hall.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Hand bytes on; those that come with the end of a handshake wait for it."""
        if self._begun:
            self._http.data_received(data)
        else:
            self._early += data

    def eof_received(self) -> None:
        """As `asyncio.Protocol`."""
        if self._begun:
            self._http.eof_received()

    def pause_writing(self) -> None:
        """As `asyncio.Protocol`."""
        if self._begun:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        """As `asyncio.Protocol`."""
        if self._begun:
            self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._gone()
        self.hall.known.pop(self, None)
        self._known, self._over = False, True
        if self._begun:
            self._http.connection_lost(exc)


def doorplate(address: Any) -> str:
    """What tells listening sockets apart: a port, or the name of a Unix socket."""
    return str(address[1]) if isinstance(address, tuple) else "unix"


@dataclass(frozen=True)
class Program:
    """What starts once a server listens, and what it then looks at once a second."""

    line: str  # that is said then
    start: Callable[[], Any]
    look: Callable[[], None] = lambda: None


class Server(uvicorn.Server):
    """uvicorn on sockets that are there, with a program that starts once it listens.

    Args:
        config: of uvicorn.
        hall: counts the connections that were closed.
        program: is started once.
    """

    def __init__(self, config: uvicorn.Config, hall: Hall, program: Program) -> None:
        super().__init__(config)
        self._hall, self._program = hall, program
        self._started: subprocess.Popen[bytes] | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self._started = self._program.start()
            sys.stderr.write(f"{self._program.line}\n")
            sys.stderr.flush()

    async def on_tick(self, counter: int) -> bool:
        """As uvicorn's, which calls it ten times a second."""
        if counter % 10 == 0:
            self._program.look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        """End the program, and then all connections."""
        if self._started is not None:
            self._started.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._started.wait(1.0)
        self._hall.say()
        for visit in list(self._hall.waiting):
            visit.end()
        await super().shutdown(sockets=sockets)


def serve(
    app: Any,
    hall: Hall,
    sockets: Sequence[tuple[str, Any]],
    tls: ssl.SSLContext | None,
    program: Program,
    log: Any = None,
) -> None:
    """Serve an ASGI app at doors until a signal ends it.

    Args:
        app: the ASGI app behind the doors.
        hall: where connections without a key wait.
        sockets: the door's name and the listening socket of each.
        tls: of all doors but `CONTROL`; None: without.
        program: starts once the doors are open.
        log: uvicorn's configuration of logging; None: as it is.
    """
    doors = {
        doorplate(s.getsockname()): (door, None if door == CONTROL else tls) for door, s in sockets
    }
    config = uvicorn.Config(
        app,
        http=partial(Visit, hall, doors),  # type: ignore[arg-type]
        loop="asyncio",
        ws="none",
        log_config=log,
        proxy_headers=False,
    )
    quiet = re.compile(f" ({STATE}|{WHOLE}) ")  # what this machine asks, often
    logging.getLogger("uvicorn.access").addFilter(lambda line: not quiet.search(line.getMessage()))
    Server(config, hall, program).run(sockets=[each for _, each in sockets])


def tls_of(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """What a hub shows by TLS 1.2 or later; None where it has no certificate."""
    if not certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


class Certificate:
    """A hub's certificate and key in files that may be replaced while it runs.

    Connections that come after `look` has seen new files are shown these; others stay.

    Args:
        certificate: its file.
        key: file of its private key.
        tell: hears a line about new files.
    """

    def __init__(self, certificate: str, key: str, tell: Callable[[str], None]) -> None:
        made = tls_of(certificate, key)
        assert made is not None
        self.files, self.tls, self._tell = (certificate, key), made, tell
        self._seen = self._stamps()

    def look(self) -> None:
        """Take new files where they fit each other; else what was shown before stays."""
        try:
            if (stamps := self._stamps()) == self._seen:
                return
            self._seen = stamps
            tls_of(*self.files)  # into a context of its own: a pair that does not fit spoils it
            self.tls.load_cert_chain(*self.files)
            self._tell("a new certificate is shown from now on")
        except OSError as e:  # of TLS, too
            self._tell(f"the new certificate is not shown: {e}; copy certificate and key anew")

    def _stamps(self) -> list[tuple[int, int, int]]:
        seen = [Path(file).stat() for file in self.files]
        return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in seen]
