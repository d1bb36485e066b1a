"""Where a name that has a home is compared elsewhere: a branch on it is a second home."""

import ast
import pkgutil
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOKUPS = ("get", "pop", "index", "startswith", "endswith")
PRODUCT = ("panas", "dprbft", "baselines", "attacks", "panas_cli")


def names_in(folder: Path) -> set[str]:
    """The names of the modules of a folder, as the program spells them: with "-" too."""
    results = {m.name for m in pkgutil.iter_modules([str(folder)]) if not m.ispkg}
    return results | {name.replace("_", "-") for name in results}


def sources(*homes: Path) -> Iterator[tuple[str, str]]:
    """Path and text of all product modules outside `homes`."""
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not any(map(path.is_relative_to, homes)):
                yield str(path.relative_to(ROOT)), path.read_text()


def branches_on(source: str, names: Collection[str]) -> list[int]:
    """The lines of a module that compare with, match or look up one of the names."""
    if not any(name in source for name in names):
        return []  # unparsed
    return sorted({line for line, value in _asked_in(source) if value in names})


@cache
def _asked_in(source: str) -> list[tuple[int, object]]:
    return [(node.lineno, node.value) for node in _asked(ast.parse(source))]


def _asked(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                yield from _constants(side)
        elif isinstance(node, ast.MatchValue):
            yield from _constants(node.value)
        elif isinstance(node, ast.Dict):
            yield from (k for k in node.keys if isinstance(k, ast.Constant))
        elif isinstance(node, ast.Subscript):
            yield from _constants(node.slice)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in LOOKUPS:
            yield from (a for a in node.args if isinstance(a, ast.Constant))


def _constants(node: ast.AST) -> Iterator[ast.Constant]:
    """A constant itself, or those of a tuple, list or set."""
    if isinstance(node, ast.Constant):
        yield node
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from _constants(element)
