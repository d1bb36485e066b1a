"""The code that the documents show, run at a small size."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from forked import commands_of_scripts, run_script
from PIL import Image
from sklearn.datasets import load_digits

from dprbft.config.files import build_config
from dprbft.messages import Broadcast, NoisedHistogram, Release
from dprbft.methods.joined.tuning import FEWEST
from panas.evolution.records import EvolutionConfig
from panas.features.map import WIDTH
from panas.privacy.release.kinds import moments
from panas.runtime.store import read_json
from panas.training.linear import rules
from panas_cli.main import app, main
from panas_cli.options import spread_lists

ROOT = Path(__file__).resolve().parents[1]


DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = ("README.md", *(str(p.relative_to(ROOT)) for p in DOCS))
LONG = ("docs/how-to/own-data.md", "docs/how-to/search.md")
"""Pages whose snippets take half a minute and more."""

SMALL = """
from sklearn import datasets
import dprbft
import panas.api
from panas.evolution.records import EvolutionConfig
from panas.training.sgd import Trainer
from panas.tuning.trial import TuningConfig

real, train, simulate = datasets.load_digits, Trainer.run, dprbft.simulate
short = {"search.student_steps": 20, "training.student_steps": 50}

def few():
    digits = real()
    for name in ("data", "images", "target"):
        digits[name] = digits[name][:720]
    return digits

datasets.load_digits = few
panas.api.EvolutionConfig = lambda: EvolutionConfig(population=3, generations=1, seeding=2)
panas.api.TuningConfig = lambda: TuningConfig(initial=1, trials=2)
Trainer.run = lambda trainer, epochs: train(trainer, min(epochs, 2))
dprbft.simulate = lambda run, settings: simulate(run, settings | short)
"""
"""Run before a snippet, and by its worker processes: fewer samples, epochs, genomes, trials."""


def snippets(language: str) -> list[Any]:
    """Each block of code of a language, with its page and line as its id."""
    results = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M):
            line = text[: block.start()].count("\n") + 1
            if block.group(1) == language:
                marks = pytest.mark.thorough if page in LONG else ()
                results.append(pytest.param(block.group(2), id=f"{page}:{line}", marks=marks))
    return results


@pytest.mark.slow
@pytest.mark.parametrize("code", snippets("python"))
def test_every_snippet_runs_when_pasted_alone(code: str, tmp_path: Path):
    """In a process and a folder of its own, with nothing that another snippet has left."""
    patches = tmp_path / "patches" / "sitecustomize.py"  # where worker processes find it
    patches.parent.mkdir()
    patches.write_text(SMALL)
    snippet, said = tmp_path / "snippet.py", tmp_path / "stderr"
    snippet.write_text(code)
    where = os.pathsep.join([str(patches.parent), str(ROOT)])
    exit_code = run_script(snippet, said, patches, {**os.environ, "PYTHONPATH": where})
    assert exit_code == 0, said.read_text()[-3000:]
    assert "Error" not in said.read_text()


def test_the_snippets_of_all_pages_are_found():
    pages = {str(s.id).split(":")[0] for s in (*snippets("python"), *snippets(""))}
    shown = {"explanation/proofs", "how-to/audit-model", "how-to/search", "how-to/use"}
    assert pages >= {"README.md", *(f"docs/{name}.md" for name in shown)}
    assert len(snippets("python")) >= 9


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_method_that_the_page_writes_keeps_the_contract(tmp_path: Path):
    """Its file and its test, beside the package, under all tests that every method passes."""
    text = (ROOT / "docs/how-to/write-a-method.md").read_text()
    for language, file in (("python", "more/fedmedian.py"), ("py", "test_fedmedian.py")):
        (code,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.S | re.M)
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(code)
    (tmp_path / "conftest.py").write_text(
        "import baselines\nfrom tiny_runs import make_site\n"
        f"baselines.__path__.append({str(tmp_path / 'more')!r})\n"
    )
    contract, own = ROOT / "tests/baselines/test_update_methods.py", tmp_path / "test_fedmedian.py"
    call = [sys.executable, "-m", "pytest", "--rootdir", ROOT, "-c", ROOT / "pyproject.toml"]
    call += ["-p", "no:cacheprovider", contract, own, "-k", "fedmedian", "-m", "not thorough"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= 10


def calls() -> list[list[str]]:
    """Every command of the documents' shell blocks."""
    lines = [line for s in snippets("") for line in str(s.values[0]).splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("panas ")]


@pytest.mark.parametrize("call", calls(), ids=" ".join)
def test_every_command_that_is_shown_has_these_options(call: list[str]):
    typer.main.get_command(app).make_context("panas", spread_lists(call[1:]))
    name, *arguments = call[1:]
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    command.make_context(name, spread_lists(arguments))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_that_the_readme_begins_with_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """Those on a run in `runs/first`, at a small size, and then those that use its networks."""
    blocks = [str(s.values[0]) for s in snippets("") if str(s.id).startswith("README")]
    assert "make run" in blocks[0]
    lines = [x.partition("#")[0].rstrip() for block in blocks for x in block.splitlines()]
    lines = [x for x in lines if "runs/first" in x]
    assert lines[0] == "panas run --out runs/first"
    assert len(lines) >= 6
    page = "docs/how-to/use.md"
    (using,) = (str(s.values[0]) for s in snippets("") if str(s.id).startswith(page))
    lines += [x.partition("#")[0].rstrip() for x in using.splitlines()]
    call_all(lines, tmp_path, monkeypatch, capsys)
    for name in ("client-001.safetensors", "client-001.md", "out/north.pt2", "shared/north.onnx"):
        assert (tmp_path / name).is_file()
    csv, record = (tmp_path / name for name in ("classes.csv", "classes.json"))
    assert csv.read_text().startswith("file,class,p_0,")
    assert len(json.loads(record.read_text())["predictions"]) == 5


def call_all(
    lines: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """Commands one after the other, at a small size, where new samples of digits lie."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})  # in this process
    write_data()
    for line in lines:
        assert line.startswith("panas ")
        small = ""
        if re.match("panas (run|plan|search) ", line) and "--resume" not in line:
            small = f" {' '.join(TINY.split())}"
            small += "" if "--sites" in line or "--clients" in line else " --clients 3"
        monkeypatch.setattr(sys, "argv", shlex.split(f"{line}{small}"))
        with pytest.raises(SystemExit) as stop:
            main()
        text = capsys.readouterr().err[-2000:]
        assert stop.value.code in ((0, 1) if "--fail-on" in line else (0,)), (line, text)


def write_data() -> None:
    """What the commands of the pages read: archives, tables, pictures and a network."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (5, 8, 8), dtype=np.uint8)
    np.savez("new.npz", x=x)
    Path("pictures").mkdir()
    Image.fromarray(x[0]).save("pictures/one.png")
    images, y = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    shares = np.split(rng.permutation(len(y))[:620], [120, 240, 320])
    for name, rows in zip(("north", "east", "open", "train"), shares, strict=True):
        cut = len(rows) * 2 // 3
        parts = {"train": rows[:cut], "test": rows[cut:]}
        archive = {f"{k}_images": images[r] for k, r in parts.items()}
        np.savez(f"{name}.npz", **archive, **{f"{k}_labels": y[r] for k, r in parts.items()})
        cells = [[*images[r, 2:4, 4], f"class {y[r] % 2}", r] for r in rows]
        lines = ["age,dose,diagnosis,patient_id", *(",".join(map(str, c)) for c in cells)]
        Path(f"{name}.csv").write_text("\n".join(lines))
    for name, label in (("open", "diagnosis"), ("table", "Class")):  # without patients
        table = Path("open.csv" if name == "open" else "train.csv").read_text()
        table = re.sub(r",\w+$", "", table, flags=re.M).replace("diagnosis", label)
        Path(f"{name}.csv").write_text(table)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    batch = {"input": {0: torch.export.Dim("n", min=1, max=4096)}}
    torch.export.save(
        torch.export.export(network, (torch.zeros(2, 1, 8, 8),), dynamic_shapes=batch), "net.pt2"
    )


RUNS = ("how-to/report.md", "how-to/audit-model.md")
"""Pages whose commands take runs that exist."""
STOOD_IN = {
    "--dataset fashion-mnist --data-root DIR": "",
    "--data-root DIR": "",
    "--size cpu": "--size smoke",
    "--accuracy 0.98 ": "",
}
"""What a page says, and what a test without large data does in its place."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        "explanation/proofs.md",
        pytest.param("how-to/audit-model.md", marks=pytest.mark.thorough),
        pytest.param("how-to/compare.md", marks=pytest.mark.thorough),
        pytest.param("how-to/edge-devices.md", marks=pytest.mark.thorough),
        "how-to/hospitals.md",
        "how-to/own-data.md",
        pytest.param("how-to/report.md", marks=pytest.mark.thorough),
        pytest.param("how-to/run.md", marks=pytest.mark.thorough),
    ],
)
def test_the_commands_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    blocks = [str(s.values[0]) for s in snippets("") if str(s.id).startswith(f"docs/{page}")]
    lines = [x.partition("#")[0].strip() for b in blocks for x in b.splitlines()]
    lines = [" ".join(x.split()) for x in lines if x.startswith("panas ")]
    for said, done in STOOD_IN.items():
        lines = [x.replace(said, done) for x in lines]
    if page in RUNS:
        names = sorted({name for x in lines for name in re.findall(r"runs/\w", x)})
        lines[:0] = [f"panas run --out {name}" for name in names]
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    call_all(lines, tmp_path, monkeypatch, capsys)


def test_searching_names_the_defaults_of_python_and_of_the_command_line():
    text = (ROOT / "docs/how-to/search.md").read_text()
    python, shell = EvolutionConfig(), build_config().search.evolution
    for name in ("seeding", "offspring", "screening", "survival"):
        assert f"| `{name}` | {getattr(python, name)} |" in text
    savings = {f.name for f in fields(python)} - {"population", "generations"}
    for name in savings:
        assert getattr(python, name) == getattr(shell, name), name
        assert name in ("crossover", "mutation") or f"`{name}`" in text, name


def test_joining_names_the_sizes_of_messages_and_the_rules_of_the_method():
    text = " ".join((ROOT / "docs/explanation/joining.md").read_text().split())
    classes, d = 10, 128
    parts = moments.arrays(classes, d)
    arrays = {name: torch.zeros(spec.shape) for name, spec in parts.items()}  # type: ignore[arg-type]
    counts = NoisedHistogram(torch.zeros(classes), "b" * 32, 5.039842834720612)
    message = Release(0, 1, "moments", 0.6, "a" * 32, arrays, counts).to_bytes()
    head = Broadcast(1, torch.zeros(classes, d), torch.zeros(classes)).to_bytes()
    assert f"{len(message) / 1e3:.1f} kB" in text
    assert f"| {len(head) / 1e3:.1f} kB |" in text
    assert abs(len(message) - 4 * (d * (d + 1) // 2 + classes * d + classes) - 776) < 20
    assert f"yes, {rules.RELEASE_SHARE:.0%} of epsilon".replace("%", " %") in text
    assert f"public samples ({rules.FEWEST} or more)" in text
    assert f"below {100 * rules.LEAST_GAIN:g} points nobody releases" in text
    assert f"(from {FEWEST} on;" in text
    shown = build_config()
    assert shown.network.features is None
    assert (
        f"| `network.features` | by rule | d, coordinates of phi: {rules.NARROWEST} to {WIDTH} |"
        in text
    )
    assert f"| `federation.method` | `{shown.federation.method}` " in text
    limits = build_config({"preset": "demo"}).data.source.public_limit
    assert f"{shown.data.source.public_limit} (`demo`: {limits})" in text


TINY = """--set data.limit=200 --set search.population=2 --set search.generations=0
--set search.epochs=1 --set search.max_blocks=3 --set search.widths=[16] --set tuning.trials=1
--set training.warm_epochs=1
--set audit.decoder_epochs=1 --set federation.baselines=false
--set search.student_steps=20 --set training.student_steps=20"""


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_the_job_array_of_slurm_runs_and_goes_on(tmp_path: Path):
    """Its two scripts, with two sites, small settings, and a stand-in for Slurm."""
    text = (ROOT / "docs/how-to/slurm.md").read_text()
    tasks, submit = re.findall(r"```bash\n(.*?)```", text, re.S)
    assert "--array=0-9" in tasks
    assert "--clients 10" in submit
    one_core = re.compile(r"--cpus-per-task=\d+")
    tasks = one_core.sub("--cpus-per-task=1", tasks.replace("--array=0-9", "--array=0-1"))
    (tmp_path / "site.sbatch").write_text(tasks)
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

    with commands_of_scripts(sbatch.with_name("panas")):
        call()
        run = tmp_path / "me" / "federation"
        results = {p: p.read_bytes() for p in run.glob("sites/*/runs/*/*/best.json")}
        assert len(results) == 4
        assert read_json(run / "summary.json")["rounds"] == 1
        # One task is enough to see that those that are through end well and change nothing.
        (tmp_path / "site.sbatch").write_text(tasks.replace("--array=0-1", "--array=0-0"))
        call()
    assert {p: p.read_bytes() for p in results} == results
    codes = [p.read_text() for p in sorted((tmp_path / "jobs").iterdir())]
    assert codes == ["0 0", "0", "0", "0"]
