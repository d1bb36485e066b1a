"""A federation of real processes on this machine: a hub's SuperLink, and a node and relay a site.

Every process is known by a token in its environment, so that a test can look for what is left.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elsewhere import NAMES, make_sites
from no_network import NOTED

from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.deploy.register import link_of
from dprbft.engines.deploy.settings import Hub, flower_hub
from dprbft.engines.flower.carrier import FlowerCarrier
from dprbft.engines.flower.hub import free_port

ROOT = Path(__file__).parents[2]
REPEATABLE = ROOT / "tests" / "flower" / "repeatable"
TOKEN = "PANAS_TEST_FEDERATION"
METRICS = "metrics.sock"  # in the hub's folder, and in each site's


@dataclass
class Federation:
    """Folders of a deployment, and processes that serve them."""

    folder: Path
    epsilon: float = 8.0  # of each site, for all runs
    names: Sequence[str] = NAMES
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    first: tuple[str, ...] = ()  # of the Python path of what is started from now on
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The deployment."""
        return self.folder / "deployment"

    @property
    def tried(self) -> Path:
        """Where a process that tries to reach another machine is noted."""
        return self.folder / "tried"

    @property
    def hub(self) -> Hub:
        """The hub's settings."""
        return flower_hub(self.out / "hub")

    @property
    def hub_file(self) -> Path:
        """The hub's settings, as a file."""
        return self.out / "hub" / "hub.toml"

    @property
    def sites(self) -> dict[str, Path]:
        """The sites' folders."""
        return {name: self.out / "sites" / name for name in self.names}

    def make(self) -> None:
        """Write the folders; each site has digits of its own."""
        make_deployment(self.out, Deployment(sites=self.names, port=free_port()))
        for name, made in make_sites(self.folder).items():
            shutil.copytree(made, self.sites[name], dirs_exist_ok=True)
            settings = self.sites[name] / "site.toml"
            text = settings.read_text().replace("epsilon = 8.0", f"epsilon = {self.epsilon}")
            settings.write_text(f'metrics = "{METRICS}"\n{text}')
        text = self.hub_file.read_text()
        self.hub_file.write_text(text.replace("[keys]", f'metrics = "{METRICS}"\n\n[keys]'))

    def log(self, name: str) -> str:
        """What a process has written so far."""
        return (self.folder / f"{name}.log").read_text()

    def start_hub(self) -> None:
        """Start the hub's SuperLink, and wait until it knows the sites' keys."""
        known = self.hub.home / "nodes.json"
        known.unlink(missing_ok=True)
        self.start("hub", "deploy", "start", "--hub", str(self.out / "hub"))
        wait_for(known.exists)

    def start_site(self, name: str) -> None:
        """Start a site's node and relay."""
        self.start(name, "deploy", "start", "--site", str(self.sites[name]))

    def start(self, name: str, *arguments: str, module: str = "panas_cli") -> None:
        """Start a command in a session of its own, with repeatable noise."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )

    def environment(self) -> dict[str, str]:
        """Of all processes: repeatable noise, one thread, no other machine, and a home that nobody
        can write to, not even root."""
        path = os.pathsep.join(
            (*self.first, str(REPEATABLE), str(ROOT), str(ROOT / "tests" / "helpers"))
        )
        own = {
            "PYTHONPATH": path,
            TOKEN: self.token,
            "HOME": f"{os.devnull}/home",
            "PANAS_STATE": str(self.folder / "state"),
            NOTED: str(self.tried),
            "FLWR_HOME": str(self.folder / "flower"),
            "OMP_NUM_THREADS": "1",
        }
        return {**os.environ, **own}

    def carrier(self, **more: Any) -> FlowerCarrier:
        """Of the hub, in this process."""
        return FlowerCarrier(link_of(self.hub), **more)

    def processes(self, *words: str) -> list[int]:
        """Of this federation, those whose command has all of these words."""
        return [pid for pid, command in alive(self.token) if all(w in command for w in words)]

    def stop(self, name: str) -> int:
        """End a command as an administrator would; returns its exit code."""
        process = self.running.pop(name)
        process.terminate()
        return process.wait(40)

    def kill(self, name: str) -> None:
        """End the process of a command and none that it has started; returns once they are gone."""
        process = self.running.pop(name)
        process.kill()
        process.wait()
        wait_for(lambda: not self.processes(str(self.sites[name])), 30)

    def close(self) -> list[str]:
        """End everything; returns the commands of what had to be killed."""
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
        for process in self.running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
        self.running.clear()
        with suppress(TimeoutError):
            wait_for(lambda: not alive(self.token), 8)
        left = alive(self.token)
        for pid, _ in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return [command for _, command in left]


@contextmanager
def federation(folder: Path, *, epsilon: float = 8.0) -> Iterator[Federation]:
    """A federation whose hub and sites are up; all of it ends, and nothing may be left."""
    made = Federation(folder, epsilon)
    made.make()
    try:
        made.start_hub()
        for name in made.names:
            made.start_site(name)
        for site in made.sites.values():
            wait_for(lambda site=site: (site / "node.sock").exists())
        yield made
    finally:
        left = made.close()
    assert left == []
    assert not made.tried.exists(), made.tried.read_text()


def wait_for(holds: Callable[[], Any], seconds: float = 240.0) -> None:
    """Wait until something holds; TimeoutError if it does not in that time."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError("what a test waits for did not come")
        time.sleep(0.1)


def is_running(process: int) -> bool:
    """Whether a process is there, and is not merely waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def alive(token: str) -> list[tuple[int, str]]:
    """Processes, and their commands, that have this token in their environment."""
    mark, result = f"{TOKEN}={token}".encode(), list[tuple[int, str]]()
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and mark in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                result.append((int(process.name), command))
    return result
