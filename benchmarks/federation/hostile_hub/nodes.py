"""A site's node: in a process of its own, as `panas node` starts it, or in this one.

The address space of a process is bounded: a request that asks for more memory ends there.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.hostile_hub.sites import state_of
from dprbft.engines.frames import Answer
from dprbft.engines.node.call import ask
from dprbft.engines.node.daemon import LOG, Node
from dprbft.messages import Code
from dprbft.paths import ledger_file
from dprbft.site.directory import read_site
from panas.runtime.errors import BadInput

PATIENCE = 120.0
"""Seconds that a node has to start."""
ROOM = 6 << 30
"""Bytes of address space, most of which libraries map and never use."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Heard:
    """What a node did with a frame; `code` is "closed" where it hung up, "late" where it worked
    on."""

    code: str
    size: int
    seconds: float
    cpu: float  # seconds of its processor time
    reason: str = ""  # of its owner's log
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = " < ".join(self.trace[::-1][:4])
        said = f"{self.code}, {self.size} bytes, {self.cpu:.2f} s"
        return f"{said}: {self.reason[:300]} {where}".strip()


@dataclass
class Owned:
    """What a site's owner has of its node: the ledger and the log."""

    site: Path
    _log_at: int = 0

    @property
    def ledger(self) -> bytes:
        """Its ledger as it is."""
        path = ledger_file(self.site)
        return path.read_bytes() if path.exists() else b""

    @property
    def ledger_size(self) -> int:
        """Bytes of its ledger."""
        path = ledger_file(self.site)
        return path.stat().st_size if path.exists() else 0

    def noted(self) -> dict[str, Any]:
        """The last line of the log since it was read."""
        path, last = self.site / LOG, dict[str, Any]()
        with suppress(OSError):
            if path.stat().st_size < self._log_at:
                self._log_at = 0  # it was put aside
            with path.open("rb") as file:
                file.seek(self._log_at)
                for line in file:
                    if line.endswith(b"\n"):
                        self._log_at += len(line)
                        last = json.loads(line)
        return last

    def heard(self, answer: bytes | None, code: str, seconds: float, cpu: float) -> Heard:
        """What came of a frame; of no answer, `code` says why."""
        size = 0
        with suppress(BadInput):
            result = Answer.from_bytes(answer or b"")
            code, size = Code(result.code).name, len(result.content)
        record = self.noted()
        reason = " ".join(str(record.get(k, "")) for k in ("code", "reason")).strip()
        return Heard(code, size, seconds, cpu, reason, tuple(record.get("trace", ())))


class AnyNode(Protocol):
    """A node that can be asked."""

    owned: Owned

    def start(self) -> None:
        """Begin to serve."""

    def wait(self) -> None:
        """Return once it serves."""

    def heard(self, frame: bytes, seconds: float) -> Heard:
        """Ask it."""

    def memory(self) -> int:
        """Bytes that it holds."""

    @property
    def peak(self) -> int:
        """Bytes that it has held at most."""

    def alive(self) -> bool:
        """Whether it serves still."""

    def kill(self) -> None:
        """End it."""


@dataclass
class NodeHere:
    """A node of this process, for tests; what it does not answer in time stays unanswered."""

    owned: Owned
    node: Node | None = None

    def start(self) -> None:
        """As `AnyNode.start`."""
        self.node = Node({read_site(self.owned.site).name: self.owned.site})

    def wait(self) -> None:
        """As `AnyNode.wait`."""

    def heard(self, frame: bytes, seconds: float) -> Heard:
        """As `AnyNode.heard`; `seconds` bounds nothing."""
        assert self.node is not None
        os.environ["PANAS_STATE"] = str(state_of(self.owned.site))
        begun, before = time.monotonic(), time.thread_time()
        answer = self.node.answer(frame)
        used, took = time.thread_time() - before, time.monotonic() - begun
        return self.owned.heard(answer, "closed", took, used)

    def memory(self) -> int:
        """As `AnyNode.memory`, of this whole process."""
        return _memory(os.getpid(), "VmRSS")

    @property
    def peak(self) -> int:
        """As `AnyNode.peak`, of this whole process."""
        return _memory(os.getpid(), "VmHWM")

    def alive(self) -> bool:
        """As `AnyNode.alive`."""
        return True

    def kill(self) -> None:
        """As `AnyNode.kill`."""
        self.node = None


@dataclass
class NodeProcess:
    """A node that serves one site, started again where it was killed."""

    owned: Owned
    socket: Path
    process: subprocess.Popen[bytes] | None = None
    peaks: list[int] = field(default_factory=list)  # bytes, of each process that was killed

    def start(self) -> None:
        """Start it, and wait until it answers."""
        own = {"PANAS_STATE": str(state_of(self.owned.site)), "OMP_NUM_THREADS": "1"}
        command = [
            "-m",
            "panas_cli",
            "node",
            "--site",
            str(self.owned.site),
            "--socket",
            str(self.socket),
        ]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.owned.site.parent / "stderr.txt").open("ab"),
            preexec_fn=_bounded,
        )

    def wait(self) -> None:
        """Wait until it listens; TimeoutError if it does not."""
        until = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError):
                ask(self.socket, b"no request", 5)
            if self.socket.exists():
                return
            if time.monotonic() > until or (self.process and self.process.poll() is not None):
                raise TimeoutError(f"the node of {self.owned.site} did not start")
            time.sleep(0.05)

    def heard(self, frame: bytes, seconds: float) -> Heard:
        """Ask it, and look at what its owner's log says of it."""
        begun, before = time.monotonic(), self.cpu()
        answer, code = None, "closed"
        try:
            answer = ask(self.socket, frame, seconds)
        except TimeoutError:
            code = "late"
        except (OSError, BadInput):
            pass
        return self.owned.heard(answer, code, time.monotonic() - begun, self.cpu() - before)

    def cpu(self) -> float:
        """Seconds of processor time so far; 0 once it has ended."""
        with suppress(OSError):
            if self.process:
                text = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
                return (int(text[11]) + int(text[12])) / TICKS
        return 0.0

    def memory(self) -> int:
        """As `AnyNode.memory`; 0 once it has ended."""
        return _memory(self.process.pid, "VmRSS") if self.process else 0

    @property
    def peak(self) -> int:
        """As `AnyNode.peak`, of any of its processes."""
        now = _memory(self.process.pid, "VmHWM") if self.process else 0
        return max([*self.peaks, now])

    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End it at once."""
        if self.process:
            self.peaks.append(self.peak)
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
        self.socket.unlink(missing_ok=True)


def _memory(process: int, what: str) -> int:
    """Bytes of a line of a process's status; 0 once it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) << 10
    return 0


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))


@contextmanager
def running(nodes: tuple[AnyNode, ...]) -> Iterator[None]:
    """Nodes that answer; they end with the block."""
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait()
        yield
    finally:
        for node in nodes:
            node.kill()
