"""Does a federation stand hours of faults? Four sites of real processes, killed, cut off, slowed.

    python -m benchmarks.soak [--rounds 500] [--hours 8] [--every 25] [--seed 0] [--work DIR]

A hub and four sites run as their units would run them: what ends is started again after 2 s. Runs
go on one after the other until so many rounds, or hours, are over: a run of `dprbft` with a
charge a round, then one of `joined` with a secure sum, and so on; one that ends early is resumed.
About every `--every` seconds one fault of these comes, at one site or the hub:

| fault | what is done |
|---|---|
| node, relay, hub, leader | SIGKILL to a site's node or relay, the SuperLink, or `panas run` |
| cut | the site's link is closed, and refused for 10 to 40 s |
| slow | for 60 s the site's link passes 20 kB/s, each part 300 ms late |
| full | the site's disk (a tmpfs, where root may mount one) is filled for 15 s |

At the end of each run, and of all, it looks at every ledger. A *double charge*: two of one run,
phase, mechanism and round. A *lost charge*: a release that a round records, and no charge for it.
It prints memory and disk at the first and last look, and for each kind of fault how many there
were, and the lines of the logs and of `panas run` that name them.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load import make
from dprbft.engines.deploy.settings import flower_hub
from dprbft.engines.flower.hub import free_port
from dprbft.paths import ledger_file, rounds_file, server_folder
from dprbft.server.records import RoundRecord, read_rounds
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger

SITES, EACH = 4, 150
AGAIN = 2.0  # seconds after which a unit starts anew
DISK = "64m"  # of a site
ROUNDS = 40  # of a run of dprbft
MOST_REFUSED = 20  # times in turn that a run may find no hub
PANAS = (sys.executable, "-m", "panas_cli")
TINY = ("search.population=2", "search.generations=0", "tuning.trials=0")
MORE = {
    "dprbft": (f"federation.rounds={ROUNDS}",),
    "joined": ('privacy.network="stays"', "training.student_steps=200"),
}
NAMED: dict[str, str] = {
    "node": r"its node does not answer|its relay has gone|is not connected|ended with code -9",
    "relay": r"its relay has gone|is not connected|its connection ended|has not answered",
    "hub": r"the SuperLink|ServerApp has ended|expected a hub|ended with code -9|the hub at",
    "leader": r"resum|--resume",
    "cut": r"is not connected|its connection ended|its relay has gone|expected a hub|has not answ",
    "slow": r"has not answered|its answer came too late|is not connected|its connection ended",
    "full": r"could not be written|No space left|Error 28|its node|FAILED",
}
"""What names a fault, in the output of `panas run` or of a unit."""


@dataclass
class Unit:
    """A command that is started again whenever it ends, as systemd would."""

    name: str
    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        """Until the unit is stopped."""
        while not self.over.is_set():
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            self.process.wait()
            self.over.wait(AGAIN)

    def stop(self) -> None:
        """End it, and what it has started."""
        self.over.set()
        if self.process:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(40)


@dataclass
class Link:
    """A site's way to the hub: a port that passes bytes on, unless it is cut or slow."""

    hub: int
    port: int = field(default_factory=free_port)
    cut_until: float = 0.0
    slow_until: float = 0.0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self) -> None:
        """Listen until the loop ends."""
        await asyncio.start_server(self._pass, "localhost", self.port)
        while True:
            await asyncio.sleep(0.2)
            if time.monotonic() < self.cut_until:
                for writer in list(self.open):
                    writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if time.monotonic() < self.cut_until:
                raise ConnectionResetError
            there, onward = await asyncio.open_connection("localhost", self.hub)
        except OSError:
            writer.transport.abort()
            return
        self.open |= {writer, onward}
        try:
            await asyncio.gather(self._pump(reader, onward), self._pump(there, writer))
        except OSError:
            pass
        finally:
            self.open -= {writer, onward}
            for end in (writer, onward):
                end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while part := await source.read(4096):
            if time.monotonic() < self.slow_until:
                await asyncio.sleep(0.3 + len(part) / 20_000)
            sink.write(part)
            await sink.drain()
        sink.write_eof() if sink.can_write_eof() else sink.close()


class Soak:
    """The federation, its faults, and what was found."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.units, self.links = dict[str, Unit](), dict[str, Link]()
        self.faults = Counter[str]()
        self.leader: subprocess.Popen[bytes] | None = None
        self.told = folder / "runs.log"
        self.disks = list[Path]()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sites."""
        return tuple(self.links)

    def site(self, name: str) -> Path:
        """Its folder."""
        return self.folder / "all" / "sites" / name

    @contextmanager
    def up(self) -> Iterator[None]:
        """Make the deployment, and start all of it."""
        make(self.folder, SITES, EACH, epsilon=1e6)
        hub = flower_hub(self.folder / "all" / "hub")
        port = int(hub.local_address.rpartition(":")[2])
        with ExitStack() as held:
            for name in hub.settings.names:
                self.links[name] = Link(port)
                about = self.site(name) / "federation.json"
                content = json.loads(about.read_text())
                content["hub"] = f"localhost:{self.links[name].port}"
                about.write_text(json.dumps(content))
                held.callback(self._mounted(name))
            threading.Thread(target=self._pass_on, daemon=True).start()
            self._unit(held, "hub", "--hub", str(hub.folder))
            for name in self.names:
                self._unit(held, name, "--site", str(self.site(name)))
            yield

    def _mounted(self, name: str) -> Any:
        """Put a site's folder on a small disk of its own; returns what undoes it."""
        site, kept = self.site(name), self.folder / f"{name}.kept"
        shutil.copytree(site, kept, symlinks=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", str(site)]
        if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
            return lambda: None
        shutil.copytree(kept, site, dirs_exist_ok=True)
        self.disks.append(site)
        return lambda: subprocess.run(["umount", "-l", str(site)], check=False)

    def _unit(self, held: ExitStack, name: str, *arguments: str) -> None:
        unit = Unit(name, [*PANAS, "deploy", "start", *arguments], self.folder / f"{name}.log")
        self.units[name] = unit
        threading.Thread(target=unit.work, daemon=True).start()
        held.callback(unit.stop)

    def _pass_on(self) -> None:
        async def all_links() -> None:
            await asyncio.gather(*(link.serve() for link in self.links.values()))

        asyncio.run(all_links())

    def lead(self, number: int, until: float) -> bool:
        """One run, resumed until it ends by itself; False if time was over before."""
        method = ("dprbft", "joined")[number % 2]
        run = self.folder / "all" / "hub" / "runs" / f"{number:03d}-{method}"
        command = [*PANAS, "run", "--hub", str(self.folder / "all" / "hub"), "--out", str(run)]
        command += ["--public-data", str(self.folder / "public.npz"), "--method", method]
        command += ["--epsilon", "8", "--delta", "1e-4"]
        command += [word for setting in (*TINY, *MORE[method]) for word in ("--set", setting)]
        resume = [*PANAS, "run", "--hub", str(self.folder / "all" / "hub"), "--out", str(run)]
        refused = 0
        while time.monotonic() < until:
            words = [*resume, "--resume"] if (run / "config.toml").exists() else command
            with self.told.open("ab") as log:
                log.write(f"\n== {run.name} at {time.strftime('%H:%M:%S')}\n".encode())
                log.flush()
                leader = self.leader = subprocess.Popen(words, stdout=log, stderr=log)
            code, self.leader = leader.wait(), None
            if code == 0:
                return True
            refused += code == 2 and not (run / "config.toml").exists()  # a fault, at first
            if refused == MOST_REFUSED:
                raise RuntimeError(f"{shlex.join(command)} was refused; see {self.told}")
            time.sleep(3)
        return False

    def fault(self) -> None:
        """One fault, drawn at random."""
        kinds = ["node", "relay", "hub", "leader", "cut", "slow", *(["full"] * bool(self.disks))]
        kind, name = str(self.rng.choice(kinds)), str(self.rng.choice(self.names))
        site = str(self.site(name))
        if kind == "hub":
            done = self._kill("dprbft.engines.flower.hub", str(self.folder))
        elif kind == "leader":
            done = bool(self.leader and self.leader.poll() is None)
            if done and self.leader:
                self.leader.kill()
        elif kind in ("node", "relay"):
            done = self._kill("dprbft.engines.flower.site" if kind == "relay" else "node", site)
        else:
            done = True
            if kind == "cut":
                self.links[name].cut_until = time.monotonic() + self.rng.uniform(10, 40)
            elif kind == "slow":
                self.links[name].slow_until = time.monotonic() + 60
            else:
                threading.Thread(target=_fill, args=(self.site(name),), daemon=True).start()
        if done:
            self.faults[kind] += 1
            with (self.folder / "faults.log").open("a") as log:
                log.write(f"{time.strftime('%H:%M:%S')} {kind} {name}\n")

    def _kill(self, *words: str) -> bool:
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                command = (entry / "cmdline").read_bytes().decode().split("\0")
                own = command[0] == sys.executable and "start" not in command
                if own and words[0] in command and words[1] in " ".join(command):
                    os.kill(int(entry.name), signal.SIGKILL)
                    return True
        return False

    def checked(self) -> dict[str, Any]:
        """Rounds so far, and what is wrong in the ledgers."""
        runs = sorted((self.folder / "all" / "hub" / "runs").glob("*"))
        told = {run.name: read_rounds(server_folder(run)) for run in runs if _has_rounds(run)}
        made = {name: self._charges(name) for name in self.names}
        double, lost = wrong(made, told)
        return {
            "rounds": sum(r.round > 0 for records in told.values() for r in records),
            "charges": sum(map(len, made.values())),
            "double": double,
            "lost": lost,
        }

    def _charges(self, name: str) -> list[Charge]:
        ledger = Ledger(ledger_file(self.site(name)))
        return [e.charge for e in ledger.account().entries] if ledger.path.exists() else []

    def sizes(self) -> dict[str, float]:
        """Megabytes: memory by kind of process, and disk without the runs at the hub."""
        result = Counter[str]()
        kinds = {"panas_cli": "node", "dprbft.engines.flower.site": "relay"}
        kinds["dprbft.engines.flower.hub"] = "hub"
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                command = (entry / "cmdline").read_bytes().decode().split("\0")
                if str(self.folder) not in " ".join(command) or "run" in command:
                    continue
                pages = int((entry / "statm").read_text().split()[1])
                kind = next((k for word, k in kinds.items() if word in command), "")
                if kind and "start" not in command:
                    result[kind] += pages * os.sysconf("SC_PAGE_SIZE") // 1000
        for name, place in {"sites": "all/sites", "hub": "all/hub/flower"}.items():
            files = [p for p in (self.folder / place).rglob("*") if p.is_file()]
            result[f"disk of {name}"] = sum(p.stat().st_size for p in files) // 1000
        return {name: round(kb / 1000, 1) for name, kb in sorted(result.items())}

    def naming(self) -> dict[str, int]:
        """Lines that name each kind of fault."""
        logs = [self.told, *self.folder.glob("*.log"), *(self.folder / "all").rglob("node.log")]
        text = [line for log in {*logs} - {self.folder / "faults.log"} for line in _lines(log)]
        return {kind: sum(bool(re.search(p, x)) for x in text) for kind, p in NAMED.items()}


def wrong(
    made: Mapping[str, Sequence[Charge]], told: Mapping[str, Sequence[RoundRecord]]
) -> tuple[list[str], list[str]]:
    """Double charges, and lost ones.

    Args:
        made: what each site's ledger was charged for, by site, in the order of the hub's numbers.
        told: rounds by run, as the hub has them.
    """
    double, lost = list[str](), list[str]()
    for at, (name, charges) in enumerate(made.items()):
        keys = Counter((c.run, c.phase, c.mechanism, c.round) for c in charges)
        double += [f"{name}: {key}" for key, n in keys.items() if n > 1]
        paid = {(c.run, c.round) for c in charges}
        lost += [
            f"{name}: {run}, round {r.round}"
            for run, records in told.items()
            for r in records
            if r.round and at in r.sites and not {(run, r.round), (run, None)} & paid
        ]
    return double, lost


def _has_rounds(run: Path) -> bool:
    return rounds_file(server_folder(run)).is_file()


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines() if log.is_file() else []


def _fill(site: Path) -> None:
    """Leave no room on a site's disk for a while."""
    filler = site / "filler"
    with suppress(OSError), filler.open("wb") as out:
        while True:
            out.write(bytes(1 << 16))
            out.flush()
    time.sleep(15)
    filler.unlink(missing_ok=True)


def main() -> None:
    """Soak, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--every", type=float, default=25.0, help="seconds between faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="keeps logs, runs and ledgers")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (a.work or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {"PANAS_STATE": str(folder / "state"), "OMP_NUM_THREADS": "1"}
        begun = time.monotonic()
        until, soak, over = begun + 3600 * a.hours, Soak(folder, a.seed), threading.Event()

        def trouble() -> None:
            while not over.wait(soak.rng.exponential(a.every)):
                soak.fault()

        with soak.up():
            runs, sizes = 0, list[dict[str, float]]()
            threading.Thread(target=trouble, daemon=True).start()
            found: dict[str, Any] = {"rounds": 0}
            while found["rounds"] < a.rounds and soak.lead(runs, until):
                runs, found = runs + 1, soak.checked()
                sizes.append(soak.sizes())
                _say({"run": runs, **found, **sizes[-1]})
            over.set()
            found = soak.checked()
        _say(
            {
                "runs": runs,
                "hours": round((time.monotonic() - begun) / 3600, 2),
                **found,
                "faults": dict(soak.faults),
                "lines that name them": soak.naming(),
                "megabytes first": sizes[0] if sizes else {},
                "megabytes last": sizes[-1] if sizes else {},
            }
        )


def _say(about: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(about) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
