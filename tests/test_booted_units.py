"""The systemd units, started by systemd in their sandboxes: a hub and two sites join."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from booted import USER, Booted, booted, why_not
from sklearn.datasets import load_digits

from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.flower.hub import free_port

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
ROOT = Path(__file__).resolve().parents[1]
SITES, HERE = ("north", "south"), "/srv/panas"
UNITS = tuple(f"panas-{name}.service" for name in ("hub", *SITES))


def waited(log: Path, said: str, system: Booted, times: int = 1) -> None:
    """Until a log has said something so often."""
    until = time.monotonic() + 120
    while not log.is_file() or log.read_text().count(said) < times:
        if time.monotonic() > until:
            told = [system.systemctl("status", "--no-pager", name) for name in UNITS]
            pytest.fail("\n".join([*told, log.read_text() if log.is_file() else "no log"]))
        time.sleep(1)


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    """What `/srv/panas` is on a machine that has a hub and two sites."""
    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8) * 15).astype(np.uint8)
    make_deployment(tmp_path / "f", Deployment(sites=SITES, port=free_port()))
    shared = tmp_path / "boot" / "shared"
    shared.parent.mkdir()
    (tmp_path / "f").rename(shared)
    np.savez(shared / "hub" / "public.npz", x=images[:60], y=y[:60])
    for i, name in enumerate(SITES):
        site = (shared / "sites" / name).rename(shared / name)
        part = slice(100 + 300 * i, 400 + 300 * i)
        np.savez(site / "own.npz", x=images[part], y=y[part])
    command = shared / "venv" / "bin" / "panas"
    command.parent.mkdir(parents=True)
    own = f"PYTHONPATH={ROOT} OMP_NUM_THREADS=1"  # all are on one machine
    python = f"{own} exec {sys.executable} -m panas_cli"
    command.write_text(f'#!/bin/sh\n{python} "$@"\n')
    command.chmod(0o755)
    return shared


def unit(folder: Path) -> str:
    """A folder's unit, which writes to a log."""
    (written,) = folder.glob("panas-*.service")
    log = f"StandardOutput=append:{HERE}/{folder.name}.log\n"
    return written.read_text().replace("\nUMask", f"\n{log}{log.replace('Output', 'Error')}UMask")


def test_units_start_in_their_sandboxes_join_come_back_and_stop(deployed: Path):
    tiny = ("search.population=2", "search.generations=0", "tuning.trials=0")
    few = ("training.student_steps=50", "data.public_labels=20", "'privacy.network=\"stays\"'")
    more = " ".join(f"--set {each}" for each in (*tiny, *few))
    run = f"run --hub . --public-data public.npz --out first --epsilon 4 --delta 1e-5 {more}"
    units = {name: unit(deployed / name[6:-8]) for name in UNITS}
    with booted(deployed.parent, units, HERE) as system:
        for name in SITES:
            init = f"site init {name} --data {name}/own.npz --epsilon 8 --delta 1e-4"
            said = system.as_user(f"cd {HERE} && PANAS_STATE=/tmp venv/bin/panas {init}")
            assert "ask for 8.000" in said, said
        system.systemctl("enable", "--now", *UNITS)
        waited(deployed / "hub.log", "the hub is ready", system)
        for name in SITES:
            waited(deployed / f"{name}.log", "answers at", system)
        for name in UNITS:
            status = system.status(name)
            assert status["Seccomp"] == "2", name  # a filter of system calls
            assert status["NoNewPrivs"] == "1"
            assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
            assert set(status["Uid"].split()) == {str(USER)}
        said = system.as_user(f"cd {HERE}/hub && ../venv/bin/panas {run}")
        assert "It worked: 2 of 2 sites share a head." in " ".join(said.split()), said
        assert system.systemctl("kill", "--signal=KILL", UNITS[1]) == ""
        waited(deployed / "north.log", "answers at", system, times=2)
        again = f"{HERE}/venv/bin/panas deploy check --hub {HERE}/hub"
        until = time.monotonic() + 90
        while "2 of 2 are connected" not in (said := system.as_user(again)):
            assert time.monotonic() < until, said
            time.sleep(2)
        for name in UNITS:
            system.systemctl("stop", name)
            assert system.systemctl("show", "--property=Result", name) == "Result=success", name
