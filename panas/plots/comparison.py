"""Pictures of a comparison: accuracy over rounds, against bytes, against epsilon."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from panas.plots.style import legend, png, room, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito 2008, without yellow, which is faint on white; then again with other marks.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKS = ("o", "s", "^", "D")

Against = Literal["rounds", "bytes", "epsilon"]
LABELS: dict[Against, str] = {
    "rounds": "rounds",
    "bytes": "bytes, up and down, of all sites",
    "epsilon": "epsilon of everything that left so far",
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One method in one column: a point a round, all sites together."""

    name: str
    dashed: bool  # as published, where the line without dashes is sound
    rounds: Sequence[int]
    bytes: Sequence[int]
    epsilon: Sequence[float | None]  # None: not priced; infinity: unprotected
    accuracy: Sequence[float]
    spread: Sequence[float]  # standard deviation over seeds


def lines(drawn: Sequence[Line], against: Against) -> bytes:
    """Draw accuracy against rounds, bytes or epsilon, as a PNG; a method has one colour.

    What has no finite place along the x axis stands at its edge: nothing sent, no protection.
    """
    return _panels(drawn, [against], (7.2, 4.0))


def page(drawn: Sequence[Line]) -> bytes:
    """Draw all three beside each other, as a PNG."""
    return _panels(drawn, get_args(Against), (12.0, 3.6))


def _panels(drawn: Sequence[Line], axis: Sequence[Against], inches: tuple[float, float]) -> bytes:
    def draw(figure: "Figure") -> None:
        panels = figure.subplots(1, len(axis), sharey=True, squeeze=False)[0]
        for panel, against in zip(panels, axis, strict=True):
            _panel(panel, drawn, against)
            if panel is not panels[0]:
                panel.set_ylabel("")
        panels[0].set_title("Mean over seeds; as published where dashed")
        legend(panels[-1], beside=True)

    return png(draw, inches)


def _panel(axes: "Axes", drawn: Sequence[Line], against: Against) -> None:
    """Accuracy against one of the three."""
    names = list(dict.fromkeys(line.name for line in drawn))
    edge = _edge(drawn, against)
    for line in drawn:
        at = names.index(line.name)
        look = {
            "color": COLOURS[at % len(COLOURS)],
            "marker": MARKS[at // len(COLOURS) % len(MARKS)],
            "linestyle": "--" if line.dashed else "-",
            "label": f"{line.name}, paper" if line.dashed else line.name,
        }
        _line(axes, line, against, edge, look)
    room(axes, [a for line in drawn for a in line.accuracy])
    axes.set(xlabel=LABELS[against], ylabel="mean accuracy of the sites")
    _scale(axes, drawn, against, edge)


def _edge(drawn: Sequence[Line], against: Against) -> float:
    """Where along the x axis stands what has no place there."""
    known = [x for line in drawn for x in getattr(line, against) if _placed(x, against)]
    if against == "bytes":
        return min(known, default=1e3) / 4
    return 1.2 * max(known, default=1.0)


def _placed(x: float | None, against: Against) -> bool:
    """Whether a value has a place along the x axis."""
    return x is not None and math.isfinite(x) and (against != "bytes" or x > 0)


def _outside(line: Line, against: Against) -> list[int]:
    """The last point of a line that has no place along the x axis; none if all have one."""
    x: Sequence[float | None] = getattr(line, against)
    return [k for k in range(len(x)) if x[k] is not None and not _placed(x[k], against)][-1:]


def _line(axes: "Axes", line: Line, against: Against, edge: float, look: dict[str, str]) -> None:
    """One line, with its spread over seeds; only its last point where it has no place."""
    x: Sequence[float | None] = getattr(line, against)
    kept = [k for k in range(len(x)) if _placed(x[k], against)]
    outside = _outside(line, against)
    xs = [x[k] or 0.0 for k in kept] + [edge for _ in outside]
    y = [line.accuracy[k] for k in (*kept, *outside)]
    few = max(1, len(xs) // 12)
    axes.plot(xs, y, lw=1.4, ms=4.5, markevery=few, **look)  # type: ignore[arg-type]
    if any(line.spread) and against == "rounds":
        low = [line.accuracy[k] - line.spread[k] for k in kept]
        high = [line.accuracy[k] + line.spread[k] for k in kept]
        axes.fill_between(xs, low, high, color=look["color"], alpha=0.12, lw=0)


def _scale(axes: "Axes", drawn: Sequence[Line], against: Against, edge: float) -> None:
    """What the x axis counts in, and what its edge means."""
    from matplotlib.ticker import EngFormatter, NullLocator

    if against == "rounds":
        whole_numbers(axes, 8)
        return
    if against == "bytes":
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(unit="B", sep=" "))
        axes.xaxis.set_minor_locator(NullLocator())
    at_edge = [line.accuracy[k] for line in drawn for k in _outside(line, against)]
    if not at_edge:
        return
    axes.axvline(edge, color="#999999", lw=0.8, ls=":")
    low, high = axes.get_ylim()  # the words stand at the end farther from the points
    end: Literal["top", "bottom"] = "top" if high - max(at_edge) >= min(at_edge) - low else "bottom"
    axes.text(
        edge,
        1.0 if end == "top" else 0.0,
        " nothing sent " if against == "bytes" else " no protection ",
        transform=axes.get_xaxis_transform(),
        ha="right",
        va=end,
        rotation=90,
        fontsize=7,
    )
