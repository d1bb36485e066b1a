"""Starts the processes of a hub or a site; ends all when one ends, or on a signal.

A hub runs Flower's SuperLink, at which the keys of its sites are registered. A site runs its node,
which owns the data, and a relay that connects out to the hub.
"""

import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dprbft.engines.deploy.probe import parted
from dprbft.engines.deploy.register import register
from dprbft.engines.deploy.settings import (
    CA,
    LOG,
    NODE_KEY,
    NODES,
    Hub,
    flower_hub,
    read_federation,
)
from dprbft.engines.flower.hub import answers, raise_open_files, with_parent
from dprbft.engines.flower.link import check_flower, environment
from dprbft.engines.node.call import SOCKET
from dprbft.engines.watch.serve import parsed_address
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.log import FORMAT
from panas.runtime.store import exclusive

UP = 60.0
"""Seconds in which a hub must answer at its port."""
ENDING = 20.0
"""Seconds that a process has to end by itself."""
AGAIN = 10.0
"""Seconds after which a relay that the hub has refused, or lost, is started again."""


@dataclass(frozen=True)
class Part:
    """One process: what it is called, its command, and where Flower keeps its files."""

    name: str
    command: tuple[str, ...]
    flower: Path
    log_format: str = "text"  # of its stderr


def hub_part(hub: Hub) -> Part:
    """Flower's SuperLink of a hub."""
    s = hub.flower
    files = (
        *("--ssl-ca-certfile", str(hub.ca)),
        *("--ssl-certfile", str(hub.path(s.certificate))),
        *("--ssl-keyfile", str(hub.path(s.key))),
    )
    listen = ("--host", s.bind, "--port", str(s.port))
    seen = [f"--hub-log={hub.folder / LOG}"]
    if s.metrics:
        at = parsed_address(s.metrics)
        seen.append(f"--hub-metrics={hub.path(at) if isinstance(at, Path) else s.metrics}")
    command = _python("dprbft.engines.flower.hub", with_parent(), *listen, *files, *seen)
    return Part("hub", command, hub.home, s.log_format)


def site_parts(folder: Path) -> tuple[Part, Part]:
    """A site's node, and its relay."""
    federation, folder = read_federation(folder), folder.resolve()
    flower = folder / "flower"
    relay = _python(
        "dprbft.engines.flower.site",
        *(with_parent(), "--socket", str(folder / SOCKET)),
        *("--superlink", federation.hub),
        *("--root-certificates", str(folder / CA)),
        *("--auth-supernode-private-key", str(folder / NODE_KEY)),
    )
    node = _python("panas_cli", "node", "--site", str(folder), "--parent", str(os.getpid()))
    return Part("node", node, flower), Part("relay", relay, flower, _format(folder))


def _format(folder: Path) -> str:
    """How the relay of a site writes to stderr; of what does not fit, the node says what to do."""
    try:
        return str(tomllib.loads((folder / "site.toml").read_text()).get("log_format", "text"))
    except (OSError, ValueError):
        return "text"


def start_hub(folder: Path) -> None:
    """Run a hub until it is interrupted; PanasError if a part ends by itself, after its stderr."""
    hub = flower_hub(folder)
    check_flower()
    raise_open_files()
    with (
        exclusive(hub.home / "hub", wait=False),
        suppress(KeyboardInterrupt),
        _Processes([hub_part(hub)]) as processes,
    ):
        (hub.home / NODES).unlink(missing_ok=True)  # of an earlier start
        _wait_for(hub, processes)
        register(hub)
        processes.wait()


def start_site(folder: Path) -> None:
    """Run a site's node and relay until they are interrupted.

    A relay that ends is started again: its hub may not know the site's key yet. PanasError if the
    node ends by itself, after its stderr.
    """
    if not (folder / "site.toml").is_file():
        raise BadInput(f"expected a site.toml in {folder}, found none; `panas site init {folder}`")
    node, relay = site_parts(folder)
    check_flower()
    with suppress(KeyboardInterrupt), _Processes([node, relay]) as processes:
        processes.wait(again=relay)


class _Processes:
    """Processes that end together."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts, self._running = parts, dict[str, subprocess.Popen[bytes]]()

    def __enter__(self) -> "_Processes":
        try:
            for part in self._parts:
                self._start(part)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, part: Part) -> None:
        os.makedirs(part.flower, mode=0o700, exist_ok=True)  # noqa: PTH103
        self._running[part.name] = subprocess.Popen(
            part.command,
            env=environment(part.flower) | {FORMAT: part.log_format},
            stdin=subprocess.DEVNULL,
        )

    def check(self, but: Part | None = None) -> None:
        """PanasError if one of them has ended."""
        for name, process in self._running.items():
            if (not but or name != but.name) and (code := process.poll()) is not None:
                raise PanasError(f"expected the {name} to go on, and it ended with code {code}")

    def wait(self, again: Part | None = None) -> None:
        """Wait until one of them ends; `again` is started anew whenever it has ended."""
        due = 0.0
        while True:
            self.check(but=again)
            if again and self._running[again.name].poll() is not None:
                due = due or time.monotonic() + AGAIN
                if time.monotonic() >= due:
                    self._start(again)
                    due = 0.0
            time.sleep(0.5)

    def __exit__(self, *error: object) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + ENDING
        for process in self._running.values():
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(hub: Hub, processes: _Processes) -> None:
    def is_up() -> bool:
        processes.check()
        return True

    if not answers(parted(hub.local_address), UP, is_up):
        raise PanasError(f"expected the hub at {hub.local_address} within {UP:g} s, got no answer")


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)
