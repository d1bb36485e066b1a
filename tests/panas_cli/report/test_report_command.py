"""`panas report` on the command line: what it prints, writes and refuses."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from page_checks import problems_of

from dprbft.config.files import load_config
from dprbft.run.summary import summarise
from panas.runtime.store import read_json, write_json
from panas_cli.report.events import scalars
from panas_cli.report.facts import read_facts

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(run: Path) -> Iterator[Path]:
    """The finished run, which loses its pages again."""
    yield run
    for name in ("report.html", "compared.html"):
        (run / name).unlink(missing_ok=True)


def test_the_page_is_in_the_runs_folder_and_named_last(run: Path, cli: Callable):
    outcome = cli("report", run)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[-1] == f"report: {run / 'report.html'}"
    assert problems_of((run / "report.html").read_text()) == []


def test_the_page_goes_where_it_is_asked_for(run: Path, cli: Callable, tmp_path: Path):
    page = tmp_path / "new" / "page.html"
    outcome = cli("report", run, "--details", "--out", page)
    assert outcome.out.splitlines()[-1] == f"report: {page}"
    assert page.read_text().startswith("<!doctype html>")
    assert "expected a file's path" in cli("report", run, "--out", tmp_path).err


def test_details_draw_the_pictures_of_sites(run: Path, cli: Callable, tmp_path: Path):
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for picture in copy.rglob("*.png"):
        picture.unlink()
    assert "pictures of" not in cli("report", copy).out
    assert not list((copy / "sites").rglob("*.png"))
    drawn = " ".join(cli("report", copy, "--details").out.split())
    pictures = sorted(p.name for p in (copy / "sites").rglob("*.png"))
    assert pictures == ["history.png"] * 2 + ["network.png"] * 2  # nothing was tried
    assert f"{len(pictures)} pictures of searches and trials are in the sites'" in drawn


def test_json_writes_no_page(run: Path, cli: Callable):
    assert json.loads(cli("report", run, "--json").out)["run"] == str(run)
    assert len(json.loads(cli("report", run, run, "--json").out)["runs"]) == 2
    assert not (run / "report.html").exists()


def test_several_runs_are_compared(run: Path, cli: Callable, tmp_path: Path):
    page = tmp_path / "compared.html"
    outcome = cli("report", run, run, "--out", page)
    assert outcome.code == 0
    assert outcome.out.splitlines()[0].startswith("run ")
    assert outcome.out.splitlines()[-1] == f"report: {page}"
    assert problems_of(page.read_text()) == []
    assert cli("report", run, run).out.splitlines()[-1] == f"report: {run / 'compared.html'}"


def test_one_that_is_no_run_is_refused(run: Path, cli: Callable, tmp_path: Path):
    page = tmp_path / "page.html"
    for other in (tmp_path, tmp_path / "none"):
        assert str(other) in cli("report", run, other, "--out", page).refusal
    assert not page.exists()


def test_a_run_under_way_is_watched_until_it_is_done(
    run: Path, cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stages, page, seen = run / "stages.json", tmp_path / "page.html", []
    before, record = stages.read_bytes(), read_json(stages)

    def sleep(seconds: float) -> None:
        seen.append(page.read_text())
        stages.write_bytes(before)

    monkeypatch.setattr("panas_cli.commands.report.time.sleep", sleep)
    write_json(stages, record | {"done": ["search", "tune"]})
    outcome = cli("report", run, "--watch", "--out", page)
    assert outcome.code == 0
    assert outcome.out.startswith(f"report: {page}, every 5 s")
    (live,) = seen
    assert problems_of(live) == []
    assert "under way" in live
    assert 'http-equiv="refresh" content="5"' in live
    assert live.count("Search of client-") == 2
    assert "In short" in page.read_text()
    assert "refresh" not in page.read_text()
    assert "leave one out" in cli("report", run, "--watch", "--json").refusal


def test_curves_have_every_generation_trial_and_round(run: Path):
    facts = read_facts(run, summarise(run, load_config(run)))
    found = list(scalars(facts))
    assert {s.folder for s in found} == {"server", *(site.name for site in facts.sites)}
    for site in facts.sites:
        own = [s for s in found if s.folder == site.name]
        assert site.search is not None
        steps = [s.step for s in own if s.tag == "search/best fitness"]
        assert steps == [g.generation for g in site.search.result.records]
        assert [s.value for s in own if s.tag == "privacy/epsilon"] == [site.outcome.epsilon]
    up = [s.value for s in found if s.tag == "round/bytes up"]
    assert up == [r.up_bytes for r in facts.rounds]


@pytest.mark.slow
def test_event_files_are_read_by_tensorboard(run: Path, cli: Callable, tmp_path: Path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert cli("report", run, "--tensorboard", tmp_path / "logs").code == 0
    read = reader.EventAccumulator(str(tmp_path / "logs" / "client-000"))
    read.Reload()
    assert {"search/best fitness", "privacy/epsilon"} <= {*read.Tags()["scalars"]}
    assert "got" in cli("report", run, "--tensorboard", tmp_path / "logs").refusal


def test_without_tensorboard_a_line_says_what_installs_it(
    run: Path, cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    refusal = cli("report", run, "--tensorboard", tmp_path / "logs").refusal
    assert "pip install '.[tensorboard]'" in refusal


def test_the_templates_are_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["panas_cli"]
    files = [p for p in (ROOT / "panas_cli").rglob("*") if p.suffix in (".html", ".css")]
    assert len(files) > 5
    for file in files:
        name = file.relative_to(ROOT / "panas_cli").as_posix()
        assert any(fnmatch(name, pattern) for pattern in patterns), name
    assert any(d.startswith("jinja2") for d in project["project"]["dependencies"])


@pytest.mark.slow
def test_a_wheel_holds_the_templates(tmp_path: Path):
    arguments = ["-q", "build", "-b", str(tmp_path), "build_py"]
    code = f"import os; from setuptools import setup; os.chdir({str(ROOT)!r}); "
    code += f"setup(script_args={arguments!r})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path)
    (built,) = tmp_path.glob("lib*")
    held = {p.name for p in (built / "panas_cli" / "report" / "templates").iterdir()}
    assert held >= {"run.html", "base.html", "style.css", "compared.html"}
