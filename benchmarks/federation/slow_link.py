"""A small federation over a slow link: a hub and two sites, each in a network of its own.

`python -m benchmarks.slow_link` (as root, on Linux with iproute2) makes a network namespace a
machine, joins them by a bridge, and lets `tc netem` limit, delay and lose packets on the way of
each site, in both directions. It prints seconds, and whether the run has finished.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HUB = "10.87.0.1"
SITES = {"north": "10.87.0.2", "south": "10.87.0.3"}
PANAS = (sys.executable, "-m", "panas_cli")


def execute(*words: str) -> None:
    """Run a command; CalledProcessError if it fails."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def inside(name: str, *words: str) -> list[str]:
    """A command in the namespace of a machine."""
    return ["ip", "netns", "exec", f"panas-{name}", *words]


@contextmanager
def networks(link: Sequence[str]) -> Iterator[None]:
    """The namespaces of hub and sites; `link` is what netem does on the way from and to a site."""
    addresses = {"hub": HUB, **SITES}
    try:
        execute("ip", "netns", "add", "panas-bridge")
        execute(*inside("bridge", "ip", "link", "add", "br0", "type", "bridge"))
        execute(*inside("bridge", "ip", "link", "set", "br0", "up"))
        for name, address in addresses.items():
            execute("ip", "netns", "add", f"panas-{name}")
            peer = ["peer", "name", name, "netns", "panas-bridge"]
            execute(*inside(name, "ip", "link", "add", "out", "type", "veth", *peer))
            execute(*inside(name, "ip", "address", "add", f"{address}/24", "dev", "out"))
            for device in ("lo", "out"):
                execute(*inside(name, "ip", "link", "set", device, "up"))
            execute(*inside("bridge", "ip", "link", "set", name, "master", "br0", "up"))
            if name != "hub":
                for where, device in ((name, "out"), ("bridge", name)) if link else ():
                    netem = ["qdisc", "add", "dev", device, "root", "netem", *link]
                    execute(*inside(where, "tc", *netem))
        yield
    finally:
        for name in ("bridge", *addresses):
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


def measured(link: Sequence[str], seconds: float) -> dict[str, object]:
    """Connect over such a link, and lead a run."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        folder = Path(name)
        os.environ["PANAS_STATE"] = str(folder / "state")
        make(folder)
        hub = folder / "all" / "hub"
        held.enter_context(networks(link))
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
        done = subprocess.run(inside("hub", *run), capture_output=True, text=True)
        summary = folder / "run" / "summary.json"
        finished = summary.is_file() and json.loads(summary.read_text())["finished"]
        return {
            "link": " ".join(link) or "as it is",
            "seconds_to_connect": round(waited, 1),
            "seconds_of_run": round(time.monotonic() - begun, 1),
            "finished": finished,
            "said": done.stderr.strip().splitlines()[-1:] if done.returncode else [],
        }


def main() -> None:
    """Measure, and print one JSON object a link."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="1mbit")
    parser.add_argument("--delay", default="300ms", help="there and back")
    parser.add_argument("--loss", default="5%", help="of packets, each way")
    parser.add_argument("--seconds", type=float, default=300.0, help="to wait for the sites")
    given = parser.parse_args()
    if os.geteuid() or not shutil.which("tc"):
        sys.exit("expected root and iproute2's ip and tc, which make networks; start it with them")
    half = f"{float(given.delay.removesuffix('ms')) / 2:g}ms"
    slow = ["rate", given.rate, "delay", half, "loss", given.loss]
    for link in ([], slow):
        sys.stdout.write(json.dumps(measured(link, given.seconds)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
