"""What a picture shows must lie in it."""

from collections.abc import Callable

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attacks.audit import pictures
from attacks.audit.pictures import draw_curves
from attacks.inference.roc import roc
from panas.runtime.seeds import stream


@pytest.mark.parametrize(("members", "others"), [(120, 55), (400, 400)])
def test_legend_and_quoted_points_of_two_attacks_fit(
    members: int, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, rng = torch.arange(members + others) < members, stream(0, "scores")
    noise = torch.from_numpy(rng.standard_normal((2, members + others)))
    noise[0, 0] = 9  # one is found for sure
    noise[1, :members] = -5  # an attack that finds nobody at all
    curves = {
        name: roc(s, truth, rng=rng)
        for name, s in zip(("loss threshold", "LiRA"), noise, strict=True)
    }
    drawn: list[Figure] = []

    def png(draw: Callable[[Figure], None], inches: tuple[float, float]) -> bytes:
        figure = Figure(figsize=inches, dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.canvas.draw()
        drawn.append(figure)
        return b""

    monkeypatch.setattr(pictures, "png", png)
    draw_curves(curves, "model.pt2: inconclusive")
    (axes,) = drawn[0].axes
    legend = axes.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= drawn[0].bbox.x1
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    assert left < 0.01 < right
    (dot,) = (line for line in axes.lines if line.get_marker() == "o")
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (
        0.01,
        curves["loss threshold"].points[0].tpr,
    )
    assert low < dot.get_ydata()[0] < high
    assert len(axes.collections) == 1  # a cross for the one that finds nobody
