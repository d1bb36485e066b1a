"""What is handed out: a source distribution, a wheel that suffices, an environment of conda."""

import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("panas", "dprbft", "baselines", "attacks", "panas_cli")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", *PACKAGES)
"""What the build reads: .dockerignore sends the same to the builder of an image."""


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def copied(folder: Path) -> Path:
    """The sources in a folder of their own, without what Python and tools leave behind."""
    folder.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(source: Path, out: Path, *options: str) -> None:
    """Run `python -m build` with the tools that are installed, so that no index is asked."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *options, source]
    done = subprocess.run(words, capture_output=True, text=True, cwd=out.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source distribution, and the wheel that was made of it."""
    folder = tmp_path_factory.mktemp("built")
    build(copied(folder / "source"), folder / "dist")
    return folder / "dist"


def files_of(wheel: Path) -> dict[str, int]:
    """Names in a wheel, with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_has_every_file_of_every_package_and_no_other(built: Path):
    packaged = {name for name in files_of(wheel_of(built)) if ".dist-info/" not in name}
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    wanted = {str(f.relative_to(ROOT)) for f in files if "__pycache__" not in f.parts}
    assert packaged == wanted
    assert {f"{name}/py.typed" for name in PACKAGES} <= packaged
    assert "panas_cli/report/templates/base.html" in packaged


@pytest.mark.slow
def test_the_wheel_names_its_licence_command_and_extras(built: Path, project: dict):
    wheel = wheel_of(built)
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        commands = archive.read(f"{info}/entry_points.txt").decode().split("\n")
        about = message_from_bytes(archive.read(f"{info}/METADATA"))
    assert [line for line in commands if line] == [
        "[console_scripts]",
        "panas = panas_cli.main:main",
    ]
    assert about["Name"] == "panas"
    assert about["License-Expression"] == project["license"]
    assert about["Requires-Python"] == project["requires-python"]
    extras = project["optional-dependencies"]
    assert set(about.get_all("Provides-Extra", [])) == set(extras)
    asked = len(project["dependencies"]) + sum(map(len, extras.values()))
    assert len(about.get_all("Requires-Dist", [])) == asked


@pytest.mark.slow
def test_an_index_would_take_both(built: Path):
    words = [sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


@pytest.mark.slow
def test_the_source_distribution_gives_the_wheel_that_the_sources_give(built: Path, tmp_path: Path):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.split("/", 1)[-1] for name in sources.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    build(copied(tmp_path / "source"), tmp_path / "dist", "--wheel")
    assert files_of(wheel_of(tmp_path / "dist")) == files_of(wheel_of(built))


def dependencies() -> set[str]:
    """Names of all that an installation without an extra brings."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    todo, seen = [Requirement(text) for text in stated], set[tuple[str, str]]()
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        for extra in {"", *one.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                further = [Requirement(text) for text in needs_of(name)]
                todo += [r for r in further if not r.marker or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def needs_of(name: str) -> list[str]:
    """Requirements of what is installed; none of what another system would need."""
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


def without_extras() -> set[str]:
    """Modules that are installed here, and not by an installation without an extra."""
    brought = dependencies()
    return {
        module
        for module, owners in packages_distributions().items()
        if not brought & {canonicalize_name(owner) for owner in owners}
        and module not in (*PACKAGES, "pip", "setuptools", "_distutils_hack", "pkg_resources")
    }


BLOCK = """
import sys
from importlib.machinery import PathFinder


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in NAMES else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_wheel_runs_the_first_command_from_an_empty_folder(built: Path, tmp_path: Path):
    """In an environment with the wheel and its dependencies, and nothing of this checkout.

    The dependencies are those of this environment: its folder is on the path. What it points to,
    such as an editable installation, is not; what only an extra needs cannot be imported.
    """
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", wheel_of(built)], check=True)
    (own,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    names = sorted(without_extras())
    assert {"flwr", "onnx", "pytest"} <= set(names)
    (own / "sitecustomize.py").write_text(f"NAMES = {set(names)}\n{BLOCK}")
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def run(*words: str | Path) -> str:
        done = subprocess.run(
            words, cwd=empty, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    names = ", ".join(PACKAGES)
    where = run(python, "-c", f"import {names}; print(*(m.__file__ for m in ({names})))")
    for file in where.split():
        assert Path(file).is_relative_to(own)
    panas = tmp_path / "env" / "bin" / "panas"
    assert run(panas, "--version") == "panas 0.1.0\n"
    assert "epsilon" in run(panas, "run", "--out", "first")
    assert "report: first/report.html" in run(panas, "report", "first")
    assert (empty / "first" / "report.html").stat().st_size > 100_000
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    np.savez(empty / "new.npz", x=images)
    told = run(panas, "predict", "first", "--site", "client-000", "--input", "new.npz", "--json")
    assert len(json.loads(told)["predictions"]) == 5


def pip_section() -> list[str]:
    record = yaml.safe_load((ROOT / "environment.yml").read_text())
    (section,) = (part["pip"] for part in record["dependencies"] if isinstance(part, dict))
    return section


def test_the_environment_of_conda_has_the_projects_python_and_pip(project: dict):
    record = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert record["name"] == "panas"
    plain = [part for part in record["dependencies"] if isinstance(part, str)]
    assert plain == [f"python{project['requires-python']}", "pip"]


@pytest.mark.slow
def test_pip_takes_the_section_of_the_environment_of_conda(tmp_path: Path, project: dict):
    """As conda does: it writes the section to a file, and calls pip beside environment.yml."""
    source = copied(tmp_path / "source")
    (tmp_path / "requirements.txt").write_text("\n".join(pip_section()))
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
    local = ["--no-index", "--no-build-isolation", "--quiet", "--report", "-"]
    done = subprocess.run(
        [*pip, *local, "-r", tmp_path / "requirements.txt"],
        cwd=source,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (installed,) = json.loads(done.stdout)["install"]
    assert installed["metadata"]["name"] == "panas"
    assert installed["download_info"]["dir_info"]["editable"] is True
    extras = set(installed["requested_extras"])
    assert extras <= set(project["optional-dependencies"])
    assert {"dev", "notebooks", "flower"} <= extras
