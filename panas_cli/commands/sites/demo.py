"""`panas deploy demo`: a hub and three sites on this machine, by the commands of a deployment.

Every site has its own folder, node and relay, each a process of its own; the hub's SuperLink
answers by TLS on loopback, and lets in registered keys alone. All of it is removed in the end.
"""

import json
import os
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

from dprbft.engines.flower.hub import free_port
from dprbft.engines.node.call import SOCKET
from dprbft.engines.node.daemon import LOG
from panas.runtime.errors import PanasError
from panas_cli.text.printing import print_text

NAMES = ("north", "south", "west")
EACH, PUBLIC = 120, 90
UP = 120.0
"""Seconds in which a part of the demonstration must be up."""
SMALL = (
    *("search.population=2", "search.generations=0", "search.epochs=1", "search.max_blocks=3"),
    *("search.student_steps=50", "training.student_steps=50"),
    *("network.width=16", "network.features=16", "tuning.trials=0", "federation.baselines=false"),
    *("privacy.network=stays", "privacy.delta=1e-4"),
)
"""Settings with which a run takes seconds, and shows the way alone."""


def demo() -> None:
    """Show a federation of processes from nothing to its end; PanasError if a part fails."""
    with tempfile.TemporaryDirectory(prefix="panas-demo-") as name, ExitStack() as running:
        folder = Path(name)
        _share_out_digits(folder)
        out = folder / "federation"
        sites = {name: out / "sites" / name for name in NAMES}
        wanted = ("--sites", ",".join(NAMES), "--port", str(free_port()), "--out", str(out))
        _panas(folder, "deploy", "init", *wanted)
        for name, site in sites.items():
            data = ("--data", str(folder / f"{name}.npz"))
            budget = ("--epsilon", "8", "--delta", "1e-4")
            _panas(folder, "site", "init", str(site), "--name", name, *data, *budget)
        running.enter_context(_started(folder, "hub", out / "hub"))
        _wait_for(folder, "hub", out / "hub" / "flower" / "nodes.json")
        for name, site in sites.items():
            running.enter_context(_started(folder, name, site))
        for name, site in sites.items():
            _wait_for(folder, name, site / SOCKET)
        run = folder / "run"
        reach = ("--hub", str(out / "hub"), "--public-data", str(folder / "public.npz"))
        options = [word for setting in SMALL for word in ("--set", setting)]
        _panas(folder, "run", *reach, "--epsilon", "4", "--out", str(run), *options, shown=6)
        print_text("\nWhat the hub sees:")
        _panas(folder, "deploy", "status", "--hub", str(out / "hub"), "--run", str(run))
        for name, site in sites.items():
            _show_site(folder, name, site)
        print_text("\nEnding the hub and the sites, and removing their folders.")


def _show_site(folder: Path, name: str, site: Path) -> None:
    print_text(f"\nWhat {name} sees: what it was asked, by whom, and what that has cost")
    for line in (site / LOG).read_text().splitlines():
        record = json.loads(line)
        print_text(
            f"  {record['verb']} of {record['run']}: {record['code']}, {record['seconds']:.1f} s"
        )
    _panas(folder, "deploy", "status", "--site", str(site))


def _share_out_digits(folder: Path) -> None:
    x, y = load_digits(return_X_y=True)
    images, order = (x.reshape(-1, 8, 8) * 15).astype(np.uint8), np.random.default_rng(0)
    rows = order.permutation(len(y))
    for i, name in enumerate(NAMES):
        part = rows[PUBLIC + i * EACH : PUBLIC + (i + 1) * EACH]
        np.savez(folder / f"{name}.npz", x=images[part], y=y[part])
    np.savez(folder / "public.npz", x=images[rows[:PUBLIC]], y=y[rows[:PUBLIC]])


def _panas(folder: Path, *arguments: str, shown: int = 8) -> None:
    words = [word.replace(f"{folder}{os.sep}", "") for word in arguments]
    more = " ..." if len(words) > shown else ""
    print_text(f"\n$ panas {' '.join(words[:shown])}{more}")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", "panas_cli", *arguments], check=False)
    if done.returncode:
        raise PanasError(f"expected `panas {words[0]}` to end with 0, got {done.returncode}")


@contextmanager
def _started(folder: Path, name: str, home: Path) -> Iterator[None]:
    """A start script, with all that it starts, for as long as it is needed."""
    print_text(f"\n$ {home.relative_to(folder)}/start.sh &")
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(home / "start.sh")],
            env={**os.environ, "PANAS": _program()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _program() -> str:
    """The command that start scripts call: this installation, whatever is on PATH."""
    return str(Path(sys.executable).with_name("panas"))


def _wait_for(folder: Path, name: str, file: Path) -> None:
    until = time.monotonic() + UP
    while not file.exists():
        if time.monotonic() > until:
            texts: Sequence[str] = (folder / f"{name}.log").read_text().splitlines()[-1:]
            raise PanasError(f"expected {name} within {UP:g} s, got none; {''.join(texts)}")
        time.sleep(0.2)
