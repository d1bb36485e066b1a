"""The house of CONTRIBUTING.md: imports go down, heavy libraries have one home, no side effects."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"panas": 0, "dprbft": 1, "attacks": 2, "panas_cli": 3}
HOMES = {
    "deap": ("panas/evolution/",),
    "botorch": ("panas/tuning/",),
    "gpytorch": ("panas/tuning/",),
    "opacus": ("panas/privacy/",),
    "dp_accounting": ("panas/privacy/accounting/",),
    "flwr": ("dprbft/engines/flower.py",),
}


def imports(source: str) -> Iterator[str]:
    """Top-level names of all modules that some source imports, at any depth of nesting."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError("relative imports hide the floor; name the package")


def offences(path: str, source: str) -> list[str]:
    found = []
    for name in imports(source):
        if FLOORS.get(name, -1) > FLOORS[path.split("/")[0]]:
            found.append(f"{path} imports {name}, which is above it")
        if name in HOMES and not path.startswith(HOMES[name]):
            found.append(f"{path} imports {name}, whose home is {HOMES[name]}")
    return found


def test_imports_go_down_and_heavy_libraries_stay_home():
    sources = [p for floor in FLOORS for p in (ROOT / floor).rglob("*.py")]
    assert len(sources) > 30
    found = []
    for p in sources:
        found += offences(p.relative_to(ROOT).as_posix(), p.read_text())
    assert found == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("panas/architecture/space.py", "import dprbft.heads"),
        ("dprbft/server/rounds.py", "def f():\n    from attacks import audit"),
        ("panas/api.py", "import botorch.models"),
        ("dprbft/site/site.py", "from opacus import GradSampleModule"),
    ],
)
def test_an_offence_is_caught(path: str, source: str):
    assert offences(path, source)


def test_only_the_store_writes_files():
    writing = ("write_text", "write_bytes(", "mkdir(", ".touch(")
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            if path.name == "store.py":
                continue
            text = path.read_text()
            assert not any(f".{w.lstrip('.')}" in text for w in writing), path


def test_importing_panas_loads_no_heavy_library():
    names = [*HOMES, "torch"]
    code = f"import sys, panas; print([n for n in {names!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", FLOORS)
def test_importing_a_package_prints_and_writes_nothing(package: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", f"import {package}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []
