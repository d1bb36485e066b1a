"""The picture of hyperparameters that change while a network trains: what was tried, and used.

Source: FEATHERS, figure 2: early choices blue, late ones red.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from panas.plots.style import BLUE, GREY, RED, legend, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class ChosenSetting:
    """The hyperparameters of one round."""

    round: int  # from 1 on
    stage: str  # "search" or "evaluation"
    tried: bool  # measured only, by its reward; otherwise trained with
    setting: Mapping[str, float]
    reward: float | None = None  # fall of the loss, where it was measured

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> "ChosenSetting":
        """A row of what FEATHERS reports as `hyperparameters`."""
        return ChosenSetting(
            round=row["round"],
            stage=row["stage"],
            tried=row["phase"] == "ho",
            setting=row["setting"],
            reward=row["reward"],
        )


def chosen_settings(rows: Sequence[ChosenSetting]) -> bytes:
    """Draw each hyperparameter that varied, by round, and the rewards of trials, as a PNG."""
    names = list(dict.fromkeys(name for row in rows for name in row.setting))
    varied = [n for n in names if len({r.setting[n] for r in rows if n in r.setting}) > 1]

    def draw(figure: "Figure") -> None:
        panels = figure.subplots(len(varied) + 1, 1, sharex=True, squeeze=False)[:, 0]
        for panel, name in zip(panels, varied, strict=False):
            _values(panel, name, rows)
        _rewards(panels[-1], rows)
        for before, after in itertools.pairwise(rows):
            if before.stage != after.stage:
                for panel in panels:
                    panel.axvline(before.round + 0.5, color="black", lw=0.8, ls="--")
        panels[0].set_title("Hyperparameters by round, early ones blue, late ones red")
        panels[-1].set_xlabel("round")
        legend(panels[-1], beside=True)

    return png(draw, (6.5, 1.2 + 1.9 * (len(varied) + 1)))


def _values(axes: "Axes", name: str, rows: Sequence[ChosenSetting]) -> None:
    """What was tried as rings, what was trained with as points."""
    known = [r for r in rows if name in r.setting]
    values = [r.setting[name] for r in known]
    if min(values) > 0:
        axes.set_yscale("log")
        _plain_ticks(axes, sorted(set(values)))
    for tried, size in ((True, 46), (False, 20)):
        part = [r for r in known if r.tried is tried]
        colours = [_colour(r.round, rows[-1].round) for r in part]
        faces = ["none"] * len(part) if tried else colours
        points = [r.round for r in part], [r.setting[name] for r in part]
        axes.scatter(*points, s=size, facecolors=faces, edgecolors=colours, linewidths=1.0)
    axes.set_ylabel(name.replace("_", " "))


def _rewards(axes: "Axes", rows: Sequence[ChosenSetting]) -> None:
    """The fall of the loss in each trial; marks for what the rings and points above mean."""
    known = [r for r in rows if r.reward is not None]
    axes.axhline(0.0, color=GREY, lw=0.8)
    colours = [_colour(r.round, rows[-1].round) for r in known]
    axes.vlines([r.round for r in known], 0.0, [r.reward or 0.0 for r in known], colors=colours)
    axes.scatter([], [], s=46, facecolors="none", edgecolors=BLUE, label="measured")
    axes.scatter([], [], s=20, color=BLUE, label="trained with")
    axes.set_ylabel("reward")


def _plain_ticks(axes: "Axes", values: Sequence[float]) -> None:
    """A tick a value, with its number."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.yaxis.set_major_locator(FixedLocator(values))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _colour(round: int, rounds: int) -> tuple[float, float, float]:
    """From blue in the first round to red in the last."""
    share = (round - 1) / max(1, rounds - 1)
    first, last = (tuple(int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)) for c in (BLUE, RED))
    r, g, b = ((1 - share) * a + share * z for a, z in zip(first, last, strict=True))
    return r, g, b
