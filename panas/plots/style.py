"""What all pictures share: one look, one way to become bytes.

Matplotlib is loaded on first use, draws without a display, and its global settings stay as they
were. Equal drawings give equal bytes on the same machine.
"""

import io
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from panas.runtime.errors import quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that everyone can tell apart (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#999999"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "legend.handlelength": 3.2,  # room for two dashes beside a mark
}


def png(draw: Callable[["Figure"], None], inches: tuple[float, float]) -> bytes:
    """The picture as PNG bytes, without its date."""
    # It would say that its folder cannot be written, where it takes a temporary one.
    with quiet("matplotlib"):
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=inches, dpi=120, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        draw(figure)
        content = io.BytesIO()
        canvas.print_png(content, metadata={"Software": None})  # `savefig` would draw it twice
    return content.getvalue()


def headline(figure: "Figure", *lines: str) -> None:
    """Lines over all panels, wrapped to the picture's width."""
    width = int(11.5 * figure.get_figwidth())
    text = "\n".join(textwrap.fill(line, width) for line in lines)
    figure.suptitle(text, x=0.01, ha="left", fontsize=10, family="monospace")


def below(
    axes: "Axes", x: Sequence[int | float], label: str, marker: str = "x", colour: str = RED
) -> None:
    """Marks on the lower edge, for what has no value.

    Args:
        axes: the panel.
        x: places of the marks along it.
        label: of the marks in the legend.
        marker: their shape, by matplotlib's name.
        colour: any that matplotlib knows.
    """
    y, transform = [0.03] * len(x), axes.get_xaxis_transform()
    axes.scatter(x, y, s=22, marker=marker, color=colour, lw=1.2, transform=transform, label=label)


def room(axes: "Axes", values: Sequence[float]) -> None:
    """Limits with room below for failures; [0, 1] and a word where there is no value at all."""
    if not values:
        axes.set_ylim(0, 1)
        words, middle = "nothing has a value", axes.transAxes
        axes.text(0.5, 0.5, words, transform=middle, ha="center", color="#666666")
        return
    low, high = min(values), max(values)
    if high - low < 0.02:
        low, high = low - 0.05, high + 0.05
    axes.set_ylim(low - 0.12 * (high - low), high + 0.06 * (high - low))


def legend(axes: "Axes", beside: bool = False) -> None:
    """Name what is drawn, below the panel or beside it."""
    if not axes.get_legend_handles_labels()[0]:
        return
    if beside:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, columnspacing=1.2)


def whole_numbers(axes: "Axes", most: int = 10) -> None:
    """Ticks along the x axis at whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(most, integer=True, min_n_ticks=1))


def thousands(axes: "Axes") -> None:
    """Whole numbers along the x axis, the large ones as 20k."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def percents(axes: "Axes") -> None:
    """Shares on two log axes as plain per cents, which take a third of the time of powers of 10."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axis.set_minor_locator(NullLocator())
