"""Pictures of an audit, as PNG bytes: what attacks reconstruct, and how well they tell members.

Privacy: they show private samples, and are for the auditor alone, as `audit.json` is.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from attacks.inference.roc import RATES, Roc
from panas.data.files.columns import Column
from panas.data.samples import Samples
from panas.plots.style import BLUE, GREEN, GREY, ORANGE, RED, below, headline, percents, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 8  # images in a picture
SHOWN_COLUMNS = 12  # of a table
CUT = 18  # characters of a name or a cell


def draw_samples(
    samples: Samples,
    rows: Mapping[str, Float[Tensor, "n c h w"]],
    columns: Sequence[Column],
    title: str,
) -> bytes:
    """Originals beside reconstructions and controls: images, or of a table one row's cells.

    Args:
        samples: private ones, n >= 1.
        rows: reconstructions in [-1, 1] by name.
        columns: of a table; empty for images.
        title: above all.
    """
    truth = samples.inputs()
    if columns:
        return draw_cells(truth[0], {k: x[0] for k, x in rows.items()}, columns, title)
    return draw_images(truth, samples.y, rows, title)


def draw_cells(
    truth: Float[Tensor, "c h w"],
    rows: Mapping[str, Float[Tensor, "c h w"]],
    columns: Sequence[Column],
    title: str,
) -> bytes:
    """One row of a table, a line a column: its cell, and what each attack and control says it is.

    Args:
        truth: a private row's features in [-1, 1].
        rows: reconstructions of them by name.
        columns: of the table, at least one; the first are shown.
        title: above all.
    """
    shown = columns[:SHOWN_COLUMNS]
    named = {"original": truth, **rows}
    cells = [
        [column.name[:CUT], *texts]
        for column, *texts in zip(shown, *(_cells(x, shown) for x in named.values()), strict=True)
    ]
    if more := len(columns) - len(shown):
        cells.append([f"+ {more} more", *[""] * len(named)])

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        axes.axis("off")
        heads = ["column", *("\n".join(textwrap.wrap(name, CUT)) for name in named)]
        table = axes.table(cells, colLabels=heads, loc="center", cellLoc="right")
        table.auto_set_font_size(False)
        table.set_fontsize(8)
        table.auto_set_column_width(range(len(heads)))
        for (line, column), cell in table.get_celld().items():
            cell.set_linewidth(0.3)
            cell.get_text().set_parse_math(False)  # a name may hold any sign
            cell.set_height((2.2 if line == 0 else 1.2) / (len(cells) + 2.2))
            if column == 0:
                cell.set_text_props(ha="left")
        headline(figure, title)

    return png(draw, (1.6 + 1.15 * len(named), 0.8 + 0.24 * (len(cells) + 2)))


def _cells(x: Float[Tensor, "c h w"], columns: Sequence[Column]) -> list[str]:
    features, texts, begin = x.flatten().numpy(), [], 0
    for column in columns:
        texts.append(column.cell(features[begin : begin + column.width])[:CUT])
        begin += column.width
    return texts


def draw_images(
    truth: Float[Tensor, "n c h w"],
    y: Int[Tensor, "n"],
    rows: Mapping[str, Float[Tensor, "n c h w"]],
    title: str,
) -> bytes:
    """Originals over reconstructions and controls, one column a sample (Table IV's form).

    Args:
        truth: private images in [-1, 1], n >= 1.
        y: their classes; as many classes as can be are shown.
        rows: reconstructions in [-1, 1] by name, from top to bottom.
        title: above all columns.
    """
    order = sorted(range(len(y)), key=lambda i: (int((y[:i] == y[i]).sum()), int(y[i])))
    shown = order[:SHOWN]
    named = {"original": truth, **rows}
    strips = [np.hstack([_tile(images[i]) for i in shown]) for images in named.values()]
    height = len(strips[0])

    def draw(figure: "Figure") -> None:
        # One panel: laying out a panel for each image takes several times as long.
        axes = figure.subplots()
        axes.imshow(np.vstack(strips), interpolation="nearest", aspect="auto")
        centres = height * (np.arange(len(strips)) + 0.5) - 0.5
        axes.set_yticks(centres, list(named))
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        headline(figure, title)

    return png(draw, (1.6 + 0.75 * len(shown), 0.6 + 0.75 * len(named)))


def _tile(image: Float[Tensor, "c h w"]) -> Float[np.ndarray, "s t 3"]:
    """RGB in [0, 1] with a white edge; grey of other numbers of channels, the first."""
    x = ((image + 1) / 2).clamp(0, 1).permute(1, 2, 0).numpy()
    x = x if x.shape[2] == 3 else np.repeat(x[..., :1], 3, axis=2)
    edge = [(max(1, side // 14),) * 2 for side in x.shape[:2]]
    return np.pad(x, [*edge, (0, 0)], constant_values=1.0)


def draw_curves(curves: Mapping[str, Roc], title: str) -> bytes:
    """Receiver operating characteristics on log axes, where few false alarms can be seen.

    A dot is what is quoted, the true positives at 1 % false ones; a cross on the lower edge: none.
    """

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        rate = RATES[0]
        lowest = rate / 2  # room for the dot, however few the others are
        for (name, curve), colour in zip(
            curves.items(), (BLUE, ORANGE, GREEN, RED) * len(curves), strict=False
        ):
            seen, result = curve.fpr > 0, curve.points[0].tpr
            lowest = min(lowest, float(curve.fpr[seen].min(initial=1.0)))
            low, high = curve.auc_interval
            label = f"{name}: area {curve.auc:.2f} [{low:.2f}, {high:.2f}]"
            axes.step(curve.fpr, curve.tpr, where="post", color=colour, label=label)
            if result:
                axes.plot([rate], [result], "o", color=colour, ms=5)
            else:
                below(axes, [rate], "_nolegend_", colour=colour)
        quoted = [c.points[0].tpr / 2 for c in curves.values() if c.points[0].tpr]
        axes.plot([lowest, 1], [lowest, 1], "--", color=GREY, label="a coin")
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(lowest, 1),
            ylim=(min(lowest, *quoted, 1.0), 1.05),
            xlabel="false positives",
            ylabel="true positives",
        )
        percents(axes)
        # A line each: side by side they are wider than the picture.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13))
        headline(figure, title)

    return png(draw, (4.6, 4.5 + 0.17 * len(curves)))
