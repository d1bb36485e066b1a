"""Pictures of an audit, as PNG bytes: what attacks reconstruct, and how well they tell members.

Privacy: they show private samples, and are for the auditor alone, as `audit.json` is.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from attacks.inference.roc import RATES, Roc
from panas.plots.style import BLUE, GREEN, GREY, ORANGE, RED, below, headline, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 8  # samples in a picture


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
        # A line each: side by side they are wider than the picture.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13))
        headline(figure, title)

    return png(draw, (4.6, 4.5 + 0.17 * len(curves)))
