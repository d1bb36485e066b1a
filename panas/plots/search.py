"""The picture of a search: how fitness rose, and what it cost in sample-passes."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from panas.evolution.records import Evaluation, GenerationRecord
from panas.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    below,
    headline,
    legend,
    png,
    room,
    thousands,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STATUSES = {
    "full": ("trained in full", BLUE, "o"),
    "dropped": ("dropped early", ORANGE, "v"),
    "failed": ("failed", RED, "x"),
}
"""How a candidate came to its fitness -> words, colour and marker."""


def history(
    records: Sequence[GenerationRecord],
    evaluations: Sequence[Evaluation],
    front: Sequence[tuple[Any, float, float]] | None = None,
    *,
    size: str = "parameters",
    taken: tuple[Any, float] | None = None,
) -> bytes:
    """Draw how fitness rose, over generations and over cost, as a PNG.

    Args:
        records: one a generation, in order.
        evaluations: of all candidates, in order.
        front: genome, fitness and size of those that no other beats in both; None: one objective.
        size: name of the second objective.
        taken: best genome in the site's own class frequencies, and its fitness there, of a search
            for all sites.
    """
    scored = [r for r in records if _has_fitness(r)]
    counted = any(e.passes for e in evaluations)  # a custom fitness need not
    panels = (2 if len(scored) > 1 else 1) + bool(front)

    def draw(figure: "Figure") -> None:
        axes = list(figure.subplots(1, panels, squeeze=False)[0])
        _generations(axes.pop(0), records, evaluations)
        if len(scored) > 1:
            _spending(axes.pop(0), records, counted)
        if front:
            _pareto(axes.pop(0), evaluations, front, size)
        if scored:
            last = scored[-1]
            lines = [f"best {last.best:.3f}: {last.best_genome}", _spent(records, counted)]
            if taken:
                genome, fitness = taken
                lines[1:1] = [f"taken: {genome}, {fitness:.3f} in the site's own class frequencies"]
            headline(figure, *lines)

    return png(draw, (4.7 * panels, 4.2))


def _spent(records: Sequence[GenerationRecord], counted: bool) -> str:
    total = {k: sum(getattr(r, k) for r in records) for k in ("evaluations", "cached", "dropped")}
    passes = records[-1].passes if counted else 0
    words = [f"{total['evaluations']:,} candidates"]
    words += [f"{passes:,} sample-passes"] if passes else []
    words += [f"{total['dropped']:,} dropped early"] if total["dropped"] else []
    words += [f"{total['cached']:,} known before"] if total["cached"] else []
    return ", ".join(words)


def _generations(
    axes: "Axes", records: Sequence[GenerationRecord], evaluations: Sequence[Evaluation]
) -> None:
    """Best and mean of each generation, and its candidates."""
    _candidates(axes, evaluations)
    scored = [r for r in records if _has_fitness(r)]
    if len(scored) == 1:
        middle = scored[0].generation
        _best_and_mean(axes, [middle - 0.4, middle + 0.4], 2 * scored)
    else:
        _best_and_mean(axes, [r.generation for r in scored], scored)
    room(axes, [*(e.fitness for e in evaluations if not e.failed), *_lines(scored)])
    axes.set(xlabel="generation", ylabel="fitness", title="Candidates, by generation")
    if records:
        axes.set_xlim(records[0].generation - 0.6, records[-1].generation + 0.6)
    whole_numbers(axes)
    legend(axes)


def _candidates(axes: "Axes", evaluations: Sequence[Evaluation]) -> None:
    """A mark a candidate, those of one generation side by side."""
    everyone = Counter(e.generation for e in evaluations)
    seen: Counter[int] = Counter()
    points: dict[str, list[tuple[float, float]]] = {status: [] for status in STATUSES}
    for e in evaluations:
        g = e.generation
        seen[g] += 1
        aside = (seen[g] - 0.5) / everyone[g] - 0.5  # side by side, so that equals stay apart
        points[_status(e)].append((g + 0.6 * aside, e.fitness))
    for status, (words, colour, marker) in STATUSES.items():
        x, y = [x for x, _ in points[status]], [y for _, y in points[status]]
        if not x:
            continue
        label = f"{words} ({len(x)})"
        if status == "failed":
            below(axes, x, label)
            continue
        axes.scatter(
            x,
            y,
            s=18,
            marker=marker,
            facecolors="none" if status == "dropped" else colour,
            edgecolors=colour,
            linewidths=0.8,
            alpha=0.8,
            label=label,
        )


def _spending(axes: "Axes", records: Sequence[GenerationRecord], counted: bool) -> None:
    """Best and mean against sample-passes so far, or evaluations where nobody counted passes."""
    evaluations = list(accumulate(r.evaluations for r in records))
    spent = [r.passes for r in records] if counted else evaluations
    both = [(x, r) for x, r in zip(spent, records, strict=True) if _has_fitness(r)]
    scored = [r for _, r in both]
    _best_and_mean(axes, [x for x, _ in both], scored)
    room(axes, _lines(scored))
    unit = "sample-passes" if counted else "evaluations"
    axes.set(xlabel=f"{unit} so far", ylabel="fitness", title="Population, by what it cost")
    axes.set_xlim(0, 1.03 * max(1, spent[-1]))
    thousands(axes)
    legend(axes)


def _best_and_mean(
    axes: "Axes", x: Sequence[int | float], records: Sequence[GenerationRecord]
) -> None:
    for key, colour, style in (("mean", GREEN, "--"), ("best", "black", "-")):
        if records:
            y = [getattr(r, key) for r in records]
            axes.plot(x, y, style, color=colour, label=key, lw=1.5)


def _pareto(
    axes: "Axes",
    evaluations: Sequence[Evaluation],
    front: Sequence[tuple[Any, float, float]],
    size: str,
) -> None:
    """The front among the candidates that were trained in full."""
    others = [e for e in evaluations if _status(e) == "full"]
    sizes, fitnesses = [e.size for e in others], [e.fitness for e in others]
    axes.scatter(sizes, fitnesses, s=14, color=GREY, alpha=0.7, label="trained in full")
    edge = sorted(front, key=lambda point: point[2])
    x, y = [size for _, _, size in edge], [fitness for _, fitness, _ in edge]
    axes.step(x, y, where="post", color=BLUE, lw=1.2)
    axes.scatter(x, y, s=30, color=BLUE, label=f"Pareto front ({len(edge)})", zorder=3)
    everyone = [*x, *sizes]
    if max(everyone) > 8 * max(1, min(everyone)):
        axes.set_xscale("log")
    else:
        thousands(axes)
    axes.set(xlabel=size, ylabel="fitness", title=f"Fitness against {size}")
    room(axes, [*y, *fitnesses])
    legend(axes)


def _status(evaluation: Evaluation) -> str:
    return "failed" if evaluation.failed else "dropped" if evaluation.dropped else "full"


def _has_fitness(record: GenerationRecord) -> bool:
    """Whether anybody in the generation has a fitness: a failure counts as 0."""
    return record.best > 0


def _lines(records: Sequence[GenerationRecord]) -> list[float]:
    return [getattr(r, key) for r in records for key in ("best", "mean")]
