"""The house of CONTRIBUTING.md: imports go down, heavy libraries have one home, no side effects."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.house import LONG_MODULE, entries, family_checks, long_functions, wide_functions
from benchmarks.sources import (
    FLOORS,
    WINGS,
    Module,
    arrows,
    between,
    circles,
    places,
    read_modules,
    reexported,
    upward,
)

ROOT = Path(__file__).resolve().parents[1]
HOMES = {
    "deap": ("panas/evolution/",),
    "botorch": ("panas/tuning/",),
    "gpytorch": ("panas/tuning/",),
    "opacus": ("panas/privacy/",),
    "dp_accounting": ("panas/privacy/accounting/",),
    "pyarrow": ("panas/data/files/parquet.py",),
    "pydicom": ("panas/data/files/dicom.py",),
    "onnx": ("panas/training/export/", "panas/features/encoders/"),
    "onnxruntime": ("panas/training/export/", "panas/features/encoders/"),
    "onnxscript": ("panas/training/export/",),
    "flwr": ("dprbft/engines/flower/",),
    "cryptography": (
        "dprbft/secure_sum/",
        "dprbft/engines/deploy/certificates.py",
    ),
    "Crypto": ("dprbft/secure_sum/",),
}
MOST_ENTRIES = 15
FAMILY_CHECKS = 8

FACES = ("panas/api.py:", "dprbft/api.py:", "panas_cli/")
"""Functions that users call take as much as users may choose."""


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    result = read_modules(ROOT)
    assert len(result) > 100
    return result


def libraries(module: Module) -> Iterator[str]:
    """Top-level names of all modules that a source imports, at any depth of nesting."""
    for node in module.import_statements:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif node.level == 0 and node.module:
            yield node.module.split(".")[0]


def strays(module: Module) -> list[str]:
    return [n for n in libraries(module) if n in HOMES and not module.path.startswith(HOMES[n])]


def test_imports_go_down(modules: dict[str, Module]):
    assert upward(arrows(modules), modules) == []


def test_every_wing_has_its_level(modules: dict[str, Module]):
    levels = {
        f"{package}/{wing}" for package in WINGS for level in WINGS[package] for wing in level
    }
    wings = {m.wing for m in modules.values() if m.folder.split("/")[0] in WINGS}
    assert {wing for wing in wings if "/" in wing} <= levels


def test_there_are_no_circles(modules: dict[str, Module]):
    pairs = arrows(modules)
    assert circles(pairs) == []
    assert circles(between(pairs, {name: m.wing for name, m in modules.items()})) == []
    assert circles(between(pairs, places(modules))) == []


def reached(modules: dict[str, Module], wing: str) -> set[str]:
    """All modules that a wing imports, at any distance."""
    after: dict[str, set[str]] = {}
    for importer, target in arrows(modules):
        after.setdefault(importer, set()).add(target)
    result, waiting = set[str](), [name for name in modules if name.startswith(f"dprbft.{wing}.")]
    while waiting:
        for target in after.get(waiting.pop(), set()) - result:
            result.add(target)
            waiting.append(target)
    return result


@pytest.mark.parametrize(("wing", "other"), [("site", "server"), ("server", "site")])
def test_site_and_server_know_messages_alone(modules: dict[str, Module], wing: str, other: str):
    of_federation = {name for name in reached(modules, wing) if name.startswith("dprbft.")}
    assert "dprbft.messages" in of_federation
    assert [name for name in of_federation if name.startswith(f"dprbft.{other}.")] == []


def test_heavy_libraries_stay_home(modules: dict[str, Module]):
    assert {m.path: strays(m) for m in modules.values() if strays(m)} == {}


def test_names_are_imported_from_where_they_are_defined(modules: dict[str, Module]):
    assert reexported(modules) == []


def test_no_module_is_long_and_no_level_is_full(modules: dict[str, Module]):
    assert [m.path for m in modules.values() if m.code_lines > LONG_MODULE] == []
    assert [place for place, n in entries(ROOT).items() if n > MOST_ENTRIES] == []


def test_few_conditions_ask_for_the_family_of_a_method(modules: dict[str, Module]):
    assert len(family_checks(modules)) <= FAMILY_CHECKS


@pytest.mark.slow
def test_no_function_is_long_or_takes_much(modules: dict[str, Module]):
    results = [*long_functions(modules), *wide_functions(modules)]
    assert [name for name in results if not name.startswith(FACES)] == []


PLANTED = [
    ("panas/architecture/planted.py", "import dprbft.messages"),
    ("dprbft/server/planted.py", "def f():\n    from attacks.audit import run"),
    ("panas/data/planted.py", "from panas.privacy.budget import Budget"),
    ("dprbft/config/planted.py", "if TYPE_CHECKING:\n    import dprbft.site.site"),
]


@pytest.mark.parametrize(("path", "source"), PLANTED)
def test_an_arrow_upward_is_caught(modules: dict[str, Module], path: str, source: str):
    planted = Module(path.removesuffix(".py").replace("/", "."), path, source)
    all_modules = modules | {planted.name: planted}
    assert len(upward(arrows(all_modules), all_modules)) == 1


def test_a_reexported_name_is_caught(modules: dict[str, Module]):
    user = Module(
        "panas.tuning.planted",
        "panas/tuning/planted.py",
        "from panas.privacy.calibration import Budget",
    )
    assert "Budget" not in modules["panas.privacy.calibration"].defined
    assert reexported(modules | {user.name: user}) == [
        "panas.tuning.planted takes Budget from panas.privacy.calibration"
    ]


def test_a_circle_is_caught(modules: dict[str, Module]):
    path = "panas/privacy/noise.py"
    circular = Module("panas.privacy.noise", path, "from panas.privacy.plan import Plan")
    texts = circles(arrows(modules | {circular.name: circular}))
    assert any({"panas.privacy.noise", "panas.privacy.plan"} <= {*circle} for circle in texts)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("panas/api.py", "import botorch.models"),
        ("dprbft/site/site.py", "from opacus import GradSampleModule"),
        ("panas/privacy/plan.py", "def f():\n    from dp_accounting import pld"),
        ("dprbft/engines/inprocess.py", "import flwr"),
        ("dprbft/messages.py", "from cryptography.fernet import Fernet"),
    ],
)
def test_a_stray_library_is_caught(path: str, source: str):
    assert strays(Module(path.removesuffix(".py").replace("/", "."), path, source))


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


def test_each_file_of_tests_has_a_name_of_its_own():
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []  # pytest takes one of them


WITHOUT_BASELINES = """
import pkgutil, sys
sys.path[:] = [sys.argv[1], *(p for p in sys.path if p not in ("", sys.argv[2]))]
import dprbft
for module in pkgutil.walk_packages(dprbft.__path__, "dprbft."):
    if ".app." not in module.name:
        __import__(module.name)
from dprbft.config.families import method_names
print(method_names(), [name for name in sys.modules if name.startswith("baselines")])
"""


@pytest.mark.slow
def test_the_core_runs_without_the_methods_of_the_literature(tmp_path: Path):
    for package in ("panas", "dprbft"):
        (tmp_path / package).symlink_to(ROOT / package)
    code = [sys.executable, "-c", WITHOUT_BASELINES, str(tmp_path), str(ROOT)]
    done = subprocess.run(code, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['dprbft', 'joined', 'local'] []"
