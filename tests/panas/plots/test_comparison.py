"""Pictures of comparisons: each line, and what has no place along an axis."""

import math
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from panas.plots import comparison
from panas.plots.comparison import Against, Line, lines, page

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
    seen, real = [], comparison.png

    def noted(draw: Any, inches: Any) -> bytes:
        def both(figure: Figure) -> None:
            draw(figure)
            seen.append(figure)

        return real(both, inches)

    monkeypatch.setattr(comparison, "png", noted)
    return seen


def points(figure: Figure, name: str) -> list[tuple[float, float]]:
    (axes,) = figure.axes
    (line,) = [x for x in axes.lines if x.get_label() == name]
    return [(float(x), float(y)) for x, y in line.get_xydata()]  # type: ignore[union-attr]


def test_accuracy_stands_over_its_round(figures: list[Figure]):
    assert lines([ROUNDS, BARE], "rounds").startswith(b"\x89PNG")
    assert points(figures[0], "a") == [(1, 0.1), (2, 0.5), (3, 0.9)]
    assert points(figures[0], "b, paper") == [(1, 0.2), (2, 0.4)]


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


def test_what_sent_nothing_stands_left_of_all_others(figures: list[Figure]):
    lines([ROUNDS, BARE], "bytes")
    ((edge, _),) = points(figures[0], "b, paper")
    assert 0 < edge < 1000
    assert figures[0].axes[0].get_xlim()[0] > 0


def test_a_page_has_all_three_and_an_empty_one_can_be_drawn(figures: list[Figure]):
    page([ROUNDS, BARE])
    assert [axes.get_xlabel() for axes in figures[0].axes] == [*comparison.LABELS.values()]
    page([])
