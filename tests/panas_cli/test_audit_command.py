import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dprbft.config import load_config
from dprbft.layout import release_file
from dprbft.messages import Release
from panas.store import read_json, write_bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audited")


@pytest.fixture
def run(folder: Path, cli: Callable, tiny: Callable) -> Path:
    """A finished run, made once."""
    out = folder / "run"
    if not out.exists():
        assert cli("run", "--out", out, *tiny()).code == 0
    return out


def _half_the_noise(run: Path) -> None:
    """Let client 0's release claim twice the noise that it has."""
    path = release_file(run, 0)
    width = load_config(run).network.width
    got = Release.from_bytes(path.read_bytes(), width=width, classes=10)
    assert got.noise_multiplier is not None
    write_bytes(path, replace(got, noise_multiplier=2 * got.noise_multiplier).to_bytes())


@pytest.mark.slow
def test_fail_on_leak_is_for_continuous_integration(run: Path, cli: Callable, tmp_path: Path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    sound = cli("audit", copy, "--fail-on", "leak", "--workers", 1)
    assert sound.code == 0, sound.err
    assert (copy / "audit" / "client-000-images.png").is_file()
    _half_the_noise(copy)
    outcome = cli("audit", copy, "--fail-on", "leak", "--workers", 1, "--json")
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert found["clients"][0]["verdict"] == "leaks"
    assert read_json(copy / "audit.json")["clients"][0]["verdict"] == "leaks"
    assert cli("audit", copy, "--workers", 1).code == 0  # a finding is no error unless one asks


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--model"),
        (["{run}", "--model", "m.pt2"], "both or neither"),
        (["--model", "{here}/m.pt2"], "--data"),
        (["--model", "{here}/m.pt2", "--data", "{here}/d.npz"], "m.pt2"),
        (["--model", "{here}/m.pt2", "--data", "{here}/none.npz"], "none.npz"),
        (["--model", "m.pt2", "--data", "d.npz", "--mean", "half"], "--mean"),
        (["--model", "m.pt2", "--data", "d.npz", "--delta", "1"], "--delta"),
        (["{run}", "--data", "d.npz"], "--model only"),
        (["{run}", "--shadows", "1"], "--shadows"),
        (["{run}", "--workers", "0"], "--workers"),
        (["{run}", "--fail-on", "fire"], "fail-on"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    arguments: list[str], says: str, run: Path, cli: Callable, tmp_path: Path
):
    x = np.zeros((40, 6, 6), np.uint8)
    y = np.arange(40) % 3
    np.savez(tmp_path / "d.npz", train_images=x, train_labels=y, test_images=x, test_labels=y)
    before = (run / "audit.json").read_bytes()
    outcome = cli("audit", *(a.format(run=run, here=tmp_path) for a in arguments))
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert says in line
    assert (run / "audit.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["d.npz"]
