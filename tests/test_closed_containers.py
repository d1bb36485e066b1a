"""A federation under the containers' conditions: read-only roots, user 1000, no capability.

What an image would have of its own is here the project's environment; what it mounts is mounted.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from closed import closed, give, why_not
from sklearn.datasets import load_digits

from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.engines.flower.hub import free_port

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
PANAS = [sys.executable, "-m", "panas_cli"]
SITES = ("north", "south")


def done(words: list[str], volumes: Mapping[str, Path], **more: object) -> str:
    """What a command in a container said; it must not fail."""
    command, own = closed([*PANAS, *words], volumes, **more)  # type: ignore[arg-type]
    result = subprocess.run(command, env=own, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


@contextmanager
def up(words: list[str], volumes: Mapping[str, Path], log: Path, ready: str) -> Iterator[None]:
    """A container that runs meanwhile, once it has said that it is ready."""
    readable = ("/data",) if "/data" in volumes else ()
    command, own = closed(
        [*PANAS, *words], volumes, readable=readable, environment={"PANAS_STATE": "/state"}
    )
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=own, stdout=out, stderr=out)
    try:
        until = time.monotonic() + 240
        while ready not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_a_hub_and_two_sites_join_with_roots_that_nobody_can_write(tmp_path: Path):
    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8) * 15).astype(np.uint8)
    make_deployment(tmp_path / "f", Deployment(sites=SITES, port=free_port()))
    hub, places = tmp_path / "f" / "hub", dict[str, dict[str, Path]]()
    np.savez(hub / "public.npz", x=images[:60], y=y[:60])
    for i, name in enumerate(SITES):
        data, state = tmp_path / f"data-{name}", tmp_path / f"state-{name}"
        data.mkdir()
        state.mkdir()
        part = slice(100 + 300 * i, 400 + 300 * i)
        np.savez(data / "own.npz", x=images[part], y=y[part])
        site = tmp_path / "f" / "sites" / name
        places[name] = {"/site": site, "/data": data, "/state": state}
    for folder in (tmp_path / "f", *(p for each in places.values() for p in each.values())):
        give(folder)
    budget = ["--epsilon", "8", "--delta", "1e-4"]
    for volumes in places.values():
        own = {"PANAS_STATE": "/state"}
        words = ["site", "init", "/site", "--data", "/data/own.npz", *budget]
        done(words, volumes, readable=("/data",), environment=own)
    with ExitStack() as held:
        log = tmp_path / "hub.log"
        start = ["deploy", "start"]
        held.enter_context(up([*start, "--hub", "/hub"], {"/hub": hub}, log, "the hub is ready"))
        for name, volumes in places.items():
            log = tmp_path / f"{name}.log"
            held.enter_context(up([*start, "--site", "/site"], volumes, log, "answers at"))
        run = ["run", "--hub", "/hub", "--public-data", "/hub/public.npz", "--out", "/hub/first"]
        tiny = ("search.population=2", "search.generations=0", "tuning.trials=0")
        few = ("training.student_steps=50", "data.public_labels=20", 'privacy.network="stays"')
        more = [word for each in (*tiny, *few) for word in ("--set", each)]
        said = done([*run, "--epsilon", "4", "--delta", "1e-5", *more], {"/hub": hub})
    assert "It worked: 2 of 2 sites share a head." in " ".join(said.split())
    command, own = closed(["touch", "/written"], {})
    assert subprocess.run(command, env=own, capture_output=True).returncode != 0
