"""Public functions say what their arguments are, and their examples run."""

import ast
import doctest
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("panas", "dprbft", "baselines", "attacks", "panas_cli")
FEW = 2
"""Parameters that need no description of their own."""

SLOW = {"dprbft.api.simulate", "panas.api.tune"}
"""Examples of more than half a second."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
ENTRY = re.compile(r"^    (\w+): ")


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


def classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


@functools.cache
def explained_methods() -> set[str]:
    """The project's methods, as `Class.method`, that describe their arguments."""
    return {
        f"{owner.name}.{name}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for owner in classes(ast.parse(path.read_text()))
        for name, _, text in functions(owner)
        if described(text)
    }


def overrides(name: str, tree: ast.AST, explained: set[str]) -> bool:
    """Whether a base that the method's class names explains the method."""
    owner, _, method = name.rpartition(".")
    bases = {
        ast.unparse(base).split("[")[0].split(".")[-1]
        for node in classes(tree)
        if node.name == owner.split(".")[-1]
        for base in node.bases
    }
    return any(f"{base}.{method}" in explained for base in bases)


def is_command(function: Function, tree: ast.Module) -> bool:
    """Whether options with a help of their own describe the arguments."""
    options = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and "help=" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    a = function.args
    shown = [p.annotation for p in (*a.args, *a.kwonlyargs) if p.annotation is not None]
    return any("help=" in ast.unparse(x) or ast.unparse(x) in options for x in shown)


def undescribed(source: str, explained: set[str]) -> list[str]:
    """Public functions with more than `FEW` parameters that do not describe each."""
    tree = ast.parse(source)
    return [
        f"{name}: {', '.join(missing)}"
        for name, function, text in functions(tree)
        if not any(part.startswith("_") for part in name.removesuffix("__init__").split("."))
        and len(parameters(function)) > FEW
        and (missing := [p for p in parameters(function) if p not in described(text)])
        and not overrides(name, tree, explained)
        and not is_command(function, tree)
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


@pytest.mark.parametrize("package", PACKAGES)
def test_public_functions_describe_their_arguments(package: str):
    missing = {
        module_name(path): faults
        for path in sorted((ROOT / package).rglob("*.py"))
        if (faults := undescribed(path.read_text(), explained_methods()))
    }
    assert missing == {}


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

    def g(self, a, b, c):
        """Do."""

    def _h(self, a, b, c):
        """Do."""


class B(A):
    """A class that says nothing of its arguments."""

    def __init__(self, a, b, c):
        pass

    def g(self, a, b, c):
        """Do."""
'''
    assert undescribed(source, set()) == [
        "f: b, c",
        "A.g: a, b, c",
        "B.__init__: a, b, c",
        "B.g: a, b, c",
    ]
    assert "B.g: a, b, c" not in undescribed(source, {"A.g"})
    assert invented(source) == ["f: d"]


@pytest.mark.parametrize("example", examples())
def test_examples_run(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    outcome = runner.run(example, out=report.append)
    assert outcome.failed == 0, "".join(report)
    assert list(tmp_path.iterdir()) == []
