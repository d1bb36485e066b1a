"""What the packages publish says what its arguments are, and its examples run."""

import ast
import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("panas", "dprbft", "baselines", "attacks", "panas_cli")
FACES = ("panas", "dprbft", "attacks")
"""Packages whose `__init__` publishes names."""

CONTRACTS = ("dprbft.methods", "dprbft.methods.updates.contract", "dprbft.messages")
"""Modules whose public classes a writer of methods implements."""

FEW = 2
"""Parameters that need no description of their own."""

SLOW = {"dprbft.api.simulate", "panas.api.tune"}
"""Examples of more than half a second."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
ENTRY = re.compile(r"^    (\w+): ")


def module_path(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parameters(function: Function) -> list[str]:
    a = function.args
    every = [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg]
    return [p.arg for p in every if p is not None and p.arg not in ("self", "cls")]


def described(text: str) -> list[str]:
    """The names under `Args:`."""
    lines = text.splitlines()
    if "Args:" not in lines:
        return []
    names = []
    for line in lines[lines.index("Args:") + 1 :]:
        if line and not line.startswith(" "):
            break
        if match := ENTRY.match(line):
            names.append(match[1])
    return names


def functions(
    tree: ast.AST, prefix: str = "", about: str = ""
) -> Iterator[tuple[str, Function, str]]:
    """Functions by name, each with its text; a constructor's is that of its class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.", ast.get_docstring(node) or "")
        elif isinstance(node, Function):
            own = ast.get_docstring(node) or ""
            yield prefix + node.name, node, own or (about if node.name == "__init__" else "")


def published() -> dict[str, set[str]]:
    """Modules, and what of them the packages publish."""
    result: dict[str, set[str]] = {}
    for face in FACES:
        tree = ast.parse(module_path(face).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
                names = {alias.name for alias in node.names}
                result.setdefault(node.module or "", set()).update(names)
    for module in CONTRACTS:
        tree = ast.parse(module_path(module).read_text())
        result[module] = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return result


def undescribed(source: str, names: set[str]) -> list[str]:
    """Published functions with more than `FEW` parameters that do not describe each."""
    return [
        f"{name}: {', '.join(missing)}"
        for name, function, text in functions(ast.parse(source))
        if name.split(".")[0] in names
        and (name.endswith(".__init__") or not name.split(".")[-1].startswith("_"))
        and len(parameters(function)) > FEW
        and (missing := [p for p in parameters(function) if p not in described(text)])
    ]


def invented(source: str) -> list[str]:
    """Functions that describe a parameter that they do not have, or one twice."""
    return [
        f"{name}: {', '.join(extra)}"
        for name, function, text in functions(ast.parse(source))
        if (
            extra := [
                p
                for p in described(text)
                if p not in parameters(function) or described(text).count(p) > 1
            ]
        )
    ]


def examples() -> Iterator[object]:
    finder = doctest.DocTestFinder(recurse=True)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if ">>> " in path.read_text():
                name = module_name(path)
                for test in finder.find(importlib.import_module(name), name):
                    if test.examples:
                        marks = [pytest.mark.slow] if test.name in SLOW else []
                        yield pytest.param(test, id=test.name, marks=marks)


def test_what_is_published_describes_its_arguments():
    modules = published()
    assert {"panas.api", "dprbft.api", "panas.data.samples"} <= set(modules)
    missing = {m: undescribed(module_path(m).read_text(), names) for m, names in modules.items()}
    assert {m: faults for m, faults in missing.items() if faults} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_descriptions_are_of_arguments_that_exist(package: str):
    faults = {
        module_name(path): found
        for path in sorted((ROOT / package).rglob("*.py"))
        if (found := invented(path.read_text()))
    }
    assert faults == {}


def test_a_missing_and_an_invented_argument_are_found():
    source = '''
def f(a, b, *, c):
    """Do.

    Args:
        a: one.
        d: of nobody.

    Raises:
        BadInput: if so.
    """


class A:
    """A class.

    Args:
        x: one.
        y: one.
        z: one.
    """

    def __init__(self, x, y, z):
        pass
'''
    assert undescribed(source, {"f", "A"}) == ["f: b, c"]
    assert undescribed(source, {"A"}) == []
    assert invented(source) == ["f: d"]


@pytest.mark.parametrize("example", examples())
def test_examples_run(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    outcome = runner.run(example, out=report.append)
    assert outcome.failed == 0, "".join(report)
    assert list(tmp_path.iterdir()) == []
