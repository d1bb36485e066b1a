"""Every notebook is the script beside it, imports public names, and shows no path or warning.

`make notebooks` executes them.
"""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext", reason="the extra `notebooks` is not installed")

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = (
    "01_first_run",
    "02_evolve",
    "03_tune",
    "04_what_leaves",
    "05_audit",
    "06_own_sites",
    "07_across_machines",
    "08_papers_tables",
    "09_encoders",
)
PACKAGES = ("panas", "dprbft", "baselines", "attacks", "panas_cli", "benchmarks")
PUBLIC = ("panas", "panas.api", "dprbft", "attacks", "panas_cli")
"""What a notebook may import of this project: their public names."""
MACHINE = re.compile(r"/(?:tmp|home|root|work|private|var|Users)/\w|\x1b\[")
"""A path of the machine on which it ran, or a code for colours."""
NOISE = re.compile(r"Traceback|\w+Warning\b")


def imports(source: str) -> Iterator[tuple[str, str | None]]:
    """Modules that a source imports, with the name taken from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_public(module: str, name: str | None) -> bool:
    """Whether a notebook may import this."""
    if module.split(".")[0] not in PACKAGES:
        return True
    if module not in PUBLIC:
        return False
    face = importlib.import_module(module)
    return name is None or name in getattr(face, "__all__", [n for n in vars(face) if n[0] != "_"])


def hidden(source: str) -> list[str]:
    """What a source imports or names of this project that is not public."""
    found = [f"{m}.{n}" if n else m for m, n in imports(source) if not is_public(m, n)]
    nodes = list(ast.walk(ast.parse(source)))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    found += [node.attr for node in attributes if re.match(r"_(?!_)", node.attr)]
    for node in attributes:
        if isinstance(node.value, ast.Name) and node.value.id in PUBLIC:
            face = importlib.import_module(node.value.id)
            found += [f"{node.value.id}.{node.attr}"] if node.attr not in face.__all__ else []
    return found


def outputs(name: str) -> str:
    """All text that a notebook's cells have printed or returned."""
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    texts = []
    for output in (o for cell in cells for o in cell.get("outputs", [])):
        texts += output.get("text", []) + output.get("traceback", [])
        data = output.get("data", {})
        texts += [line for kind in data if kind.startswith("text/") for line in data[kind]]
    return "".join(texts)


def test_the_notebooks_are_these():
    for ending in (".py", ".ipynb"):
        assert sorted(p.stem for p in FOLDER.glob(f"*{ending}")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_holds_the_cells_of_its_script(name: str):
    expected = jupytext.read(FOLDER / f"{name}.py").cells
    result = jupytext.read(FOLDER / f"{name}.ipynb").cells
    assert [(c.cell_type, c.source) for c in result] == [(c.cell_type, c.source) for c in expected]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_imports_public_names_alone(name: str):
    assert hidden((FOLDER / f"{name}.py").read_text()) == []


def test_names_that_are_not_public_are_found():
    source = """
import numpy, panas, dprbft
from panas.api import search
from panas.privacy.budget import Budget
from panas_cli import shell, notebooks
import attacks.audit.run
x = panas.Budget, panas.runtime, search._check
"""
    assert hidden(source) == [
        "panas.privacy.budget.Budget",
        "panas_cli.notebooks",
        "attacks.audit.run",
        "_check",
        "panas.runtime",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_kept_and_show_no_path_and_no_warning(name: str):
    text = outputs(name)
    assert len(text) > 50
    assert MACHINE.findall(text) == []
    assert NOISE.findall(text) == []


def test_a_path_a_colour_and_a_warning_are_found():
    assert MACHINE.search("error: no file /tmp/tmpx1/run")
    assert MACHINE.search("\x1b[1mbold")
    assert not MACHINE.search("run/tmp, 3 / 4, federation/hub")
    assert NOISE.search("UserWarning: old")
