"""A small federation over a slow link: a hub and two sites, each in a network of its own.

    python -m benchmarks.slow_link [--rate 1e6] [--delay 300] [--loss 5]

As root, on Linux with iproute2. Each machine is a network namespace; from each site a link leads to
the hub, of two TUN devices. This process carries packets between them: it limits their rate, holds
them for half of the delay each way, and drops some. TCP on both sides does the rest. It prints
seconds, and whether the run has finished: over links without limits first, then over slow ones.
"""

import argparse
import fcntl
import json
import math
import os
import queue
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HUB = "10.87.0.1"
SITES = {"north": "10.87.0.2", "south": "10.87.0.3"}
MTU, QUEUE = 1 << 16, 500  # bytes of a packet, and packets that wait for a line, at most
SET_TUN, TUN_OF_PACKETS = 0x400454CA, 0x1001  # TUNSETIFF; IFF_TUN | IFF_NO_PI
PANAS = (sys.executable, "-m", "panas_cli")


def execute(*words: str) -> None:
    """Run a command; CalledProcessError if it fails."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def inside(name: str, *words: str) -> list[str]:
    """A command in the namespace of a machine."""
    return ["ip", "netns", "exec", f"panas-{name}", *words]


@dataclass(frozen=True)
class Way:
    """What a link does to packets, in each direction."""

    rate: float = math.inf  # bits a second
    seconds: float = 0.0  # on the way
    loss: float = 0.0  # share of packets

    def carry(self, source: int, sink: int, seed: int) -> None:
        """Pass packets on, in their order, until a device is gone."""
        chance, waiting = random.Random(seed), queue.Queue[tuple[float, bytes]](QUEUE)
        threading.Thread(target=_deliver, args=(waiting, sink), daemon=True).start()
        free = 0.0  # when the line has sent what came before
        with suppress(OSError):
            while packet := os.read(source, MTU):
                if chance.random() < self.loss:
                    continue
                free = max(free, time.monotonic()) + 8 * len(packet) / self.rate
                with suppress(queue.Full):  # as a router that has no room
                    waiting.put_nowait((free + self.seconds, packet))


def _deliver(waiting: "queue.Queue[tuple[float, bytes]]", sink: int) -> None:
    with suppress(OSError):
        while True:
            due, packet = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            os.write(sink, packet)


def device(name: str) -> int:
    """A new TUN device, of IP packets alone; the file through which they pass."""
    file = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(file, SET_TUN, struct.pack("16sH", name.encode(), TUN_OF_PACKETS))
    return file


@contextmanager
def networks(way: Way) -> Iterator[None]:
    """The namespaces of hub and sites, and the links between them."""
    files = list[int]()
    try:
        for name in ("hub", *SITES):
            execute("ip", "netns", "add", f"panas-{name}")
            execute(*inside(name, "ip", "link", "set", "lo", "up"))
        execute(*inside("hub", "ip", "address", "add", f"{HUB}/32", "dev", "lo"))
        for name, address in SITES.items():
            ends = {name: (address, HUB), "hub": (HUB, address)}
            for place, (own, other) in ends.items():
                tun = f"{name[:8]}-{place[:4]}"
                files.append(device(tun))
                execute("ip", "link", "set", tun, "netns", f"panas-{place}")
                execute(*inside(place, "ip", "address", "add", f"{own}/32", "dev", tun))
                execute(*inside(place, "ip", "link", "set", tun, "up"))
                execute(*inside(place, "ip", "route", "add", f"{other}/32", "dev", tun))
            for seed, pair in enumerate((files[-2:], files[:-3:-1])):
                threading.Thread(target=way.carry, args=(*pair, seed), daemon=True).start()
        yield
    finally:
        for file in files:
            os.close(file)
        for name in ("hub", *SITES):
            subprocess.run(["ip", "netns", "del", f"panas-{name}"], stderr=subprocess.DEVNULL)


@contextmanager
def started(name: str, log: Path, *words: str) -> Iterator[None]:
    """A process on a machine, ended with all that it has started."""
    with log.open("wb") as out:
        process = subprocess.Popen(inside(name, *words), stdout=out, stderr=out)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def make(folder: Path) -> None:
    """The deployment, the sites' data and public data."""
    names = ",".join(SITES)
    execute(*PANAS, "deploy", "init", "--sites", names, "--host", HUB, "--out", str(folder / "all"))
    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8) * 15).astype(np.uint8)
    for i, name in enumerate((*SITES, "public")):
        part = slice(300 * i, 300 * (i + 1))
        np.savez(folder / f"{name}.npz", x=images[part], y=y[part])
    for name in SITES:
        site, data = str(folder / "all" / "sites" / name), str(folder / f"{name}.npz")
        execute(*PANAS, "site", "init", site, "--data", data, "--epsilon", "8", "--delta", "1e-4")


def connected(hub: Path, seconds: float) -> float:
    """Seconds until both sites are connected; TimeoutError if that takes too long."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        words = [*PANAS, "deploy", "status", "--hub", str(hub), "--json"]
        done = subprocess.run(inside("hub", *words), capture_output=True, text=True)
        states = json.loads(done.stdout)["connected"] if done.returncode == 0 else {}
        if states and set(states.values()) == {"online"}:
            return time.monotonic() - begun
        time.sleep(2)
    raise TimeoutError(f"expected both sites within {seconds:g} s")


def measured(way: Way, seconds: float) -> dict[str, object]:
    """Connect over such links, and lead a run."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        folder = Path(name)
        os.environ["PANAS_STATE"] = str(folder / "state")
        make(folder)
        hub = folder / "all" / "hub"
        held.enter_context(networks(way))
        start = [*PANAS, "deploy", "start"]
        held.enter_context(started("hub", folder / "hub.log", *start, "--hub", str(hub)))
        for site in SITES:
            where = str(folder / "all" / "sites" / site)
            held.enter_context(started(site, folder / f"{site}.log", *start, "--site", where))
        waited, begun = connected(hub, seconds), time.monotonic()
        run = [*PANAS, "run", "--hub", str(hub), "--public-data", str(folder / "public.npz")]
        run += ["--out", str(folder / "run"), "--epsilon", "4", "--delta", "1e-4"]
        run += ["--set", "search.population=2", "--set", "search.generations=0"]
        run += ["--set", "tuning.trials=0", "--set", 'privacy.network="stays"']
        run += ["--set", "data.public_labels=20"]
        done = subprocess.run(inside("hub", *run), capture_output=True, text=True)
        summary = folder / "run" / "summary.json"
        finished = summary.is_file() and json.loads(summary.read_text())["finished"]
        return {
            "link": str(way),
            "seconds_to_connect": round(waited, 1),
            "seconds_of_run": round(time.monotonic() - begun, 1),
            "finished": finished,
            "said": done.stderr.strip().splitlines()[-1:] if done.returncode else [],
        }


def main() -> None:
    """Measure, and print one JSON object a link."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=1e6, help="bits a second, each way")
    parser.add_argument("--delay", type=float, default=300.0, help="ms, there and back")
    parser.add_argument("--loss", type=float, default=5.0, help="percent of packets, each way")
    parser.add_argument("--seconds", type=float, default=300.0, help="to wait for the sites")
    given = parser.parse_args()
    if os.geteuid() or not shutil.which("ip") or not Path("/dev/net/tun").exists():
        sys.exit("expected root, iproute2 and /dev/net/tun, which make networks; see the docstring")
    slow = Way(given.rate, given.delay / 2000, given.loss / 100)
    for way in (Way(), slow):
        sys.stdout.write(json.dumps(measured(way, given.seconds)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
