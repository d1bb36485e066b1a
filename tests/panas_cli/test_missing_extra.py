"""Without the libraries of the extra `flower`: a line says what installs them, with exit code 2."""

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from node_sites import owned_site

from dprbft.engines.deploy.folders import Deployment, make_deployment

INSTALL = "(in the checkout: pip install '.[flower]')"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A deployment that was made where all is installed; its site has data."""
    make_deployment(tmp_path / "f", Deployment(sites=("a", "b")))
    made = owned_site(tmp_path / "made" / "a")
    for file in made.iterdir():
        file.rename(tmp_path / "f/sites/a" / file.name)
    return tmp_path / "f"


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let libraries be missing, as an import and as what is installed."""
    installed = importlib.metadata.version

    def version(name: str) -> str:
        if name in names:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
        for module in [m for m in sys.modules if m.startswith(f"{name}.")]:
            monkeypatch.delitem(sys.modules, module)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("run", "--engine", "flower", "--dataset", "digits", "--clients", "2", "--out", "{run}"),
        ("run", "--hub", "{f}/hub", "--public-data", "{f}/sites/a/data.npz", "--out", "{run}"),
        ("deploy", "start", "--hub", "{f}/hub"),
        ("deploy", "start", "--site", "{f}/sites/a"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_what_needs_flower_says_what_installs_it(
    words: tuple[str, ...],
    cli: Callable,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    without(monkeypatch, "flwr", "ray")
    told = cli(*(word.format(f=out, run=tmp_path / "run") for word in words))
    assert (told.code, told.out) == (2, "")
    assert [INSTALL in line for line in told.errors] == [True]
    assert not (tmp_path / "run").exists()


def test_a_check_names_the_library_that_is_missing(
    cli: Callable, out: Path, monkeypatch: pytest.MonkeyPatch
):
    without(monkeypatch, "flwr", "ray")
    told = cli("deploy", "check", "--site", out / "sites/a")
    assert told.code == 2
    assert INSTALL in " ".join(told.out.split())
