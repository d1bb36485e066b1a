"""Every notebook is the script beside it; `make notebooks` executes them."""

from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext", reason="the extra `notebooks` is not installed")

SCRIPTS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_holds_the_cells_of_its_script(script: Path):
    expected = jupytext.read(script).cells
    result = jupytext.read(script.with_suffix(".ipynb")).cells
    assert [(c.cell_type, c.source) for c in result] == [(c.cell_type, c.source) for c in expected]
