"""Pictures of an audit: of a table, the cells of a row beside what attacks make of them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attacks.audit import pictures
from panas.data.arrays import as_samples
from panas.data.files.columns import Column, squares

COLUMNS = (
    Column(name="age", centre=50.0, reach=45.0),
    Column(name="sex", kind="text", categories=("female", "male")),
    Column(name="cholesterol", centre=240.0, reach=150.0, missing=True),
    Column(name="admitted", kind="date", centre=18_000.0, reach=2000.0),
    Column(name="free"),
    Column(name="city", kind="text"),
)
CELLS = ([63.0], [1.0], [np.nan], [18_500.0], [-3.0], [0.0])
TEXTS = ((), ("female", "male"), (), (), (), ("Rome",))
SHOWN = ["63", "male", "missing", "2020-08-26", "-3", "(hashed)"]


def features() -> np.ndarray:
    return np.concatenate(
        [
            c.features(np.array(cells), texts)
            for c, cells, texts in zip(COLUMNS, CELLS, TEXTS, strict=True)
        ],
        axis=1,
    )


def test_features_are_shown_as_cells():
    row = torch.from_numpy(squares(features()))[0]
    assert pictures._cells(row, COLUMNS) == SHOWN


def test_what_an_attack_makes_of_a_row_is_always_text():
    for extreme in (-1.0, 1.0):
        row = torch.full((1, 4, 4), extreme)
        assert all(pictures._cells(row, COLUMNS))
    assert pictures._cells(torch.ones(1, 4, 4), COLUMNS)[1] == "female"


@pytest.mark.parametrize("columns", [(), COLUMNS])
def test_a_table_is_drawn_as_a_table_and_pictures_as_pictures(
    columns: tuple[Column, ...], monkeypatch: pytest.MonkeyPatch
):
    drawn: list[str] = []
    for name in ("draw_cells", "draw_images"):
        monkeypatch.setattr(pictures, name, lambda *_, name=name: drawn.append(name) or b"")
    samples = as_samples((torch.zeros(2, 1, 4, 4), torch.tensor([0, 1])))
    pictures.draw_samples(samples, {"ridge": samples.inputs()}, columns, "no leak")
    assert drawn == ["draw_cells" if columns else "draw_images"]


def test_a_column_may_have_any_name(monkeypatch: pytest.MonkeyPatch):
    drawn: list[Figure] = []

    def png(draw: Callable[[Figure], None], inches: tuple[float, float]) -> bytes:
        figure = Figure(figsize=inches)
        draw(figure)
        FigureCanvasAgg(figure).draw()  # for once: else tests draw nothing
        drawn.append(figure)
        return b""

    monkeypatch.setattr(pictures, "png", png)
    names = ("cost_$/kg^$", "$5_to_$10")
    columns = tuple(Column(name=name, centre=0.0, reach=1.0) for name in names)
    row = torch.zeros(1, 2, 2)
    pictures.draw_cells(row, {"a_$x_$": row}, columns, "no leak")
    assert len(drawn) == 1


def test_a_wide_table_says_how_many_columns_are_left_out(monkeypatch: pytest.MonkeyPatch):
    texts: list[list[str]] = []

    def png(draw: Callable[[Figure], None], inches: tuple[float, float]) -> bytes:
        figure = Figure(figsize=inches)
        draw(figure)
        (table,) = figure.axes[0].tables
        lines = 1 + max(line for line, _ in table.get_celld())
        for line in range(lines):
            texts.append([table[line, k].get_text().get_text() for k in range(3)])
        return b""

    monkeypatch.setattr(pictures, "png", png)
    wide = tuple(Column(name=f"c{k}", centre=float(k), reach=1.0) for k in range(20))
    row = torch.from_numpy(squares(np.zeros((1, 20), np.float32)))[0]
    pictures.draw_cells(row, {"ridge": row}, wide, "no leak")
    assert texts[0] == ["column", "original", "ridge"]
    assert texts[1:4] == [[f"c{k}", f"{k}", f"{k}"] for k in range(3)]
    assert texts[-1] == ["+ 8 more", "", ""]
