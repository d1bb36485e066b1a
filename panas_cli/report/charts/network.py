"""A network as boxes in rows, from the input to the head."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from panas_cli.report.charts.svg import (
    LETTER,
    WIDE,
    element,
    line,
    number,
    picture,
    shortened,
    text,
)

IN_A_ROW = 4
GAP, ROW, BOX = 12.0, 88.0, 42.0
"""Units: between boxes, height of a row, and of a box in it."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A box: a block of the genome, or a linear layer."""

    name: str
    what: str  # a second line
    out: str  # shape of what it gives out
    parameters: int
    look: str = "one"


def drawing(layers: Sequence[Layer]) -> Markup:
    """The layers as boxes, the first at the left; their output and parameters stand below."""
    wide = (WIDE - 2 - GAP * (IN_A_ROW - 1)) / IN_A_ROW
    letters = int(wide / LETTER)
    parts = []
    for k, layer in enumerate(layers):
        row, column = divmod(k, IN_A_ROW)
        x, y = 1 + column * (wide + GAP), row * ROW + 4
        middle = x + wide / 2
        box = {"x": x, "y": y, "width": wide, "height": BOX, "rx": 5.0}
        parts.append(element("rect", class_=f"box {layer.look}", **box))
        parts.append(text(middle, y + 17, shortened(layer.name, letters), "strong", "middle"))
        parts.append(text(middle, y + 33, shortened(layer.what, letters), "", "middle"))
        parts.append(text(middle, y + BOX + 15, layer.out, "tick", "middle"))
        below = f"{number(layer.parameters)} par." if layer.parameters else "no par."
        parts.append(text(middle, y + BOX + 29, below, "tick", "middle"))
        if column:
            parts.append(_arrow(x - GAP, x, y + BOX / 2))
    rows = -(-len(layers) // IN_A_ROW)
    listed = ", ".join(f"{layer.name} {layer.what}, out {layer.out}" for layer in layers)
    return picture(f"Network with {len(layers)} layers: {listed}", rows * ROW, parts)


def _arrow(start: float, end: float, y: float) -> Markup:
    points = f"{end - 5:.1f},{y - 3:.1f} {end - 0.5:.1f},{y:.1f} {end - 5:.1f},{y + 3:.1f}"
    head = element("polygon", points=points, class_="mark mute")
    return line((start + 1, y), (end - 4, y), "axis") + head
