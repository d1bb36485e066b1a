"""SVG from small pure functions: elements, scales and axes.

Texts are escaped. Colours are classes of `templates/style.css`, which has a light and a dark
scheme. A picture is `WIDE` units wide and as wide as its place allows.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDE = 360.0
"""Units of a picture's width: as many pixels as a phone has for it."""
LETTER = 7.0
"""Units that a letter takes, about."""
PARTS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""What steps of an axis are, times a power of ten."""


def element(name: str, *inside: str, **attributes: str | float) -> Markup:
    """An element with its attributes; `class_` is written class, and `text_anchor` text-anchor.

    Args:
        name: its tag.
        inside: what it holds: text, which is escaped, or other elements.
        attributes: numbers are rounded to a tenth.
    """
    words = [Markup('{}="{}"').format(_name(k), _value(v)) for k, v in attributes.items()]
    return Markup("<{}>{}</{}>").format(
        Markup(" ").join([escape(name), *words]), Markup("").join(map(escape, inside)), name
    )


def _name(key: str) -> str:
    return key if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 1):g}"


def picture(told: str, height: float, inside: Iterable[Markup], wide: float = WIDE) -> Markup:
    """An SVG element that a screen reader reads as `told`.

    Args:
        told: what it shows, with its figures.
        height: in units.
        inside: its elements, the lowest first.
        wide: its width in units.
    """
    box = f"0 0 {wide:g} {round(height, 1):g}"
    return element("svg", *inside, viewBox=box, role="img", aria_label=told, class_="picture")


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Markup:
    """A line of text; `y` is its baseline.

    Args:
        x: where it is anchored.
        y: of its baseline.
        words: the text.
        class_: names of classes.
        anchor: start, middle or end.
    """
    return element("text", words, x=x, y=y, class_=f"label {class_}".strip(), text_anchor=anchor)


def line(start: tuple[float, float], end: tuple[float, float], class_: str) -> Markup:
    """A straight line.

    Args:
        start: x and y in units.
        end: the same.
        class_: names of classes.
    """
    (x1, y1), (x2, y2) = start, end
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    words = " ".join(f"{round(x, 1):g},{round(y, 1):g}" for x, y in points)
    return element("polyline", points=words, class_=f"path {class_}")


def dot(x: float, y: float, class_: str) -> Markup:
    """A filled circle.

    Args:
        x: of its centre, in units.
        y: of its centre.
        class_: names of classes.
    """
    return element("circle", cx=x, cy=y, r=4.0, class_=f"mark {class_}")


def ring(x: float, y: float, class_: str, radius: float = 4.0) -> Markup:
    """An open circle.

    Args:
        x: of its centre.
        y: of its centre.
        class_: names of classes.
        radius: in units.
    """
    return element("circle", cx=x, cy=y, r=radius, class_=f"ring {class_}")


def diamond(x: float, y: float, class_: str) -> Markup:
    """A filled square on its corner.

    Args:
        x: of its centre, in units.
        y: of its centre.
        class_: names of classes.
    """
    corners = ((x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y))
    words = " ".join(f"{round(a, 1):g},{round(b, 1):g}" for a, b in corners)
    return element("polygon", points=words, class_=f"mark {class_}")


def cross(x: float, y: float, class_: str) -> Markup:
    """Two short lines.

    Args:
        x: of its centre, in units.
        y: of its centre.
        class_: names of classes.
    """
    strokes = (line((x - 3.5, y - s), (x + 3.5, y + s), f"path {class_}") for s in (3.5, -3.5))
    return Markup("").join(strokes)


Mark = Callable[[float, float, str], Markup]
MARKS: dict[str, Mark] = {"dot": dot, "ring": ring, "diamond": diamond, "cross": cross}


def shortened(words: str, letters: int) -> str:
    """The words, or their beginning with an ellipsis."""
    return words if len(words) <= letters else f"{words[: letters - 1].rstrip()}…"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """From values to units along one axis."""

    low: float  # value at `start`
    high: float  # value at `end`, above `low`
    start: float
    end: float
    log: bool = False  # `low` is above 0 then

    def __call__(self, value: float) -> float:
        """Units of a value, kept within the axis."""
        within = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(within / self.low) / math.log(self.high / self.low)
        else:
            share = (within - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis."""
        if self.log:
            return self._powers(most)
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(p * power for p in PARTS if p * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(k * step, 12) for k in range(first, last + 1)]

    def _powers(self, most: int) -> list[float]:
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for parts in ((1, 2, 5), (1, 3), (1,)):
            every = [p * 10.0**k for k in range(low, high + 1) for p in parts]
            within = [v for v in every if self.low * 0.999 <= v <= self.high * 1.001]
            if len(within) <= most:
                break
        if len(within) > 1:
            return within
        return Scale(low=self.low, high=self.high, start=0.0, end=1.0).ticks(most)


def spread(values: Sequence[float], *, log: bool = False) -> tuple[float, float]:
    """Limits around finite values, with some room on both sides."""
    low, high = min(values), max(values)
    if log:
        return (low / 1.5, high * 1.5) if high < 1.2 * low else (low / 1.15, high * 1.15)
    largest = max(abs(low), abs(high))
    alike = high - low <= 1e-9 * largest  # but for rounding
    room = max(0.05, 0.1 * largest) if alike else 0.08 * (high - low)
    return low - room, high + room


def number(value: float) -> str:
    """A value beside a tick: 0.25, 20k, 1.5M."""
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.3g}{unit}"
    return f"{value:.3g}"


@dataclass(frozen=True)
class Axes:
    """A frame with a scale along each side."""

    x: Scale
    y: Scale

    def frame(self, below: str, beside: str, whole: bool = False) -> Markup:
        """Grid, ticks and names of both axes.

        Args:
            below: name of the x axis.
            beside: name of the y axis, over its upper end.
            whole: the x axis has ticks at whole numbers alone.
        """
        x, y, parts = self.x, self.y, []
        for value in y.ticks(4):
            parts.append(line((x.start, y(value)), (x.end, y(value)), "grid"))
            parts.append(text(x.start - 5, y(value) + 4, number(value), "tick", "end"))
        for value in [v for v in x.ticks() if not whole or v == round(v)]:
            parts.append(line((x(value), y.start), (x(value), y.start + 4), "axis"))
            parts.append(text(x(value), y.start + 16, number(value), "tick", "middle"))
        parts.append(line((x.start, y.start), (x.end, y.start), "axis"))
        parts.append(text(x.end, y.start + 31, below, "name", "end"))
        parts.append(text(2, y.end - 8, beside, "name"))
        return Markup("").join(parts)


def axes(
    x: tuple[float, float],
    y: tuple[float, float],
    *,
    height: float = 200.0,
    log: bool = False,
) -> Axes:
    """A frame of a picture's width.

    Args:
        x: lowest and highest value along the x axis.
        y: the same of the y axis.
        height: of the picture.
        log: whether the x axis is logarithmic.
    """
    across = Scale(low=x[0], high=x[1], start=44.0, end=WIDE - 18, log=log)
    return Axes(across, Scale(low=y[0], high=y[1], start=height - 38, end=24.0))


@dataclass(frozen=True)
class Named:
    """An entry of a legend."""

    words: str
    class_: str
    mark: str = "dot"  # of `MARKS`


def legend(entries: Sequence[Named], y: float, x: float = 44.0) -> Markup:
    """Marks with their names, in one row.

    Args:
        entries: from left to right.
        y: of the names' baseline, in units.
        x: where the row begins.
    """
    parts = []
    for entry in entries:
        parts.append(MARKS[entry.mark](x + 4, y - 4, entry.class_))
        parts.append(text(x + 13, y, entry.words, "name"))
        x += 13 + LETTER * len(entry.words) + 14
    return Markup("").join(parts)
