"""A package's public names, each imported when first asked for, and what is said of their fields.

`import panas` loads no library. The source says once, where a field is declared, what it is: in the
comment beside, the one above, or the docstring below. `panas config` lists it from there, and
`help` shows it for a package's public dataclasses.
"""

import ast
import inspect
import io
import tokenize
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def face(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose source is in this file.

    Its names are those that it imports for type checkers alone (`if TYPE_CHECKING`).
    """
    (block,) = (n for n in ast.parse(Path(file).read_text()).body if isinstance(n, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def lookup(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        if isinstance(value, type) and is_dataclass(value):
            _explain_fields(value)
        return value

    return lookup, lambda: sorted(homes), sorted(homes)


def modules(package: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package whose modules are each loaded when first asked for."""

    def lookup(name: str) -> ModuleType:
        if name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return lookup


@cache
def field_comments(owner: type) -> dict[str, str]:
    """The comment of each commented field of a class, by name, as one line."""
    texts: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base is not object and (source := inspect.getsourcefile(base)):
            texts |= _in_source(Path(source).read_text(), base.__name__)
    return texts


def _explain_fields(owner: type) -> None:
    """Add what is said of a dataclass's fields to its docstring, once."""
    before = owner.__doc__ or ""
    if "\n\nFields:\n" not in before and (texts := field_comments(owner)):
        lines = (f"    {name}: {text}" for name, text in texts.items())
        owner.__doc__ = "\n".join([f"{before.rstrip()}\n\nFields:", *lines])


def _in_source(source: str, owner: str) -> dict[str, str]:
    comments, alone = _comments(source)
    texts: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or node.name != owner:
            continue
        for k, field in enumerate(node.body):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            parts: list[str] = []
            line = field.lineno - 1
            while line in alone:
                parts.insert(0, comments[line])
                line -= 1
            last = field.end_lineno or field.lineno
            parts += [comments[n] for n in range(field.lineno, last + 1) if n in comments]
            parts.append(_docstring(node.body[k + 1]) if k + 1 < len(node.body) else "")
            if text := " ".join(" ".join(parts).split()):
                texts[field.target.id] = text
    return texts


def _comments(source: str) -> tuple[dict[int, str], set[int]]:
    """The comment of each line, and the lines that are nothing but a comment."""
    comments, alone = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            comments[line] = token.string.lstrip("# ")
            if not token.line[:column].strip():
                alone.add(line)
    return comments, alone


def _docstring(node: ast.stmt) -> str:
    """The text of a statement that is nothing but a text."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value.value if isinstance(node.value.value, str) else ""
    return ""
