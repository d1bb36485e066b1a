"""The code that the documents show, run at a small size."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dprbft.config.files import build_config
from panas.evolution.records import EvolutionConfig
from panas.runtime.store import read_json
from panas.tuning.trial import TuningConfig

ROOT = Path(__file__).resolve().parents[1]


class Pictures:
    """As many small grey pictures as a document's slices ask for, instead of torchvision's."""

    def __init__(self, root: str, download: bool = False) -> None:
        rng = np.random.default_rng(0)
        self._patterns = rng.integers(0, 200, (10, 28, 28))
        self._noise = rng.integers(0, 55, (200, 28, 28))

    def __len__(self) -> int:
        return 6000

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        pixels = self._patterns[i % 10] + self._noise[i % 200]
        return Image.fromarray(pixels.astype(np.uint8)), i % 10


def test_searching_names_the_defaults_of_python_and_of_the_command_line():
    text = (ROOT / "docs/searching.md").read_text()
    python, shell = EvolutionConfig(), build_config().search.evolution
    for name in ("seeding", "offspring", "screening", "survival"):
        assert f"| `{name}` | {getattr(python, name)} |" in text
    savings = {f.name for f in fields(python)} - {"population", "generations"}
    for name in savings:
        assert getattr(python, name) == getattr(shell, name), name
        assert name in ("crossover", "mutation") or f"`{name}`" in text, name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_searching_shows_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Its code blocks, one after the other in one session, with fewer samples and trials."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/searching.md").read_text(), re.S)
    assert len(blocks) >= 5
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchvision.datasets.FashionMNIST", Pictures)
    few = EvolutionConfig(population=3, generations=1, seeding=2)
    monkeypatch.setattr("panas.api.EvolutionConfig", lambda: few)
    monkeypatch.setattr("panas.api.TuningConfig", lambda: TuningConfig(initial=1, trials=2))
    session: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        small = block.replace("range(2000, 6000)", "range(100, 220)")
        small = small.replace("range(2000)", "range(100)")
        exec(compile(small, "searching.md", "exec"), session)
    assert session["tuned"].epsilon <= 3
    assert str(session["Squeeze"](4)) == "se4"
    assert {p.name for p in (tmp_path / "runs/mine").iterdir()} >= {
        "best.json",
        "network.safetensors",
        "history.png",
        "network.png",
        "log.jsonl",
    }
    assert {p.name for p in (tmp_path / "runs/mine-tuned").iterdir()} >= {
        "best.json",
        "network.safetensors",
        "trials.png",
        "log.jsonl",
        "ledger.jsonl",
    }


TINY = """--set data.limit=200 --set search.population=2 --set search.generations=1
--set search.epochs=1 --set search.max_blocks=3 --set search.widths=[16] --set tuning.trials=1
--set training.epochs=1 --set training.warm_epochs=1 --set federation.rounds=1"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_job_array_that_searching_shows_runs_and_goes_on(tmp_path: Path):
    """Its two scripts, with two clients, small settings, and a stand-in for Slurm."""
    text = (ROOT / "docs/searching.md").read_text()
    tasks, submit = re.findall(r"```bash\n(.*?)```", text, re.S)
    assert "--array=0-9" in tasks
    assert "--clients 10" in submit
    one_core = re.compile(r"--cpus-per-task=\d+")
    tasks = one_core.sub("--cpus-per-task=1", tasks.replace("--array=0-9", "--array=0-1"))
    (tmp_path / "client.sbatch").write_text(tasks)
    submit = re.sub(r"--dataset \S+ --data-root \S+", " ".join(TINY.split()), submit)
    submit = submit.replace("--clients 10", "--clients 2").replace("/scratch", str(tmp_path))
    (tmp_path / "federation.sh").write_text(one_core.sub("--cpus-per-task=1", submit))
    for folder in ("bin", "jobs"):
        (tmp_path / folder).mkdir()
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(
        f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/helpers/stand_in_for_sbatch.py "$@"\n'
    )
    sbatch.chmod(0o755)
    where = os.pathsep.join([str(sbatch.parent), str(Path(sys.executable).parent), "/bin:/usr/bin"])
    own = {"PATH": where, "USER": "me", "HOME": str(tmp_path), "JOBS": str(tmp_path / "jobs")}
    own |= {"OMP_NUM_THREADS": "1"}

    def call() -> None:
        done = subprocess.run(
            ["bash", "federation.sh"], cwd=tmp_path, env=own, capture_output=True, text=True
        )
        logs = {p.name: p.read_text()[-2000:] for p in tmp_path.glob("*.log")}
        assert done.returncode == 0, (done.stderr, logs)

    call()
    run = tmp_path / "me" / "federation"
    found = {p: p.read_bytes() for p in run.glob("*/client-*/best.json")}
    assert len(found) == 4
    assert read_json(run / "summary.json")["rounds"] == 1
    call()
    assert {p: p.read_bytes() for p in found} == found
    assert [p.read_text() for p in sorted((tmp_path / "jobs").iterdir())] == ["0 0", "0"] * 2
