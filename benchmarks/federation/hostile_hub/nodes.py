"""A site's node in a process of its own, as an owner starts it: `panas node`.

Its address space is bounded, so that a request which asks for more memory ends there.
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
from typing import Any

from dprbft.engines.frames import Answer
from dprbft.engines.node.call import ask
from dprbft.engines.node.daemon import LOG
from dprbft.messages import Code
from dprbft.paths import ledger_file
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
class NodeProcess:
    """A node that serves one site, started again where it was killed."""

    site: Path
    socket: Path
    state: Path  # its owner's state folder
    process: subprocess.Popen[bytes] | None = None
    _log_at: int = 0
    peaks: list[int] = field(default_factory=list)  # bytes, of each process that was killed

    def start(self) -> None:
        """Start it, and wait until it answers."""
        own = {"PANAS_STATE": str(self.state), "OMP_NUM_THREADS": "1"}
        command = [
            "-m",
            "panas_cli",
            "node",
            "--site",
            str(self.site),
            "--socket",
            str(self.socket),
        ]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.site.parent / "stderr.txt").open("ab"),
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
                raise TimeoutError(f"the node of {self.site} did not start")
            time.sleep(0.05)

    def heard(self, frame: bytes, seconds: float) -> Heard:
        """Ask it, and look at what its owner's log says of it."""
        begun, before = time.monotonic(), self.cpu()
        try:
            answer = Answer.from_bytes(ask(self.socket, frame, seconds))
            code, size = Code(answer.code).name, len(answer.content)
        except TimeoutError:
            code, size = "late", 0
        except (OSError, BadInput, ValueError):
            code, size = "closed", 0
        took, used = time.monotonic() - begun, self.cpu() - before
        record = self._noted()
        reason = " ".join(str(record.get(k, "")) for k in ("code", "reason")).strip()
        return Heard(code, size, took, used, reason, tuple(record.get("trace", ())))

    def cpu(self) -> float:
        """Seconds of processor time so far; 0 once it has ended."""
        with suppress(OSError):
            if self.process:
                text = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
                return (int(text[11]) + int(text[12])) / TICKS
        return 0.0

    def memory(self, what: str = "VmRSS") -> int:
        """Bytes that it holds, or of `VmHWM` has held at most."""
        with suppress(OSError):
            if self.process:
                for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                    if line.startswith(what):
                        return int(line.split()[1]) << 10
        return 0

    @property
    def peak(self) -> int:
        """Bytes at most, of any of its processes."""
        return max([*self.peaks, self.memory("VmHWM")])

    def _noted(self) -> dict[str, Any]:
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


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))


@contextmanager
def running(nodes: tuple[NodeProcess, ...]) -> Iterator[None]:
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
