"""The hub's SuperLink, as `flower-superlink` starts it, with what Flower 1.41 leaves open closed.

Flower answers three interfaces at one port: Fleet, for the nodes of sites, Control, which starts
runs and registers keys, and Runtime, for what it has started. Control asks for no account, so
whoever reaches the port could run code on the hub: here Control and Runtime answer this machine
alone. Nodes must hold a registered key, and an address that others reach must have TLS.

`python -m dprbft.engines.flower.hub` takes the options of `flower-superlink`, and
`--with-parent=PID` to end with the process that started it.
"""

import ipaddress
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from panas.runtime.errors import BadInput, PanasError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment of all that belongs to Flower: it calls nobody and installs nothing."""

PARENT = "--with-parent"

OPEN = ("/v1/fleet/", "/health")
"""What other machines may ask for."""

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is this machine's loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class LocalControl:
    """Answers 403 to other machines, but for what `OPEN` names."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and not _is_open(scope["path"]) and not _is_local(scope):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path.startswith(OPEN) and ".." not in path


def _is_local(scope: Scope) -> bool:
    """Whether a request comes from this machine: by loopback, or from the address it went to."""
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    return is_loopback(client[0]) or bool(server and client[0] == server[0])


def checked(arguments: Sequence[str]) -> list[str]:
    """The options for `flower-superlink`; BadInput where they leave the hub open to others."""
    host = option(arguments, "--host") or "127.0.0.1"
    if "--insecure" in arguments and not is_loopback(host):
        raise BadInput(
            f"expected TLS on {host}, which other machines reach, got --insecure; give "
            "--ssl-certfile, --ssl-keyfile and --ssl-ca-certfile"
        )
    wanted = [a for a in arguments if a != "--enable-supernode-auth" and not is_parent(a)]
    return wanted if "--simulation" in wanted else [*wanted, "--enable-supernode-auth"]


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

    Raises:
        Unreachable: if nobody answers.
        BadInput: if the hub's certificate has expired, is for another host, or is another's; or
            `certificate` is none.

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
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=10) as plain,
            trust.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return
    except ssl.SSLCertVerificationError as e:
        raise BadInput(
            f"expected a certificate of the hub {address} that {certificate} vouches for, got one "
            f"that it does not ({e.verify_message}); ask the hub's administrator for a new one"
        ) from e
    except (OSError, ValueError) as e:
        raise Unreachable(f"expected a hub at {address}, got no answer ({e}); start it") from e


def with_parent() -> str:
    """The option by which a process that this one starts ends with it."""
    return f"{PARENT}={os.getpid()}"


def is_parent(word: str) -> bool:
    """Whether a word of the command line is that option."""
    return word.startswith(PARENT)


def follow_parent(arguments: Sequence[str]) -> None:
    """End with the process that the command line names, if it does."""
    for word in filter(is_parent, arguments):
        end_with_parent(int(word.partition("=")[2]))


def end_with_parent(parent: int) -> None:
    """Let this process end, in its own order, once it is no longer a child of `parent`."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: Sequence[str]) -> None:
    """Run a SuperLink until it is told to end."""
    wanted = checked(arguments)
    follow_parent(arguments)
    os.environ.update(QUIET)
    # The SuperLink starts programs of this installation by their names.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    import flwr.superlink.main as superlink
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan, flower_superlink
    from flwr.superlink.config_loader import SuperLinkLifespanConfig

    create = superlink.create_app

    def create_app(config: SuperLinkLifespanConfig, lifespan: type[SuperLinkLifespan]) -> Any:
        app = create(config, lifespan)
        app.add_middleware(LocalControl)
        return app

    superlink.create_app = create_app  # type: ignore[assignment]
    sys.argv = ["flower-superlink", *wanted]
    flower_superlink()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BadInput as e:
        sys.exit(f"panas: {e}")
