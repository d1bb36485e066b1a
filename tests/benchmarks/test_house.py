"""Each measure of a source tree finds what is planted in a small one."""

import json
from pathlib import Path

import pytest

from benchmarks.house import (
    entries,
    long_functions,
    main,
    survey,
    wide_functions,
)
from benchmarks.sources import arrows, between, circles, read_modules, reexported, upward


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write files by their path, and an empty `__init__` beside each."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in [p.parent for p in root.rglob("*.py")]:
        (folder / "__init__.py").touch()
    return root


def test_arrows_run_upward_between_floors_and_between_wings(tmp_path: Path):
    root = plant(
        tmp_path,
        {
            "panas/data/load.py": "def f():\n    from panas.privacy.noise import sigma",
            "panas/privacy/noise.py": "import panas.data.load, dprbft.messages\nsigma = 1",
            "dprbft/messages.py": "from panas.privacy.noise import sigma\nclass Head: ...",
        },
    )
    modules = read_modules(root)
    pairs = arrows(modules)
    assert upward(pairs, modules) == [
        "panas.data.load -> panas.privacy.noise",
        "panas.privacy.noise -> dprbft.messages",
    ]
    circle = ["dprbft.messages", "panas.data.load", "panas.privacy.noise"]
    assert circles(pairs) == [circle]
    wings = {name: module.wing for name, module in modules.items()}
    assert circles(between(pairs, wings)) == [["dprbft/messages", "panas/data", "panas/privacy"]]
    folders = {name: module.folder for name, module in modules.items()}
    assert len(between(pairs, folders)) == 4


def test_a_chain_is_no_circle(tmp_path: Path):
    root = plant(
        tmp_path,
        {
            "panas/a.py": "from panas import b",
            "panas/b.py": "from panas.c import x",
            "panas/c.py": "x = 1",
        },
    )
    pairs = arrows(read_modules(root))
    assert pairs == {("panas.a", "panas.b"), ("panas.b", "panas.c")}
    assert circles(pairs) == []
    pairs = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")]
    assert circles(pairs) == [["a", "b"], ["c", "d"]]


def test_relative_and_type_checking_imports_are_arrows(tmp_path: Path):
    root = plant(
        tmp_path,
        {
            "panas/data/load.py": "from . import files\nfrom ..api import search",
            "panas/data/files.py": "if TYPE_CHECKING:\n    import panas.api",
            "panas/api.py": "def search(): ...",
        },
    )
    assert arrows(read_modules(root)) == {
        ("panas.data.load", "panas.data.files"),
        ("panas.data.load", "panas.api"),
        ("panas.data.files", "panas.api"),
    }


def test_a_name_taken_from_where_it_is_not_defined_is_found(tmp_path: Path):
    root = plant(
        tmp_path,
        {
            "panas/home.py": "if b:\n    A: int = 1\ndef b(): ...\nclass C: ...\nD, (E, F) = x",
            "panas/second.py": "from panas.home import A, C, D, F, b",
            "panas/user.py": "from panas.second import C\nfrom panas import home, C as K",
        },
    )
    (root / "panas" / "__init__.py").write_text("from panas.home import C")
    modules = read_modules(root)
    assert reexported(modules) == [
        "panas.user takes C from panas",
        "panas.user takes C from panas.second",
    ]
    assert ("panas", "panas.home") not in arrows(modules)


def test_functions_are_measured_with_those_inside_them(tmp_path: Path):
    body = "\n".join(f"        x{i} = {i}" for i in range(51))
    wide = (
        "class A:\n    def m(self, a, b, /, c, d, *, e, f): ...\n"
        "    def n(cls, a, b, c, d, e, f, *g): ..."
    )
    root = plant(
        tmp_path,
        {"panas/a.py": f"def outer():\n    def inner():\n{body}\n    return inner\n{wide}"},
    )
    modules = read_modules(root)
    assert long_functions(modules) == {"panas/a.py:outer": 54, "panas/a.py:outer.inner": 52}
    assert wide_functions(modules) == {"panas/a.py:A.n": 7}


def test_entries_count_files_and_folders_but_not_the_face(tmp_path: Path):
    root = plant(
        tmp_path,
        {"panas/a.py": "", "panas/__main__.py": "", "panas/data/b.py": "", "panas/data/c.py": ""},
    )
    (root / "panas" / "py.typed").touch()
    (root / "panas" / "presets").mkdir()
    assert entries(root) == {"panas": 3, "panas/data": 2}


def test_the_survey_counts_lines_and_docstrings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    root = plant(
        tmp_path, {"panas/a.py": '"""One\n\nthree."""\nx = 1\n"""Of x."""\n' + "y = 2\n" * 450}
    )
    plant(root, {"tests/test_a.py": "assert True\n"})
    house = survey(root)
    assert house.long_modules == {"panas/a.py": 451}
    assert (house.modules, house.largest_module, house.product_lines) == (2, "panas/a.py", 455)
    assert (house.test_lines, house.docstring_share) == (1, round(4 / 455, 3))
    main([str(root), "--json"])
    assert json.loads(capsys.readouterr().out)["median_module"] == 225.5
    main([str(root)])
    assert "panas/a.py" in capsys.readouterr().out
