"""The picture of what each step brought."""

from collections.abc import Callable

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color, to_hex
from matplotlib.figure import Figure

from panas.plots import ladder as picture
from panas.plots.ladder import LOOKS, MOST_NAMED, Accuracies, ladder
from panas.plots.style import GREEN, RED

ROWS = [
    ("north", Accuracies(majority=0.4, public=0.6, alone=0.7, joined=0.8)),
    ("south", Accuracies(majority=0.5, public=0.7, alone=0.9, joined=0.8)),
]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Figure:
    figure = Figure()

    def draw(what: Callable[[Figure], None], inches: tuple[float, float]) -> bytes:
        figure.set_size_inches(inches)
        what(figure)
        return b""

    monkeypatch.setattr(picture, "png", draw)
    return figure


def marks(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    return {
        str(c.get_label()): [tuple(map(float, p)) for p in c.get_offsets()]
        for c in axes.collections
    }


def test_sites_stand_below_their_mean_and_what_is_unknown_is_left_out(drawn: Figure):
    ladder(ROWS)
    (axes,) = drawn.axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["mean", "north", "south"]
    found = marks(axes)
    assert found.keys() == {
        x.label for x in LOOKS if x.step in ("majority", "public", "alone", "joined")
    }
    assert found["joined"] == [(pytest.approx(0.8), 0), (0.8, 1), (0.8, 2)]
    assert found["alone"] == [(pytest.approx(0.8), 0), (0.7, 1), (0.9, 2)]


def test_what_joining_cost_is_red(drawn: Figure):
    ladder(ROWS)
    lines = {float(line.get_ydata()[0]): line for line in drawn.axes[0].lines}
    assert same_color(to_hex(lines[1.0].get_color()), GREEN)
    assert same_color(to_hex(lines[2.0].get_color()), RED)


def test_means_over_different_sites_are_not_compared(drawn: Figure):
    ladder([*ROWS, ("west", Accuracies(joined=0.1))])
    assert [
        float(line.get_ydata()[0])
        for line in drawn.axes[0].lines
        if len(line.get_xdata()) == 2 and line.get_xdata()[0] != 0
    ] == [1.0, 2.0]


def test_many_sites_have_no_names(drawn: Figure):
    ladder([(f"site-{k}", Accuracies(joined=0.5)) for k in range(MOST_NAMED + 60)])
    assert [t.get_text() for t in drawn.axes[0].get_yticklabels()] == ["mean"]
    assert drawn.get_figheight() < 13


@pytest.mark.slow
def test_it_is_a_png():
    assert ladder(ROWS)[:4] == b"\x89PNG" == ladder([("only", Accuracies())])[:4]
    assert ladder(ROWS) == ladder(ROWS)
