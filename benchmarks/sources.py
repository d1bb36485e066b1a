"""The modules of a source tree, and the imports between them, read without importing anything.

A *module* is one Python file, a *folder* what holds it, a *wing* the first name below a package
(`panas/data`, `panas/api`). An *arrow* goes from an importer to what it imports, at any depth of
nesting and also under `TYPE_CHECKING`; it goes *upward* where it leads to a later floor of
`FLOORS`, or to a later level of `WINGS` in the same package. A *circle* is a strongly connected
component larger than one. A package's `__init__` may publish names of its own package: that is its
face for users, and no arrow; a module that imports a name through it counts as `reexported`.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FLOORS = ("panas", "dprbft", "baselines", "attacks", "panas_cli")
"""The product packages, lowest first."""

WINGS = {
    "panas": (
        ("runtime",),
        ("data",),
        ("features",),
        ("architecture",),
        ("privacy",),
        ("training",),
        ("evolution", "tuning"),
        ("search_modes", "plots"),
        ("api",),
    ),
    "dprbft": (
        ("config", "wire"),
        ("messages", "paths"),
        ("updates", "secure_sum"),
        ("site",),
        ("methods",),
        ("engines",),
        ("server", "simulation"),
        ("run",),
        ("api",),
    ),
    "attacks": (
        ("statistics",),
        ("threats",),
        ("reconstruction", "inference", "epsilon", "hijacking"),
        ("conformance",),
        ("audit", "replay"),
    ),
}
"""The wings of a package in levels, lowest first."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Import:
    """One name, or one whole module (`name` is None), that a module imports."""

    importer: str
    target: str
    name: str | None


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, its path from the root, and its text."""

    name: str
    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.source)

    @cached_property
    def import_statements(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """All of them, at any depth of nesting."""
        return tuple(
            node for node in ast.walk(self.tree) if isinstance(node, (ast.Import, ast.ImportFrom))
        )

    @property
    def is_face(self) -> bool:
        """Whether this is a package's `__init__`."""
        return self.path.endswith("/__init__.py")

    @property
    def lines(self) -> int:
        """Lines, empty ones too."""
        return len(self.source.splitlines())

    @cached_property
    def code_lines(self) -> int:
        """Lines that are neither empty, nor comments, nor docstrings."""
        texts = {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        return sum(
            bool(line.strip()) and not line.lstrip().startswith("#") and number not in texts
            for number, line in enumerate(self.source.splitlines(), start=1)
        )

    @property
    def folder(self) -> str:
        """The folder that holds the file."""
        return self.path.rsplit("/", 1)[0]

    @property
    def wing(self) -> str:
        """`package/wing`, or the package alone for its `__init__`."""
        return "/".join(self.name.split(".")[:2])

    @cached_property
    def defined(self) -> set[str]:
        """Names bound at the top level, but not by an import."""
        return set(_bound(self.tree.body))

    @cached_property
    def docstring_lines(self) -> int:
        """Lines of strings that stand alone as a statement."""
        texts = (
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        return sum(length(node) for node in texts)


def read_modules(root: Path, packages: Iterable[str] = FLOORS) -> dict[str, Module]:
    """All modules of the packages under `root` by their dotted name."""
    results = {}
    for path in sorted(p for package in packages for p in (root / package).rglob("*.py")):
        relative = path.relative_to(root)
        parts = relative.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        results[name] = Module(name, relative.as_posix(), path.read_text())
    return results


def imports(module: Module, modules: Mapping[str, Module]) -> Iterator[Import]:
    """What a module imports from the given modules; libraries are left out."""
    for node in module.import_statements:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in modules:
                    yield Import(importer=module.name, target=alias.name, name=None)
        else:
            source = _absolute(module, node)
            for alias in node.names:
                if (whole := f"{source}.{alias.name}") in modules:
                    yield Import(importer=module.name, target=whole, name=None)
                elif source in modules:
                    yield Import(importer=module.name, target=source, name=alias.name)


def arrows(modules: Mapping[str, Module]) -> set[tuple[str, str]]:
    """Importer and target of every import but those of a package's face from its own package."""
    return {
        (result.importer, result.target)
        for module in modules.values()
        for result in imports(module, modules)
        if result.importer != result.target
        and not (module.is_face and result.target.startswith(f"{module.name}."))
    }


def places(modules: Mapping[str, Module]) -> dict[str, str]:
    """The folder of each module; where that holds folders too, the module is a place of its own."""
    folders = {module.folder for module in modules.values()}
    mixed = {folder.rsplit("/", 1)[0] for folder in folders if "/" in folder}
    return {n: m.path if m.folder in mixed else m.folder for n, m in modules.items()}


def between(pairs: Iterable[tuple[str, str]], part: Mapping[str, str]) -> set[tuple[str, str]]:
    """The arrows between the parts (folders or wings) to which the modules belong."""
    return {(part[a], part[b]) for a, b in pairs if part[a] != part[b]}


def upward(pairs: Iterable[tuple[str, str]], modules: Mapping[str, Module]) -> list[str]:
    """The arrows that lead to a higher floor, or to a higher wing of the same package."""
    return sorted(f"{a} -> {b}" for a, b in pairs if _rises(modules[a].wing, modules[b].wing))


def circles(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The strongly connected components larger than one, each in order."""
    after: dict[str, set[str]] = {}
    for a, b in pairs:
        after.setdefault(a, set()).add(b)
    reach = {start: _reached(start, after) for start in after}
    results = {
        tuple(sorted(b for b in reach[a] if a in reach.get(b, ()))) for a in reach if a in reach[a]
    }
    return [list(circle) for circle in sorted(results)]


def reexported(modules: Mapping[str, Module]) -> list[str]:
    """Imports of a name from a module of these that does not define it, by all but faces."""
    return sorted(
        f"{result.importer} takes {result.name} from {result.target}"
        for module in modules.values()
        if not module.is_face
        for result in imports(module, modules)
        if result.name not in (None, "*") and result.name not in modules[result.target].defined
    )


def length(node: ast.stmt) -> int:
    """Lines of a statement, without its decorators."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name after `from`, also where it is relative."""
    parts = module.name.split(".")
    kept = len(parts) - node.level + module.is_face if node.level else 0
    return ".".join([*parts[:kept], *([node.module] if node.module else [])])


def _rises(importer: str, target: str) -> bool:
    (floor, *wing), (above, *target_wing) = importer.split("/"), target.split("/")
    if floor != above:
        return FLOORS.index(above) > FLOORS.index(floor)
    order = {name: level for level, names in enumerate(WINGS.get(floor, ())) for name in names}
    known = [order.get(name, -1) for name in (*wing, *target_wing)]
    return len(known) == 2 and -1 not in known and known[1] > known[0]


def _reached(start: str, after: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = after.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += fresh
    return reached


def _bound(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (Function, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (part for target in targets for part in ast.walk(target))
            yield from (part.id for part in names if isinstance(part, ast.Name))
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _bound([*node.body, *node.orelse])
