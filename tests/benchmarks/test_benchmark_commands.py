"""The commands that the documents and the docstrings name are there, each in one wing."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import benchmarks

ROOT = Path(benchmarks.__file__).parents[1]
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for part in ("docs", "notebooks") for path in (ROOT / part).rglob("*.md")),
    *(
        path
        for part in ("panas", "dprbft", "baselines", "attacks", "benchmarks")
        for path in (ROOT / part).rglob("*.py")
    ),
]
NAMED = sorted(
    {n for text in TEXTS for n in re.findall(r"benchmarks\.([a-z_]+)", text.read_text())}
)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_module_is_found(name: str):
    result = find_spec(f"benchmarks.{name}")
    assert result is not None
    assert result.origin is not None
    assert result.origin.endswith((f"/{name}.py", f"/{name}/__init__.py"))


def test_no_name_is_in_two_wings():
    folders = [Path(benchmarks.__file__).parent, *(Path(p) for p in benchmarks.__path__)]
    names = [path.stem for folder in {*folders} for path in folder.glob("[!_]*.py")]
    assert len(names) == len({*names}) >= 20
