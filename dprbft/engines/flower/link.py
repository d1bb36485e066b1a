"""Where Flower runs: the SuperLink that a deployment has, or one of our own for a simulation.

Each has a folder of its own (FLWR_HOME): nothing is read from or written to a home directory.
Runs are started, watched and ended by Flower's command line, `flwr`, at the control socket there.
"""

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprbft.engines.flower.app.packets import SOCKET
from dprbft.engines.flower.hub import QUIET, answers, check_hub, free_port, with_parent
from dprbft.engines.outward import parted, without_proxy
from panas.runtime.errors import INSTALL_FLOWER, BadInput, PanasError
from panas.runtime.store import write_bytes

OLDEST = (1, 41)
APP = Path(__file__).parent / "app"
RAY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment of a simulation: without clusters Ray listens on loopback alone, on any system."""
START = 30.0
"""Seconds in which a SuperLink of our own must answer."""
AGAIN = 5.0
"""Seconds in which a server that has ended may be started again."""
ENDING = 15.0
"""Seconds that a run, or a process, has to end by itself."""


@dataclass(frozen=True)
class Deployed:
    """A SuperLink that somebody else runs on this machine, and the keys of its sites."""

    home: Path  # its FLWR_HOME
    address: str  # host:port, as this machine reaches it
    certificate: Path  # that vouches for its own
    keys: Mapping[str, bytes]  # public ones, PEM, by site

    @property
    def names(self) -> Sequence[str]:
        """Of the sites."""
        return list(self.keys)

    @property
    def log(self) -> str:
        """Where to read what it wrote, as the end of a sentence."""
        return f"see the log of the SuperLink at {self.address} (its FLWR_HOME must be {self.home})"

    def open(self) -> None:
        """Prepare it; BadInput if Flower is not installed, or the certificate does not hold."""
        check_flower()
        check_hub(self.address, self.certificate)
        _write_connection(self.home, {"address": self.address, "insecure": True})

    def is_up(self) -> bool:
        """Whether it answers, or does within `AGAIN` seconds."""
        return answers(parted(self.address), AGAIN, lambda: True)

    def close(self) -> None:
        """Nothing: whoever started it ends it."""

    def sites(self, nodes: Mapping[str, int]) -> dict[str, int]:
        """Nodes by site, of connected ones by key (hex), which the SuperLink has checked."""
        connected = {name: nodes.get(key.hex()) for name, key in self.keys.items()}
        return {name: node for name, node in connected.items() if node is not None}

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """What a command of `flwr` answers; PanasError if it fails."""
        return _run_flwr(self.home, self.address, arguments)


@dataclass
class Simulated:
    """A SuperLink of our own with Flower's simulation engine; one node answers for all sites."""

    names: Sequence[str]
    node: Path  # socket of the node
    cores: int = 1
    home: Path = field(default=Path(), init=False)
    address: str = field(default="", init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> str:
        """As `Deployed.log`: its last line, since its folder goes with it."""
        written = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return f"it said last: {written[-1][:300] if written else 'nothing'}"

    @property
    def _log(self) -> Path:
        return self.home / "superlink.log"

    def open(self) -> None:
        """As `Deployed.open`; PanasError if it does not come up."""
        check_flower(simulation=True)
        self.home = Path(tempfile.mkdtemp(prefix="panas-"))  # a short path: sockets lie below it
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        options = {
            "num-supernodes": len(self.names),
            "backend.client-resources.num-cpus": 1,
            "backend.init-args.num-cpus": max(1, min(self.cores, len(self.names))),
            "backend.init-args.log-to-driver": False,
        }
        lines = {"address": self.address, "insecure": True}
        _write_connection(self.home, lines | {f"options.{k}": v for k, v in options.items()})
        own = ["--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
        command = [sys.executable, "-m", "dprbft.engines.flower.hub", with_parent(), *own]
        own_files = {SOCKET: str(self.node), "RAY_TMPDIR": str(self.home)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment(self.home) | RAY | own_files,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = self._process
        if not answers(("127.0.0.1", port), START, lambda: process.poll() is None):
            raise PanasError(
                f"expected a SuperLink of our own within {START:g} s, got none; {self.log}"
            )

    def is_up(self) -> bool:
        """As `Deployed.is_up`."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End the SuperLink, and with it what it has started; its folder is removed."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self.home != Path():
            shutil.rmtree(self.home, ignore_errors=True)

    def sites(self, nodes: Mapping[str, int]) -> dict[str, int]:
        """As `Deployed.sites`: any node will do, since a frame says which site it is for."""
        return dict(zip(self.names, sorted(nodes.values()), strict=False))

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """As `Deployed.flwr`."""
        return _run_flwr(self.home, self.address, arguments)


Link = Deployed | Simulated
"""A SuperLink that is up between `open` and `close`."""


def start_run(link: Link, relay: str) -> str:
    """Start a run of the relays, which will look for this socket; returns its number."""
    started = link.flwr("run", str(APP), "hub", "--run-config", f'relay="{relay}"')
    return str(started["run-id"])


def state_of(link: Link, run: str) -> str:
    """A run's state as Flower names it, "finished:completed" say, and why; "unknown" if it does not
    say."""
    try:
        runs = link.flwr("list", "hub", "--run-id", run)["runs"]
        details = str(runs[0].get("status-details") or "")[:300]
        return str(runs[0]["status"]) + (f", {details}" if details not in ("", "N/A") else "")
    except (PanasError, LookupError, TypeError):
        return "unknown"


def end_run(link: Link, run: str) -> None:
    """Wait until a run has ended, and end it if it does not end by itself."""
    until = time.monotonic() + ENDING
    while time.monotonic() < until:
        state = state_of(link, run)
        if state.startswith("finished") or state == "unknown":
            return
    try:
        link.flwr("stop", run, "hub")
    except PanasError:
        return  # it ended meanwhile, or the SuperLink did


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's processes: it calls nobody, and writes to `home` alone."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **QUIET, **without_proxy(), "FLWR_HOME": str(home), "PATH": programs}


def check_flower(*, simulation: bool = False) -> None:
    """BadInput if Flower, or for a simulation Ray, is not installed or is too old."""
    try:
        version = importlib.metadata.version("flwr")
        if simulation:
            importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError as e:
        raise BadInput(
            f"expected the package {e.name} for --engine flower, found none; {INSTALL_FLOWER}"
        ) from e
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise BadInput(f"expected flwr {oldest} or later, got {version}; {INSTALL_FLOWER}")


def _run_flwr(home: Path, address: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What a command of `flwr` answers; PanasError, with its reason, if it fails."""
    command = [sys.executable, "-m", "dprbft.engines.flower.door.control"]
    command += [*arguments, "--format", "json"]
    try:
        done = subprocess.run(
            command, env=environment(home), capture_output=True, text=True, timeout=60, check=False
        )
        answer = json.loads(done.stdout[done.stdout.index("{") :])
    except subprocess.TimeoutExpired as e:
        raise _no_answer(address, "no answer in 60 s") from e
    except ValueError as e:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise _no_answer(address, last[0][:200]) from e
    if not isinstance(answer, dict) or not answer.get("success"):
        text = " ".join(str(answer.get("error-message", "a refusal")).split())
        raise _no_answer(address, text[:200])
    return answer


def _no_answer(address: str, got: str) -> PanasError:
    return PanasError(
        f"expected the SuperLink at {address} to do as asked, got {got!r}; see that it runs, and "
        "go on with --resume"
    )


def _write_connection(home: Path, lines: Mapping[str, Any]) -> None:
    text = ['[superlink]\ndefault = "hub"\n\n[superlink.hub]\n']
    text += [f"{name} = {json.dumps(value)}\n" for name, value in lines.items()]
    write_bytes(home / "config.toml", "".join(text).encode())
