"""Starts the processes of a hub or a site; ends all when one ends, or on a signal.

A hub runs Flower's SuperLink, at which the keys of its sites are registered, again whenever its
`hub.toml` names other ones. A site runs its node, which owns the data, and a relay that connects
out to the hub.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from dprbft.config.flat import Section, validated
from dprbft.config.hub import HUB
from dprbft.config.toml import read_toml
from dprbft.engines.deploy.log import LOG
from dprbft.engines.deploy.register import link_of, register
from dprbft.engines.deploy.settings import (
    CA,
    HUB_LOG,
    NODE_KEY,
    NODES,
    Hub,
    flower_hub,
    read_federation,
)
from dprbft.engines.flower.hub import answers, raise_open_files, say, with_parent
from dprbft.engines.flower.link import check_flower, environment
from dprbft.engines.node.call import SOCKET
from dprbft.engines.outward import parted
from dprbft.engines.watch.serve import parsed_address
from dprbft.paths import settings_file
from dprbft.site.federations import FederationShare, memberships
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
    own = [
        with_parent(),
        f"--federation-log={hub.folder / LOG}",
        f"--hub-log={hub.folder / HUB_LOG}",
    ]
    if s.metrics:
        at = parsed_address(s.metrics)
        own.append(f"--hub-metrics={hub.path(at) if isinstance(at, Path) else s.metrics}")
    command = _python("dprbft.engines.flower.hub", *listen, *files, *own)
    return Part("hub", command, hub.home, s.log_format)


class _OfSite(Section):
    """What the processes of a site follow from; the rest of site.toml, and torch, is its node's."""

    federation: dict[str, FederationShare] = Field(default_factory=dict)
    log_format: Literal["text", "json"] = "text"


def site_parts(folder: Path) -> tuple[Part, ...]:
    """A site's node, and a relay for each of its federations."""
    folder, path = folder.resolve(), settings_file(folder)
    given = {k: v for k, v in read_toml(path).items() if k in _OfSite.model_fields}
    settings = validated(_OfSite, given, str(path))
    node = _python("panas_cli", "node", "--site", str(folder), "--parent", str(os.getpid()))
    named = {each.folder: each.name for each in memberships(folder, settings.federation)}
    relays = [
        _relay(at, "relay" if at == folder else f"relay of {name}", settings.log_format)
        for at, name in named.items()
    ]
    return Part("node", node, folder / "flower"), *relays


def _relay(folder: Path, name: str, log_format: str) -> Part:
    command = _python(
        "dprbft.engines.flower.site",
        *(with_parent(), "--socket", str(folder / SOCKET)),
        *("--superlink", read_federation(folder).hub),
        *("--root-certificates", str(folder / CA)),
        *("--auth-supernode-private-key", str(folder / NODE_KEY)),
    )
    return Part(name, command, folder / "flower", log_format)


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
        link_of(hub).open()
        registering = _Registering(hub)
        registering.register()
        _tell_ready(hub)
        processes.wait(look=registering.look)


def start_site(folder: Path) -> None:
    """Run a site's node and relays until they are interrupted.

    A relay that ends is started again: its hub may not know the site's key yet. PanasError if the
    node ends by itself, after its stderr.
    """
    if not settings_file(folder).is_file():
        raise BadInput(f"expected a site.toml in {folder}, found none; `panas site init {folder}`")
    node, *relays = site_parts(folder)
    check_flower()
    with suppress(KeyboardInterrupt), _Processes([node, *relays]) as processes:
        processes.wait(again=relays)


def _tell_ready(hub: Hub) -> None:
    """Say where sites may connect now: Flower's own lines do not."""
    names = ", ".join(hub.settings.names)
    line = f"the hub is ready at {hub.address} for {names}; it ends with Ctrl-C"
    say(line, as_json=hub.flower.log_format == "json")


class _Registering:
    """Lets the sites of a hub.toml into its SuperLink, and those that it names no more out."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._seen, self._due = hub, -1, 0.0

    def register(self) -> None:
        """Let in the sites of hub.toml as it is now, and no others."""
        changed = self._changed()
        register(flower_hub(self._hub.folder))
        self._seen = changed

    def look(self) -> None:
        """Register anew where hub.toml has changed; what fails is told, and tried again."""
        if self._changed() == self._seen or time.monotonic() < self._due:
            return
        try:
            self.register()
        except (PanasError, OSError) as e:
            say(str(e), as_json=self._hub.flower.log_format == "json")
            self._due = time.monotonic() + AGAIN

    def _changed(self) -> int:
        try:
            return (self._hub.folder / HUB).stat().st_mtime_ns
        except FileNotFoundError:  # an editor puts another in its place
            return self._seen


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
            process_group=0,  # Ctrl-C reaches this process alone, which ends each of them once
        )

    def check(self, but: Sequence[Part] = ()) -> None:
        """PanasError if one of them has ended."""
        others = {part.name for part in but}
        for name, process in self._running.items():
            if name not in others and (code := process.poll()) is not None:
                raise PanasError(f"expected the {name} to go on, and it ended with code {code}")

    def wait(self, again: Sequence[Part] = (), look: Callable[[], None] = lambda: None) -> None:
        """Wait until one of them ends.

        Args:
            again: each is started anew whenever it has ended.
            look: is called about twice a second.
        """
        due = dict[str, float]()
        while True:
            self.check(but=again)
            for part in again:
                if self._running[part.name].poll() is None:
                    due.pop(part.name, None)
                elif time.monotonic() >= due.setdefault(part.name, time.monotonic() + AGAIN):
                    self._start(part)
                    del due[part.name]
            look()
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
