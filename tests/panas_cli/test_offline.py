"""Without a network and with a home that cannot be written: all works, or one line says what to do.

Every process of these tests is refused other machines, and what it tries is noted. The tests may
run as root, so that the home lies below what is no folder.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from federation import wait_for
from no_network import NOTED
from node_sites import owned_site, write_pictures
from tiny_options import without_overruled

from dprbft.engines.node.call import SOCKET

ROOT = Path(__file__).parents[2]
HOMES = ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "PANAS_STATE")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of all processes; nobody may have tried to reach another machine in the end."""
    helpers = ROOT / "tests" / "helpers"
    path = os.pathsep.join(map(str, (helpers / "offline", ROOT, helpers)))
    home = {"HOME": f"{os.devnull}/home", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    tried = tmp_path / "tried"
    yield {k: v for k, v in os.environ.items() if k not in HOMES} | home | {NOTED: str(tried)}
    assert not tried.exists(), tried.read_text()


def panas(environment: dict[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "panas_cli", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_other_machines_are_refused_in_these_tests(environment: dict[str, str], tmp_path: Path):
    code = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert "no network in this test" in done.stderr
    assert "192.0.2.1" in (tmp_path / "tried").read_text()
    (tmp_path / "tried").unlink()


@pytest.mark.thorough
def test_a_demonstration_runs_whole(
    environment: dict[str, str], tiny: Callable[..., list[str]], tmp_path: Path
):
    words = without_overruled((*tiny(privacy__delta="1e-3"), "--method", "joined"))
    sizes = ("--preset", "demo", "--dataset", "digits", "--out", tmp_path / "run")
    done = panas(environment, "run", *sizes, *words)
    assert done.returncode == 0, done.stderr
    assert "Whoever sees what left is at most" in done.stdout
    assert (tmp_path / "run" / "audit.json").exists()
    assert (tmp_path / "run" / "ladder.png").exists()
    assert "atplotlib" not in done.stderr


@contextmanager
def node(environment: dict[str, str], site: Path) -> Iterator[Path]:
    """A node at its socket; yields what it says."""
    said, command = site / "said", [sys.executable, "-m", "panas_cli", "node", "--site", str(site)]
    with said.open("w") as file:
        process = subprocess.Popen(
            [*command, "--device", "cpu"], env=environment, stderr=file, start_new_session=True
        )
    try:
        wait_for((site / SOCKET).exists, 60)
        yield said
    finally:
        process.terminate()
        process.wait(30)


def small() -> Sequence[str]:
    """A run that takes seconds."""
    settings = {
        "search.population": "2",
        "search.generations": "0",
        "search.epochs": "1",
        "search.max_blocks": "3",
        "search.widths": "[8]",
        "search.student_steps": "1",
        "training.student_steps": "1",
        "network.width": "16",
        "network.features": "16",
        "tuning.trials": "0",
        "federation.baselines": "false",
        "privacy.network": "stays",
        "privacy.epsilon": "4",
        "privacy.delta": "1e-4",
        "data.public_limit": "60",
    }
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.thorough
def test_a_node_says_where_it_needs_a_folder_and_serves_a_hub_with_it(
    environment: dict[str, str], tmp_path: Path
):
    site = owned_site(tmp_path / "north")
    refused = panas(environment, "node", "--site", site, "--device", "cpu")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "set PANAS_STATE to one" in refused.stderr
    public = write_pictures(tmp_path / "public.npz", 60, 99)
    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / "hub.toml").write_text(f'names = ["north"]\n[sockets]\nnorth = "{site / SOCKET}"\n')
    with node(environment | {"PANAS_STATE": str(tmp_path / "state")}, site) as said:
        reach = ("--hub", hub, "--public-data", public, "--out", tmp_path / "run")
        done = panas(environment, "run", *reach, *small())
        assert done.returncode == 0, done.stderr + said.read_text()
        assert "export of run: done" in said.read_text()
    for text in (done.stderr, said.read_text()):
        assert "atplotlib" not in text
        assert "Traceback" not in text
