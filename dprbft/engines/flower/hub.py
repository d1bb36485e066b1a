"""The hub's SuperLink, as `flower-superlink` starts it, with what Flower 1.41 leaves open closed.

Flower answers three interfaces at one port: Fleet, for the nodes of sites, Control, which starts
runs and registers keys, and Runtime, for what it has started. Control asks for no account, so
whoever reaches the port could run code on the hub. Here each has its own socket (`door`): the port
is Fleet's alone, Control's has mode 0600, and Runtime's is on loopback and wants a secret. Nodes
must hold a registered key, and an address that others reach must have TLS.

`python -m dprbft.engines.flower.hub` takes the options of `flower-superlink`, `--with-parent=PID`
to end with the process that started it, `--federation-log=FILE`, which it shows sites,
`--hub-log=FILE`, which it writes, and `--hub-metrics=ADDRESS`. A certificate that is replaced is
shown without a restart.
"""

import http.client
import importlib
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dprbft.engines.node.call import bound, held_port
from dprbft.engines.outward import PATIENCE, connection, is_loopback, way_to, without_proxy
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.log import Line, all_as_json, is_json, to_stderr

if TYPE_CHECKING:
    from dprbft.engines.flower.door.nodes import Nodes
    from dprbft.engines.flower.door.sockets import Certificate, Hall
    from dprbft.engines.watch.hub import RunEvent

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FORCE_COLOR": "",  # set, as by a notebook's kernel, it would colour the JSON that is read here
}
"""Environment of all that belongs to Flower: it calls nobody and installs nothing."""

PARENT, SHOWN = "--with-parent", "--federation-log"
LOG, METRICS = "--hub-log", "--hub-metrics"
OURS = (PARENT, SHOWN, LOG, METRICS)
"""Options of this program, which Flower does not know."""

OPEN_FILES = 1 << 16
"""Open files of a hub, where the system allows them: each connection is one."""


def checked(arguments: Sequence[str]) -> list[str]:
    """The options for `flower-superlink`; BadInput where they leave the hub open to others."""
    host = option(arguments, "--host") or "127.0.0.1"
    if "--insecure" in arguments and not is_loopback(host):
        raise BadInput(
            f"expected TLS on {host}, which other machines reach, got --insecure; give "
            "--ssl-certfile, --ssl-keyfile and --ssl-ca-certfile"
        )
    options = [a for a in without(arguments, *OURS) if a != "--enable-supernode-auth"]
    return options if "--simulation" in options else [*options, "--enable-supernode-auth"]


def option(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option, given as two words or with an equals sign; None if it is not."""
    for at, word in enumerate(arguments):
        if word == name and at + 1 < len(arguments):
            return arguments[at + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return None


class Unreachable(PanasError):
    """Nobody answers at a hub's address."""

    exit_code = 2


def check_hub(address: str, certificate: Path) -> None:
    """Look whether a hub answers by TLS, as the one that `certificate` vouches for.

    Unreachable if nobody answers. BadInput if the hub's certificate has expired, is for another
    host, or is another's; or `certificate` is none.
    """
    host, _, port = address.rpartition(":")
    try:
        trust = ssl.create_default_context(cafile=certificate)
    except (OSError, ValueError) as e:
        raise BadInput(
            f"expected a certificate of the hub's authority in {certificate}, got none; copy it "
            "anew"
        ) from e
    try:
        with closing(connection(host.strip("[]"), int(port), PATIENCE, trust)) as link:
            link.connect()
    except ssl.SSLCertVerificationError as e:
        raise BadInput(
            f"expected a certificate of the hub {address} that {certificate} vouches for, got one "
            f"that it does not ({e.verify_message}); ask the hub's administrator for a new one"
        ) from e
    except (OSError, ValueError, http.client.HTTPException) as e:
        way = way_to(host.strip("[]"))
        raise Unreachable(f"expected a hub at {address}{way}, got no answer ({e}); start it") from e


def with_parent() -> str:
    """The option by which a process that this one starts ends with it."""
    return f"{PARENT}={os.getpid()}"


def follow_parent(arguments: Sequence[str]) -> None:
    """End with the process that the command line names, if it does."""
    if parent := option(arguments, PARENT):
        end_with_parent(int(parent))


def end_with_parent(parent: int) -> None:
    """Let this process end, in its own order, once it is no longer a child of `parent`."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def raise_open_files() -> None:
    """Let this process, and all that it starts, have as many open files as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def without(arguments: Sequence[str], *names: str) -> list[str]:
    """Options but for these, given as two words or with an equals sign."""
    kept, skip = list[str](), False
    for word in arguments:
        if not (skip or word.partition("=")[0] in names):
            kept.append(word)
        skip = word in names
    return kept


def answers(address: tuple[str, int], seconds: float, is_up: Callable[[], bool]) -> bool:
    """Whether a server accepts connections at an address in time.

    Args:
        address: host and port.
        seconds: to try for.
        is_up: False ends it early: the server has ended.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until and is_up():
        try:
            socket.create_connection(address, timeout=1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with held_port("127.0.0.1", 0) as probe:
        return int(probe.getsockname()[1])


def handed(secret: bytes) -> int:
    """A file descriptor from which a secret can be read once; it is written to no disk."""
    source, sink = os.pipe()
    with os.fdopen(sink, "wb") as out:
        out.write(secret)
    return source


def main(arguments: Sequence[str]) -> None:
    """Run a SuperLink until a signal ends it."""
    options = checked(arguments)
    follow_parent(arguments)
    raise_open_files()
    os.environ.update(QUIET | without_proxy())
    # The SuperLink starts programs of this installation by their names.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    os.makedirs(home, mode=0o700, exist_ok=True)  # noqa: PTH103
    from dprbft.engines.flower.door.control import SOCKET

    with ExitStack() as held:
        outside = held.enter_context(listening(options))
        inside = held.enter_context(held_port("127.0.0.1", 0))
        control = held.enter_context(bound(home / SOCKET))
        _run(arguments, (outside, inside, control), held)


def listening(options: Sequence[str]) -> socket.socket:
    """The port that sites reach; BadInput if it cannot be had."""
    host, port = option(options, "--host") or "127.0.0.1", option(options, "--port") or "8000"
    try:
        return held_port(host.strip("[]"), int(port))
    except (OSError, ValueError, OverflowError) as e:
        raise BadInput(f"expected to listen on {host}:{port}, got {e}; give another port") from e


def _run(
    arguments: Sequence[str],
    sockets: tuple[socket.socket, socket.socket, socket.socket],
    held: ExitStack,
) -> None:
    """Let Flower make its server, and serve it at the port, Runtime's socket and Control's."""
    # The package has a function of the module's name.
    superlink = importlib.import_module("flwr.superlink.cli.flower_superlink")

    from dprbft.engines.flower.door.nodes import Nodes
    from dprbft.engines.flower.door.requests import Door, without_control
    from dprbft.engines.flower.door.sockets import CONTROL, PUBLIC, RUNTIME, Hall, Program, serve

    options, (outside, inside, control) = checked(arguments), sockets
    insecure, port = "--insecure" in options, str(inside.getsockname()[1])
    secret, host = os.urandom(32), outside.getsockname()
    at = f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"
    shown = None if insecure else _certificate(options)
    tls, hall = shown.tls if shown else None, Hall(say)
    nodes, shown_log = Nodes(gone=hall.forget), option(arguments, SHOWN)
    log = Path(shown_log) if shown_log else None
    heard = _watch(arguments, hall, nodes, held)

    def run(app: Any, *, log_config: Any, **_: Any) -> None:
        nodes.app, short = app, without_control(app)
        app.add_middleware(Door, hall=hall, nodes=nodes, log=log, short=short, heard=heard)
        serve(
            app,
            hall,
            [(CONTROL, control), (RUNTIME, inside), (PUBLIC, outside)],
            tls,
            Program(
                line=f"Uvicorn running on {'https' if tls else 'http'}://{at}",
                start=lambda: _start_programs(port, secret, insecure, options),
                look=shown.look if shown else lambda: None,
            ),
            None if is_json() else log_config,
        )

    superlink.uvicorn = SimpleNamespace(run=run)  # type: ignore[attr-defined]
    sys.argv = ["flower-superlink", *_inside(options, port, secret)]
    superlink.flower_superlink()


def _certificate(options: Sequence[str]) -> "Certificate | None":
    """What the options say that sites are shown; None if they say nothing."""
    from dprbft.engines.flower.door.sockets import Certificate

    files = [option(options, f"--ssl-{name}") or "" for name in ("certfile", "keyfile")]
    return Certificate(files[0], files[1], say) if files[0] else None


def _inside(options: Sequence[str], port: str, secret: bytes) -> list[str]:
    """The options of Flower's server, which answers at this port of loopback alone."""
    own = ["--host", "127.0.0.1", "--port", port, "--isolation", "process"]
    own += ["--superexec-auth-secret-file", f"/dev/fd/{handed(secret)}"]
    rest = without(options, "--host", "--port", "--isolation", "--superexec-auth-secret-file")
    return [*rest, *own]


def _watch(
    arguments: Sequence[str], hall: "Hall", nodes: "Nodes", held: ExitStack
) -> Callable[["RunEvent"], None]:
    """Write the log, and answer /metrics, as the command line says; returns who hears of runs."""
    from dprbft.engines.flower.door.watching import Watching
    from dprbft.engines.watch.serve import serving

    if is_json():
        all_as_json("flwr", "uvicorn")
    log, address = option(arguments, LOG), option(arguments, METRICS)
    watching = Watching(Path(log) if log else None, nodes, hall, say)
    hall.tell = watching.port
    if address:
        say(f"metrics: {held.enter_context(serving(address, Path(), watching.text))}")
    return watching.heard


def _start_programs(
    port: str, secret: bytes, insecure: bool, options: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start what runs the hub's relays; it ends with this process."""
    source = handed(secret)
    authority = option(options, "--ssl-ca-certfile") or ""
    trust = ["--insecure"] if insecure else ["--root-certificates", authority]
    command = ["flower-superexec", *trust, "--runtime-api-address", f"127.0.0.1:{port}"]
    command += ["--superexec-auth-secret-file", f"/dev/fd/{source}"]
    command += ["--parent-pid", str(os.getpid())]
    try:
        return subprocess.Popen(
            command, pass_fds=[source], stdin=subprocess.DEVNULL, start_new_session=True
        )
    finally:
        os.close(source)


def say(line: str, *, as_json: bool | None = None) -> None:
    """Write a line for whoever runs this process; None: in the format that its starter wants."""
    wants_json = is_json() if as_json is None else as_json
    to_stderr(Line("note", {"text": line}).json() if wants_json else f"panas: {line}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BadInput as e:
        sys.exit(f"panas: {e}")
