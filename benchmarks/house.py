"""Sizes, functions and imports of the product packages, read from the source alone.

    python -m benchmarks.house [--json] [ROOT]

`benchmarks.sources` says what arrows and circles are.
"""

import argparse
import ast
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.sources import (
    FLOORS,
    Function,
    Module,
    arrows,
    between,
    circles,
    length,
    read_modules,
    reexported,
    upward,
)

LONG_MODULE, LONG_FUNCTION, MANY_PARAMETERS = 450, 50, 6
"""What is larger than these is named in the report: lines of code, lines, parameters."""

NO_ENTRIES = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
"""What does not count among the entries of a folder."""


def entries(root: Path, packages: Iterable[str] = FLOORS) -> dict[str, int]:
    """How many files and folders each package folder holds, without `NO_ENTRIES`."""
    folders = {path.parent for package in packages for path in (root / package).rglob("*.py")}
    return {
        folder.relative_to(root).as_posix(): sum(
            entry.name not in NO_ENTRIES and not entry.name.startswith(".")
            for entry in folder.iterdir()
        )
        for folder in sorted(folders)
    }


def long_functions(modules: Mapping[str, Module], above: int = LONG_FUNCTION) -> dict[str, int]:
    """Lines of each function with more than `above`, without its decorators."""
    return {
        name: length(node)
        for module in modules.values()
        for name, node, _ in functions(module)
        if length(node) > above
    }


def wide_functions(modules: Mapping[str, Module], above: int = MANY_PARAMETERS) -> dict[str, int]:
    """Parameters of each function with more than `above`; `self` and `cls` are not counted."""
    counts = {
        name: _parameters(node, method)
        for module in modules.values()
        for name, node, method in functions(module)
    }
    return {name: count for name, count in counts.items() if count > above}


def family_checks(modules: Mapping[str, Module]) -> list[str]:
    """Conditions on the family of a method, outside of the module that lists the families."""
    results = {
        f"{module.path}:{condition.lineno}"
        for module in modules.values()
        if not module.path.endswith("config/families.py")
        for node in ast.walk(module.tree)
        for condition in _conditions(node)
        if any(_names_family(part) for part in ast.walk(condition))
    }
    return sorted(results)


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case (
            ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test)
        ):
            yield test
        case ast.comprehension(ifs=tests):
            yield from tests
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            yield node
        case ast.Match(subject=subject):
            yield subject


def _names_family(node: ast.AST) -> bool:
    """Whether this asks for a fact of a family: as now, or by the names of former versions."""
    match node:
        case ast.Attribute(attr="joins_first" | "exchanges_updates" | "has_server"):
            return True
        case ast.Attribute(value=ast.Attribute(attr="family") | ast.Name(id="family"), attr=fact):
            return fact != "reads"  # settings are the same question for all families
        case ast.Attribute(value=ast.Call(func=ast.Name(id="family_of")), attr=fact):
            return fact != "reads"
    return False


@dataclass(frozen=True, kw_only=True)
class House:
    """What the command reports; sizes in lines."""

    modules: int
    median_module: float
    largest_module: str
    largest_module_lines: int
    long_modules: dict[str, int]
    long_functions: dict[str, int]
    wide_functions: dict[str, int]
    most_entries: int
    most_entries_folder: str
    folder_arrows: int
    module_circles: list[list[str]]
    wing_circles: list[list[str]]
    upward_arrows: list[str]
    reexported_imports: list[str]
    family_checks: list[str]
    product_lines: int
    core_lines: int  # of the product, without the methods of the literature
    code_lines: int  # of the product, without empty lines, comments and docstrings
    test_lines: int
    docstring_share: float


def survey(root: Path, packages: Iterable[str] = FLOORS) -> House:
    """Measure the packages under `root`; raises `SystemExit` where none is there."""
    modules = read_modules(root, packages)
    if not modules:
        raise SystemExit(f"expected the packages {', '.join(packages)} in {root}; none is there")
    sizes = {module.path: module.code_lines for module in modules.values()}
    levels = entries(root, packages)
    pairs = arrows(modules)
    largest, fullest = max(sizes, key=sizes.__getitem__), max(levels, key=levels.__getitem__)
    lines = sum(module.lines for module in modules.values())
    literature = sum(m.lines for m in modules.values() if m.path.startswith("baselines/"))
    return House(
        modules=len(modules),
        median_module=statistics.median(sizes.values()),
        largest_module=largest,
        largest_module_lines=sizes[largest],
        long_modules={path: size for path, size in sizes.items() if size > LONG_MODULE},
        long_functions=long_functions(modules),
        wide_functions=wide_functions(modules),
        most_entries=levels[fullest],
        most_entries_folder=fullest,
        folder_arrows=len(between(pairs, {name: m.folder for name, m in modules.items()})),
        module_circles=circles(pairs),
        wing_circles=circles(between(pairs, {name: m.wing for name, m in modules.items()})),
        upward_arrows=upward(pairs, modules),
        reexported_imports=reexported(modules),
        family_checks=family_checks(modules),
        product_lines=lines,
        core_lines=lines - literature,
        code_lines=sum(sizes.values()),
        test_lines=sum(len(p.read_text().splitlines()) for p in (root / "tests").rglob("*.py")),
        docstring_share=round(sum(m.docstring_lines for m in modules.values()) / lines, 3),
    )


def report(house: House) -> str:
    """One line a number; where there are offenders, one line each below it."""
    lines = []
    for name, value in asdict(house).items():
        count = len(value) if isinstance(value, (dict, list)) else value
        lines.append(f"{name.replace('_', ' '):22} {count}")
        if isinstance(value, dict):
            lines += [f"    {size:4} {what}" for what, size in value.items()]
        elif isinstance(value, list):
            lines += [
                f"    {what if isinstance(what, str) else ' <-> '.join(what)}" for what in value
            ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the measures of one tree."""
    parser = argparse.ArgumentParser(prog="benchmarks.house", description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    chosen = parser.parse_args(arguments)
    house = survey(chosen.root)
    print(json.dumps(asdict(house), indent=2) if chosen.json else report(house))


def functions(module: Module) -> Iterator[tuple[str, Function, bool]]:
    """Each function, also nested ones: its path and dotted name, and whether it is a method."""
    yield from _functions(module.tree, module.path, False)


def _functions(node: ast.AST, within: str, method: bool) -> Iterator[tuple[str, Function, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            name = f"{within}:{child.name}" if within.endswith(".py") else f"{within}.{child.name}"
            yield name, child, method
            yield from _functions(child, name, False)
        elif isinstance(child, ast.ClassDef):
            name = f"{within}:{child.name}" if within.endswith(".py") else f"{within}.{child.name}"
            yield from _functions(child, name, True)
        else:
            yield from _functions(child, within, method)


def _parameters(node: Function, method: bool) -> int:
    named = [*node.args.posonlyargs, *node.args.args]
    first = 1 if method and named and named[0].arg in ("self", "cls") else 0
    starred = (node.args.vararg, node.args.kwarg)
    return len(named) + len(node.args.kwonlyargs) + sum(s is not None for s in starred) - first


if __name__ == "__main__":
    main()
