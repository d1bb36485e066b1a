"""Pictures of comparisons: lines, what has no place along an axis, what each step brought."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color, to_hex
from matplotlib.figure import Figure

from panas.plots import comparison
from panas.plots import ladder as picture
from panas.plots.comparison import Against, Line, lines, page
from panas.plots.ladder import LOOKS, MOST_NAMED, Accuracies, ladder
from panas.plots.style import GREEN, RED

ROUNDS = Line(
    name="a",
    dashed=False,
    rounds=[1, 2, 3],
    bytes=[1000, 2000, 3000],
    epsilon=[1.0, None, 3.0],
    accuracy=[0.1, 0.5, 0.9],
    spread=[0.0, 0.1, 0.0],
)
BARE = Line(
    name="b",
    dashed=True,
    rounds=[1, 2],
    bytes=[0, 0],
    epsilon=[math.inf, math.inf],
    accuracy=[0.2, 0.4],
    spread=[0.0, 0.0],
)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn."""
    seen: list[Figure] = []

    def noted(draw: Callable[[Figure], None], inches: tuple[float, float]) -> bytes:
        seen.append(Figure(figsize=inches))
        draw(seen[-1])
        return b""

    for module in (comparison, picture):
        monkeypatch.setattr(module, "png", noted)
    return seen


def points(figure: Figure, name: str) -> list[tuple[float, float]]:
    (axes,) = figure.axes
    (line,) = [x for x in axes.lines if x.get_label() == name]
    return [(float(x), float(y)) for x, y in line.get_xydata()]  # type: ignore[union-attr]


def test_accuracy_stands_over_its_round_and_what_sent_nothing_left_of_all_others(
    figures: list[Figure],
):
    lines([ROUNDS, BARE], "rounds")
    assert points(figures[0], "a") == [(1, 0.1), (2, 0.5), (3, 0.9)]
    assert points(figures[0], "b, paper") == [(1, 0.2), (2, 0.4)]
    lines([ROUNDS, BARE], "bytes")
    ((edge, _),) = points(figures[1], "b, paper")
    assert 0 < edge < 1000
    assert figures[1].axes[0].get_xlim()[0] > 0


def test_what_was_not_priced_is_left_out_and_what_is_infinite_stands_at_the_edge(
    figures: list[Figure],
):
    lines([ROUNDS, BARE], "epsilon")
    assert points(figures[0], "a") == [(1, 0.1), (3, 0.9)]
    ((edge, last),) = points(figures[0], "b, paper")
    assert edge > 3
    assert last == 0.4
    assert [t.get_text().strip() for t in figures[0].axes[0].texts] == ["no protection"]


@pytest.mark.parametrize(
    ("standing", "end"), [([0.9], "bottom"), ([0.1], "top"), ([0.8, 0.7], "bottom")]
)
@pytest.mark.parametrize(("against", "outside"), [("epsilon", math.inf), ("bytes", 0)])
def test_words_at_the_edge_are_away_from_the_points_there(
    figures: list[Figure], against: Against, outside: float, standing: list[float], end: str
):
    at_edge = [
        replace(ROUNDS, name=f"{y}", accuracy=[0.1, 0.9, y], **{against: [1.0, None, outside]})
        for y in standing
    ]
    lines([ROUNDS, *at_edge], against)
    (axes,) = figures[0].axes
    (words,) = axes.texts
    assert words.get_verticalalignment() == end
    assert words.get_position()[1] == (0 if end == "bottom" else 1)


@pytest.mark.slow
def test_a_page_has_all_three_and_an_empty_one_can_be_drawn(figures: list[Figure]):
    page([ROUNDS, BARE])
    assert [axes.get_xlabel() for axes in figures[0].axes] == [*comparison.LABELS.values()]
    page([])
    for figure in figures:
        FigureCanvasAgg(figure).draw()


ROWS = [
    ("north", Accuracies(majority=0.4, public=0.6, alone=0.7, joined=0.8)),
    ("south", Accuracies(majority=0.5, public=0.7, alone=0.9, joined=0.8)),
]


def marks(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    return {
        str(c.get_label()): [tuple(map(float, p)) for p in c.get_offsets()]
        for c in axes.collections
    }


def test_sites_stand_below_their_mean_and_what_is_unknown_is_left_out(figures: list[Figure]):
    ladder(ROWS)
    (axes,) = figures[0].axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["mean", "north", "south"]
    result = marks(axes)
    assert result.keys() == {
        x.label for x in LOOKS if x.step in ("majority", "public", "alone", "joined")
    }
    assert result["joined"] == [(pytest.approx(0.8), 0), (0.8, 1), (0.8, 2)]
    assert result["alone"] == [(pytest.approx(0.8), 0), (0.7, 1), (0.9, 2)]


def test_what_joining_cost_is_red_and_means_over_different_sites_are_not_compared(
    figures: list[Figure],
):
    ladder(ROWS)
    lines = {float(line.get_ydata()[0]): line for line in figures[0].axes[0].lines}
    assert same_color(to_hex(lines[1.0].get_color()), GREEN)
    assert same_color(to_hex(lines[2.0].get_color()), RED)
    ladder([*ROWS, ("west", Accuracies(joined=0.1))])
    assert [
        float(line.get_ydata()[0])
        for line in figures[1].axes[0].lines
        if len(line.get_xdata()) == 2 and line.get_xdata()[0] != 0
    ] == [1.0, 2.0]


def test_many_sites_have_no_names(figures: list[Figure]):
    ladder([(f"site-{k}", Accuracies(joined=0.5)) for k in range(MOST_NAMED + 60)])
    assert [t.get_text() for t in figures[0].axes[0].get_yticklabels()] == ["mean"]
    assert figures[0].get_figheight() < 13


@pytest.mark.slow
def test_a_ladder_is_a_png():
    assert ladder(ROWS)[:4] == b"\x89PNG" == ladder([("only", Accuracies())])[:4]
    assert ladder(ROWS) == ladder(ROWS)
