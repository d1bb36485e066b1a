"""A network as a picture: its blocks from left to right, with what each gives out and costs.

A box is the higher, the larger the map that it gives out, and coloured by its block's type.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from panas.architecture.blocks import BUILT_IN, Block, ConvBlock, DenseBlock, PoolBlock, Shape
from panas.architecture.cost import LayerCost, cost_table
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.plots.style import BLUE, GREEN, GREY, ORANGE, headline, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CUSTOM = ("#cc79a7", "#56b4e9", "#f0e442", "#d55e00")  # types of custom blocks, as they appear
IN_A_ROW, LETTERS = 7, 13  # boxes in a row at most, and letters that fit into one
CELL, HALF, ROW, BOX, LOWEST, LEFT, LINE = 1.3, 0.47, 2.05, 1.1, 0.45, 0.85, 0.2
"""Inches: width of a cell and half that of a box, height of a row, of the highest box and of the
lowest, space for the rows' labels, height of a line."""


@dataclass(frozen=True)
class Box:
    """One box of the diagram."""

    words: tuple[str, ...]  # what stands in it, the first line in bold
    colour: str
    out: tuple[int, ...]  # shape of what it gives out
    below: tuple[str, ...]  # output, parameters, multiply-accumulates


def drawing(
    genome: Genome,
    spec: NetworkSpec,
    fitness: float | None = None,
    first: LayerCost | None = None,
) -> bytes:
    """Draw a genome's bottom and head as a PNG; BadInput if it does not fit the shape.

    Args:
        genome: the blocks of the bottom.
        spec: shape of a sample, number of classes and width.
        fitness: for the headline; None leaves it out.
        first: an encoder's layers, whose maps the blocks read; None: they read the samples.
    """
    table = cost_table(genome, spec)
    boxes = _boxes(genome, spec.shape, table)
    if first:
        below = _text(first.out_shape), f"{first.parameters:,}", short(first.macs)
        boxes[0] = Box(("encoder", "first layers"), GREY, spec.shape, below)
        table = [first, *table]
    rows = math.ceil(len(boxes) / IN_A_ROW)
    in_a_row = math.ceil(len(boxes) / rows)
    words = [] if fitness is None else [f"fitness {fitness:.3f}"]
    words += [
        f"{sum(r.parameters for r in table):,} parameters",
        f"{short(sum(r.macs for r in table))} MACs",
        f"{sum(r.bytes for r in table) / 1e3:,.0f} kB",
    ]

    def draw(figure: "Figure") -> None:
        axes = figure.add_subplot()
        axes.set(xlim=(0, LEFT + CELL * in_a_row), ylim=(-ROW * rows, 0), aspect="equal")
        axes.axis("off")
        for row in range(rows):
            part = boxes[row * in_a_row : (row + 1) * in_a_row]
            _row(axes, part, spec.shape, top=-ROW * row, first=row == 0, last=row == rows - 1)
        headline(figure, str(genome), ", ".join(words))

    return png(draw, (LEFT + CELL * max(in_a_row, 4), ROW * rows + 0.55))


def short(number: int) -> str:
    """A count in at most five characters: 999, 1.2k, 35M."""
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.3g}{unit}"
    return str(number)


def _boxes(genome: Genome, shape: Shape, table: Sequence[LayerCost]) -> list[Box]:
    """The image, a box a block, adaptation layer and head."""
    custom = [t for t in dict.fromkeys(map(type, genome.blocks)) if t not in BUILT_IN]
    looks = [_look(block, custom) for block in genome.blocks]
    is_row = isinstance(genome.blocks[0], DenseBlock)
    adapt = "linear" if is_row else "mean, linear"
    looks += [((adapt, "adaptation"), GREEN), (("linear", "head"), GREEN)]
    boxes = [Box(("row" if is_row else "image",), GREY, shape, (_text(shape),))]
    for (words, colour), layer in zip(looks, table, strict=True):
        below = _text(layer.out_shape), f"{layer.parameters:,}", short(layer.macs)
        boxes.append(Box(words, colour, layer.out_shape, below))
    return boxes


def _look(block: Block, custom: Sequence[type]) -> tuple[tuple[str, str], str]:
    if isinstance(block, ConvBlock):
        k = block.kernel_size
        return (f"conv {k}×{k}", f"{block.out_channels} channels"), BLUE
    if isinstance(block, PoolBlock):
        return (f"{block.kind} pool", "2×2"), ORANGE
    if isinstance(block, DenseBlock):
        return (block.kind, f"{block.out_channels} features"), BLUE
    return (str(block), type(block).__name__), CUSTOM[custom.index(type(block)) % len(CUSTOM)]


def _text(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _row(
    axes: "Axes", boxes: Sequence[Box], image: Shape, *, top: float, first: bool, last: bool
) -> None:
    """One row of boxes, the arrows between them, and the lines below."""
    from matplotlib.patches import FancyBboxPatch

    middle = top - 0.1 - BOX / 2
    below = middle - BOX / 2 - 0.18
    for k, name in enumerate(("output", "parameters", "MACs")):
        axes.text(0.02, below - LINE * k, name, fontsize=8, color="#666666", va="center")
    for column, box in enumerate(boxes):
        x = LEFT + CELL * (column + 0.5)
        share = box.out[1] * box.out[2] / (image[1] * image[2]) if len(box.out) == 3 else 0.0
        height = LOWEST + (BOX - LOWEST) * share**0.25  # the root of a side
        corner, style = (x - HALF, middle - height / 2), "round,pad=0,rounding_size=0.06"
        shape = FancyBboxPatch(corner, 2 * HALF, height, boxstyle=style)
        shape.set(facecolor=box.colour + "38", edgecolor=box.colour)
        axes.add_patch(shape)
        for k, line in enumerate(box.words):
            text = line if len(line) <= LETTERS else line[: LETTERS - 1] + "…"
            y = middle + LINE * ((len(box.words) - 1) / 2 - k)
            bold = "normal" if k else "bold"
            axes.text(x, y, text, fontsize=8, ha="center", va="center", weight=bold)
        for k, line in enumerate(box.below):
            axes.text(x, below - LINE * k, line, fontsize=8, ha="center", va="center")
        if column:
            _arrow(axes, x - CELL + HALF, x - HALF, middle)
    if not first:
        _arrow(axes, LEFT + CELL / 2 - HALF - 0.25, LEFT + CELL / 2 - HALF, middle)
    if not last:
        end = LEFT + CELL * len(boxes)
        _arrow(axes, end - CELL / 2 + HALF, end, middle)


def _arrow(axes: "Axes", start: float, end: float, y: float) -> None:
    axes.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "-|>", "color": "#444444"})
