"""A site's SuperNode, as `flower-supernode` starts it, that runs none of the hub's code.

Flower hands every node the coordinator's program and runs it there. This one does not: it takes
messages as any SuperNode does (outbound connections alone, TLS, the site's key), and its own relay,
of the package that the site has installed, hands their frames to the site's node. So nothing that a
hub sends is executed, no process is started for a message, and no text of an error leaves.

`python -m dprbft.engines.flower.site --socket DIR/node.sock` takes `flower-supernode`'s options.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dprbft.engines.flower.hub import (
    PARENT,
    QUIET,
    Unreachable,
    answers,
    check_hub,
    follow_parent,
    free_port,
    handed,
    option,
    say,
    without,
)
from dprbft.engines.outward import KEY, LET_IN, asked, is_loopback, parted, without_proxy
from dprbft.secure_sum.identity import flower_headers
from panas.runtime.errors import BadInput, PanasError

UP = 60.0
"""Seconds in which the SuperNode of this process must be up."""
NO_MESSAGE = 3
"""Seconds that Flower's SuperNode sleeps when its hub had no message: most of a round."""
BUSY = 120.0
"""Seconds after a message, or the start, in which more are likely."""


@dataclass
class Pace:
    """How often a site asks its hub, and its relay the SuperNode: less often when all is quiet.

    A hub answers about a hundred such questions a second for each core.
    """

    connected: Callable[[], None] = lambda: None  # called once, when the hub has answered
    seen: float = field(default_factory=time.monotonic)  # when there was a message
    told: bool = False

    def sleep(self, seconds: float) -> None:
        """As Flower's SuperNode sleeps, but for another time after its hub had no message."""
        if seconds == NO_MESSAGE and not self.told:
            self.told = True
            self.connected()
        time.sleep(self.ask_hub() if seconds == NO_MESSAGE else seconds)

    def ask_hub(self) -> float:
        """Seconds until the SuperNode asks its hub again."""
        return 1.0 if self._is_busy() else 4.0  # Flower's client drops a connection idle for 5 s

    def ask_supernode(self) -> float:
        """Seconds until the relay looks for messages that the SuperNode has taken."""
        return 0.1 if self._is_busy() else 0.5

    def _is_busy(self) -> bool:
        return time.monotonic() - self.seen < BUSY


FLOWER = (
    "flwr.proto.runtime_pb2",
    "flwr.supercore.heartbeat",
    "flwr.supercore.interceptors",
    "flwr.supernode.cli.flower_supernode",
    "flwr.supernode.runtime.run_clientapp",
)
"""Imported before the second thread starts: two threads that import Flower at once can deadlock."""


def checked(arguments: Sequence[str]) -> list[str]:
    """The options for `flower-supernode`; BadInput where they trust any server."""
    address = option(arguments, "--superlink")
    if not address or not option(arguments, "--socket"):
        raise BadInput("expected --superlink HOST:PORT and --socket DIR/node.sock, got less")
    if "--insecure" in arguments and not is_loopback(address.rpartition(":")[0]):
        raise BadInput(
            f"expected TLS to {address}, which is another machine, got --insecure; give "
            "--root-certificates"
        )
    return without(arguments, "--socket", "--isolation", "--superexec-auth-secret-file", PARENT)


def main(arguments: Sequence[str]) -> None:
    """Run a SuperNode and its relay until a signal ends them."""
    options = checked(arguments)
    follow_parent(arguments)
    os.environ.update(QUIET | without_proxy())
    certificate = option(arguments, "--root-certificates")
    address = option(arguments, "--superlink") or ""
    path = Path(option(arguments, "--socket") or "")
    os.environ.setdefault("FLWR_HOME", str(path.absolute().parent / "flower"))
    try:
        if certificate:
            check_hub(address, Path(certificate))
    except Unreachable as e:
        say(f"{e}; trying again until it answers")
    port = option(arguments, "--port") or str(free_port())
    secret = os.urandom(32)  # keeps other users from the SuperNode's messages
    for module in FLOWER:
        import_module(module)
    logging.getLogger("flwr").setLevel(logging.WARNING)  # else five lines a message
    pace, at = Pace(lambda: say(f"connected to the hub {address}")), f"127.0.0.1:{port}"
    threading.Thread(target=_work, args=(at, secret, path, pace), daemon=True).start()
    own = ["--isolation", "process"]
    own += ["--superexec-auth-secret-file", f"/dev/fd/{handed(secret)}"]
    sys.argv = ["flower-supernode", *without(options, "--port"), "--port", port, *own]
    _run_supernode(address, certificate, pace)


def _run_supernode(address: str, certificate: str | None, pace: Pace) -> None:
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    shorter = SimpleNamespace(sleep=pace.sleep)
    start_client_internal.time = shorter  # type: ignore[assignment]
    try:
        flower_supernode()
    except SystemExit as e:
        if e.code in (0, None):
            raise
        if certificate:
            check_hub(address, Path(certificate))
            if _is_known(address, Path(certificate)):
                raise BadInput(
                    f"expected the hub {address}, which knows this key, to let this site connect, "
                    "and it did not; the connection before may not be over, or another process "
                    "has this key; see what Flower says above"
                ) from e
        raise BadInput(
            f"expected the hub {address} to know this site's key, and it refused; ask its "
            "administrator to register the key, or see what Flower says above"
        ) from e
    except Exception as e:
        say(f"Flower's client failed ({type(e).__name__})")
    # Flower gives some failures up, as of TLS where a proxy closes, but a thread of it goes on.
    say(f"the connection to the hub {address} was lost; trying again")
    os._exit(1)


def _is_known(address: str, certificate: Path) -> bool:
    """Whether the hub says that it knows this site's key."""
    key = option(sys.argv, "--auth-supernode-private-key")
    try:
        headers = flower_headers(Path(key or "").read_bytes(), datetime.now(UTC).isoformat())
        return asked(parted(address), certificate, ("GET", KEY), headers)[0] == LET_IN
    except (OSError, ValueError, HTTPException):
        return False


def _work(address: str, secret: bytes, path: Path, pace: Pace) -> None:
    """Take messages from the SuperNode of this process, one after the other."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )

    answers(parted(address), UP, lambda: True)
    protected = frozenset({"/flwr.proto.Runtime/AcquireTask"})
    client = _client(
        address, SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=protected)
    )
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while True:
        try:
            task = client.AcquireTask(request)
            if task.HasField("task") and task.token:
                pace.seen = time.monotonic()
                _serve(_client(address, RuntimeTokenHttpInterceptor(task.token)), path)
                pace.seen = time.monotonic()
        except Exception:  # the SuperNode is not up yet, or gives a message up
            time.sleep(1)
        time.sleep(pace.ask_supernode())


def _serve(client: Any, path: Path) -> None:
    """Hand the frame of one message to the node, and the reply to the SuperNode."""
    from flwr.common.constant import SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supernode.runtime.run_clientapp import (
        pull_task_input,
        push_message,
        push_task_output,
    )

    from dprbft.engines.flower.app.client_app import answered

    heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heart.start()
    try:
        message, context, _, _ = pull_task_input(client)  # of the hub's program nothing is used
        push_message(client, answered(message, path, say), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heart.stop()
        client.close()


def _client(address: str, who: Any) -> Any:
    """A client of the SuperNode's own interface, on loopback."""
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient

    version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,
        root_certificates=None,
        interceptors=[version, who],
        retry_invoker=make_simple_http_retry_invoker(),
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PanasError as e:
        sys.exit(f"panas: {e}")
