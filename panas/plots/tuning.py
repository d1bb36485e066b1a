"""The picture of a hyperparameter search: value by trial, and against each hyperparameter."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from panas.plots.style import (
    BLUE,
    GREY,
    RED,
    below,
    headline,
    legend,
    png,
    room,
    whole_numbers,
)
from panas.tuning.space import DPSGDSettings
from panas.tuning.trial import TrialRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def trials(records: Sequence[TrialRecord], chosen: DPSGDSettings | None = None) -> bytes:
    """Draw the value of each trial, in order and against each hyperparameter, as a PNG.

    The chosen settings need not have the highest value; None takes those that have.
    """
    done = [r for r in records if r.status == "done"]
    varied = [f.name for f in fields(DPSGDSettings) if len(_menu(done, f.name)) > 1]
    ringed = next((r for r in done if r.setting == chosen), None)
    if done and ringed is None:
        ringed = max(done, key=_value)

    def draw(figure: "Figure") -> None:
        grid = figure.add_gridspec(2 if varied else 1, max(1, len(varied)))
        top = figure.add_subplot(grid[0, :])
        _progress(top, records, done)
        for column, name in enumerate(varied):
            panel = figure.add_subplot(grid[1, column], sharey=top)
            _against(panel, name, done, ringed)
            if column:
                panel.tick_params(labelleft=False)
            else:
                title = "Later trials darker, the chosen one ringed"
                panel.set(ylabel="validation accuracy", title=title)
        if ringed:
            known = {k: v for k, v in asdict(ringed.setting).items() if v is not None}
            text = ", ".join(f"{_name(k)} {v:.3g}" for k, v in known.items())
            reached = f"{_value(ringed):.3f} in trial {ringed.number + 1}"
            # One trial's value is noisy: the model's mean over all of them decides.
            by = " by the model's mean" if _value(ringed) < max(map(_value, done)) else ""
            headline(figure, f"chosen{by}, with {reached}: {text}")

    return png(draw, (max(6.5, 2.6 * len(varied)), 6.2 if varied else 3.6))


def _progress(axes: "Axes", records: Sequence[TrialRecord], done: Sequence[TrialRecord]) -> None:
    """Value by trial, with the best so far."""
    for guided, marker, words in ((False, "s", "without a model"), (True, "o", "by the model")):
        part = [r for r in done if (r.proposed_by != "random") is guided]
        if part:
            x, y = [r.number + 1 for r in part], [*map(_value, part)]
            label, face = f"{words} ({len(part)})", BLUE if guided else "none"
            axes.scatter(x, y, s=22, marker=marker, facecolors=face, edgecolors=BLUE, label=label)
    for status, marker, colour in (("failed", "x", RED), ("over budget", "+", GREY)):
        x = [r.number + 1 for r in records if r.status == status]
        if x:
            below(axes, x, f"{status} ({len(x)})", marker, colour)
    last = max((r.number for r in records), default=0) + 1.5
    if done:
        best = [max(map(_value, done[: k + 1])) for k in range(len(done))]
        steps, best = [*(r.number + 1 for r in done), last], [*best, best[-1]]
        axes.step(steps, best, where="post", color="black", lw=1.5, label="best so far")
    room(axes, [*map(_value, done)])
    axes.set(xlabel="trial", ylabel="validation accuracy", title="Trials, in order")
    axes.set_xlim(0.5, last)
    whole_numbers(axes)
    legend(axes, beside=True)


def _against(
    axes: "Axes", name: str, done: Sequence[TrialRecord], ringed: TrialRecord | None
) -> None:
    """Value against one hyperparameter, later trials darker."""
    axes.set_xscale("log")
    x, y = [getattr(r.setting, name) for r in done], [*map(_value, done)]
    shade = [r.number for r in done]
    axes.scatter(x, y, s=20, c=shade, cmap="Blues", vmin=-len(done) / 2, lw=0.3, ec=BLUE)
    if ringed:
        at = getattr(ringed.setting, name), _value(ringed)
        axes.scatter(*at, s=70, facecolors="none", edgecolors="black", linewidths=1.3)
    menu = _menu(done, name)
    _ticks(axes, menu)
    aside = 1.1 * (max(menu) / min(menu)) ** 0.06
    axes.set_xlim(min(menu) / aside, max(menu) * aside)
    axes.set(xlabel=_name(name))


def _ticks(axes: "Axes", menu: Sequence[int | float]) -> None:
    """Ticks along the x axis, few enough that their labels do not touch."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    if len(menu) <= 5 and all(isinstance(v, int) for v in menu):
        axes.xaxis.set_major_locator(FixedLocator(menu))
    else:
        few = max(menu) > 200 * min(menu)
        subs = (1.0,) if few else (1.0, 2.0, 5.0)
        axes.xaxis.set_major_locator(LogLocator(10, subs=subs, numticks=4 if few else 12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}".replace("e-0", "e-")))
    axes.xaxis.set_minor_locator(NullLocator())


def _value(record: TrialRecord) -> float:
    assert record.value is not None
    return record.value


def _menu(done: Sequence[TrialRecord], name: str) -> list[int | float]:
    return sorted({getattr(r.setting, name) for r in done} - {None})


def _name(field: str) -> str:
    return "clipping norm" if field == "clip" else field.replace("_", " ")
