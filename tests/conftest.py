"""Shape checks for every test, and the folder of real data where there is one."""

import os
import uuid
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook
from matplotlib.backends.backend_agg import FigureCanvasAgg

ROOT = Path(__file__).resolve().parents[1]

# Modules that name shapes are checked whenever a quick test calls them; mypy checks the others.
SHAPED = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for package in ("panas", "dprbft", "baselines", "attacks")
    for file in (ROOT / package).rglob("*.py")
    if "from jaxtyping import" in file.read_text()
]
if os.environ.get("SHAPES") != "unchecked":
    install_import_hook(SHAPED, "beartype.beartype")

# A test that says nothing else tries 25 examples, the same each time: no change is refused by
# chance. HYPOTHESIS_PROFILE=default tries 100 others.
settings.register_profile("quick", max_examples=25, deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


FIRST = ("test_docs.py", "test_interrupted.py")
"""The files with the longest tests: begun last, they would keep one process waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest."""
    items.sort(key=lambda item: item.path.name not in FIRST)


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own state, and none sees another's."""
    folder = tmp_path_factory.getbasetemp() / f"state-{uuid.uuid4().hex}"
    monkeypatch.setenv("PANAS_STATE", str(folder))


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait for the disk, and those of runs draw no picture.

    A killed process loses nothing that it has written: what `fsync` guards against is a machine
    that stops. Processes that tests start, as runs that die, do all of it.
    """
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    if {"dprbft", "baselines", "attacks", "panas_cli"} & set(request.path.parts):
        monkeypatch.setattr(FigureCanvasAgg, "print_png", _small_picture)


def _small_picture(canvas: FigureCanvasAgg, file: IO[bytes], **options: Any) -> None:
    file.write(bytes.fromhex("89504e470d0a1a0a") + b"not drawn: only a test" * 50)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data (environment variable PANAS_DATA, or ../shared/data)."""
    folder = Path(os.environ.get("PANAS_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set PANAS_DATA to its folder")
    return folder
