"""Shape checks for every test, and the folder of real data where there is one."""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

ROOT = Path(__file__).resolve().parents[1]

# Modules that name shapes are checked whenever a test calls them; mypy has checked the others.
SHAPED = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for package in ("panas", "dprbft", "attacks")
    for file in (ROOT / package).rglob("*.py")
    if "from jaxtyping import" in file.read_text()
]
install_import_hook(SHAPED, "beartype.beartype")

# A test that says nothing else tries 40 examples; HYPOTHESIS_PROFILE=default tries 100.
settings.register_profile("quick", max_examples=40, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own state, and none sees another's."""
    monkeypatch.setenv("PANAS_STATE", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data (environment variable PANAS_DATA, or ../shared/data)."""
    folder = Path(os.environ.get("PANAS_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set PANAS_DATA to its folder")
    return folder
