"""Pictures with a row for each thing: accuracies, epsilons, gains, and bars of bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from panas_cli.report.charts.svg import (
    LETTER,
    MARKS,
    WIDE,
    Scale,
    element,
    line,
    number,
    picture,
    shortened,
    spread,
    text,
)

ROW, TOP, BELOW = 24.0, 10.0, 22.0
"""Units: height of a row, and space over the first and below the last."""
MOST_LETTERS = 24
"""Letters of a row's name."""
ODDS_TWENTY = math.log(20)
"""Epsilon at which odds are 20."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A value in a row of its own."""

    name: str
    value: float | None  # None or infinite: no mark
    told: str  # the value in words
    look: str = "mute"  # a colour
    mark: str = "dot"
    span: tuple[float, float] | None = None  # an interval around it
    strong: bool = False  # in bold


def dots(
    told: str, rows: Sequence[Row], scale: tuple[float, float], *, log: bool = False
) -> Markup:
    """A mark in each row, on one scale below all; the value stands at the right.

    Args:
        told: what it shows, for a screen reader, before the values.
        rows: from top to bottom, at least one.
        scale: lowest and highest value.
        log: whether the scale is logarithmic.
    """
    names = [shortened(row.name, MOST_LETTERS) for row in rows]
    left = 6 + LETTER * max(map(len, names))
    right = WIDE - 8 - LETTER * max(len(row.told) for row in rows)
    across = Scale(low=scale[0], high=scale[1], start=left + 6, end=right - 8, log=log)
    end = TOP + ROW * len(rows)
    parts = []
    for value in across.ticks(4):
        parts.append(line((across(value), TOP), (across(value), end), "grid"))
        parts.append(text(across(value), end + 15, number(value), "tick", "middle"))
    for k, (name, row) in enumerate(zip(names, rows, strict=True)):
        y, bold = TOP + ROW * (k + 0.5), "strong" if row.strong else ""
        parts.append(text(left, y + 4, name, bold, "end"))
        if row.span:
            parts.append(line((across(row.span[0]), y), (across(row.span[1]), y), row.look))
        if row.value is not None and math.isfinite(row.value):
            parts.append(MARKS[row.mark](across(row.value), y, row.look))
        parts.append(text(WIDE - 2, y + 4, row.told, bold, "end"))
    values = "; ".join(f"{row.name} {row.told}" for row in rows)
    return picture(f"{told}: {values}", end + BELOW, parts)


def gains(told: str, rows: Sequence[Row]) -> Markup:
    """Gains with their errors, around a line at 0, in points."""
    ends = [end for row in rows for end in (row.span or ())]
    values = [row.value for row in rows if row.value is not None]
    low, high = spread([0.0, *values, *ends])
    return dots(told, rows, (low, high))


def bars(told: str, rows: Sequence[Row], most: float = 1.0) -> Markup:
    """A bar in each row, from 0 to `most`, under its name and value.

    Args:
        told: what it shows, for a screen reader, before the values.
        rows: from top to bottom, at least one.
        most: the value of a bar as long as the picture is wide, above 0.
    """
    parts, tall = [], 38.0
    for k, row in enumerate(rows):
        y, bold = k * tall, "strong" if row.strong else ""
        share = min(max((row.value or 0.0) / most, 0.0), 1.0)
        parts.append(text(0, y + 13, row.name, bold))
        parts.append(text(WIDE, y + 13, row.told, bold, "end"))
        parts.append(element("rect", x=0, y=y + 19, width=WIDE, height=11, rx=3, class_="track"))
        filled = f"fill {row.look}"
        parts.append(
            element("rect", x=0, y=y + 19, width=share * WIDE, height=11, rx=3, class_=filled)
        )
    values = "; ".join(f"{row.name} {row.told}" for row in rows)
    return picture(f"{told}: {values}", tall * len(rows), parts)


def gauge(spent: float, budget: float) -> Markup:
    """How much of an epsilon is spent, with a mark where odds are 20."""
    if math.isinf(spent) or math.isinf(budget):
        words = f"epsilon {_text(spent)} of {_text(budget)}"
        wall = element("rect", x=0, y=19, width=WIDE, height=14, rx=3, class_="fill bad")
        return picture(f"Budget gauge: {words}", 40, [text(0, 13, words, "strong"), wall])
    most = max(spent, budget) or 1.0
    across = Scale(low=0.0, high=most, start=0.0, end=WIDE)
    words = f"{spent:.2f} of {budget:g} spent"
    parts = [
        text(0, 13, words, "strong"),
        text(WIDE, 13, f"{max(budget - spent, 0):.2f} left", "", "end"),
        element("rect", x=0, y=19, width=WIDE, height=14, rx=3, class_="track"),
        element("rect", x=0, y=19, width=across(spent), height=14, rx=3, class_="fill one"),
    ]
    told = f"Budget gauge: epsilon {words}"
    if most > ODDS_TWENTY:
        x = across(ODDS_TWENTY)
        parts.append(line((x, 16), (x, 37), "limit"))
        anchor = "end" if x > WIDE / 2 else "start"
        parts.append(text(x, 50, "odds of 20 at 2.99", "name", anchor))
        told += ", with a mark at 2.99, where odds are 20"
    return picture(told, 54, parts)


def _text(epsilon: float) -> str:
    return "infinity" if math.isinf(epsilon) else f"{epsilon:.2f}"


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes of one round."""

    round: int
    up: int
    down: int


def traffic(rounds: Sequence[Traffic]) -> Markup:
    """Bytes up and down by round, two thin bars a round."""
    most = max([*(r.up for r in rounds), *(r.down for r in rounds)]) or 1
    across = Scale(low=0.0, high=most, start=60.0, end=WIDE - 62)
    parts, told = [], []
    for k, r in enumerate(rounds):
        y = 30.0 * k
        parts.append(text(54, y + 17, f"round {r.round}", "", "end"))
        for bytes_, look, way, top in ((r.up, "one", "up", y + 3), (r.down, "two", "down", y + 15)):
            wide = max(across(bytes_) - 60, 1)
            parts.append(
                element("rect", x=60, y=top, width=wide, height=9, rx=2, class_=f"fill {look}")
            )
            words = f"{number(bytes_)}B {way}"
            parts.append(text(64 + wide, top + 9, words, "tick"))
            told.append(f"round {r.round} {bytes_:,} bytes {way}")
    return picture(f"Bytes by round: {'; '.join(told)}", 30.0 * len(rounds) + 4, parts)
