"""Pictures of a search and of tuning: fitness by generation, its front, and the trials."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from panas_cli.report.charts.svg import (
    MARKS,
    Named,
    axes,
    legend,
    line,
    path,
    picture,
    ring,
    spread,
)

TALL, ROOM = 226.0, 26.0
"""Units: height of a picture, and of the legend's row in it."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Fitness of the population after a generation."""

    number: int
    best: float
    mean: float


def history(generations: Sequence[Generation]) -> Markup:
    """Best and mean fitness by generation; at least one generation."""
    values = [v for g in generations for v in (g.best, g.mean)]
    last = max(1, *(g.number for g in generations))
    frame = axes((0, last), spread(values), height=TALL - ROOM)
    parts = [frame.frame("generation", "fitness", whole=True)]
    for look, mark, pick in (("two", "diamond", "mean"), ("one", "dot", "best")):
        points = [(frame.x(g.number), frame.y(getattr(g, pick))) for g in generations]
        parts.append(path(points, look))
        if len(points) <= 40:
            parts += [MARKS[mark](x, y, look) for x, y in points]
    parts.append(legend([Named("best", "one"), Named("mean", "two", "diamond")], TALL - 6))
    first, final = generations[0], generations[-1]
    told = (
        f"Search history: best fitness {first.best:.3f} in generation {first.number}, "
        f"{final.best:.3f} in generation {final.number}; mean {first.mean:.3f}, {final.mean:.3f}"
    )
    return picture(told, TALL, parts)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A network that a search has trained."""

    parameters: int
    fitness: float
    in_full: bool = True  # whether its training went to the end
    chosen: bool = False


def pareto(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats in both, the smallest first; of those trained in full."""
    front: list[Candidate] = []
    for c in sorted(candidates, key=lambda c: (c.parameters, -c.fitness)):
        if c.in_full and (not front or c.fitness > front[-1].fitness):
            front.append(c)
    return front


def front(candidates: Sequence[Candidate]) -> Markup:
    """Fitness against parameters, with a line through the Pareto front; at least one candidate."""
    sizes, values = [float(c.parameters) for c in candidates], [c.fitness for c in candidates]
    frame = axes(spread(sizes, log=True), spread(values), height=TALL - ROOM, log=True)
    best = pareto(candidates)
    parts = [frame.frame("parameters", "fitness")]
    steps: list[tuple[float, float]] = []
    for c in best:
        x, y = frame.x(c.parameters), frame.y(c.fitness)
        steps += [(x, steps[-1][1]), (x, y)] if steps else [(x, y)]
    if steps:
        parts.append(path(steps, "one"))
    for c in candidates:
        mark, look = ("dot", "one") if c.in_full else ("cross", "mute")
        parts.append(MARKS[mark](frame.x(c.parameters), frame.y(c.fitness), look))
        if c.chosen:
            parts.append(ring(frame.x(c.parameters), frame.y(c.fitness), "ink", 7.0))
    named = [
        Named("in full", "one"),
        Named("stopped", "mute", "cross"),
        Named("taken", "ink", "ring"),
    ]
    parts.append(legend(named, TALL - 6))
    listed = "; ".join(f"{c.parameters:,} parameters {c.fitness:.3f}" for c in best)
    told = f"Fitness against parameters of {len(candidates)} candidates; Pareto front: {listed}"
    return picture(told, TALL, parts)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial of DP-SGD settings."""

    number: int  # from 1
    value: float | None  # None where it has none: failed, or over the budget
    chosen: bool = False


def trials(tried: Sequence[Trial]) -> Markup:
    """Value by trial, with the best so far; at least one trial has a value."""
    known = [(t, t.value) for t in tried if t.value is not None]
    last = max(t.number for t in tried)
    frame = axes((0.5, last + 0.5), spread([v for _, v in known]), height=TALL - ROOM)
    parts = [frame.frame("trial", "validation accuracy", whole=True)]
    steps, best = list[tuple[float, float]](), None
    for t, value in known:
        x, y = frame.x(t.number), frame.y(value)
        if best is None or value > best:
            steps += [(x, frame.y(best))] if best is not None else []
            best = value
            steps.append((x, y))
        parts.append(MARKS["dot"](x, y, "one"))
        if t.chosen:
            parts.append(ring(x, y, "ink", 7.0))
    parts.insert(1, path([*steps, (frame.x.end, steps[-1][1])], "two"))
    for t in tried:
        if t.value is None:
            parts.append(MARKS["cross"](frame.x(t.number), frame.y.start - 6, "mute"))
    named = [
        Named("trial", "one"),
        Named("no value", "mute", "cross"),
        Named("taken", "ink", "ring"),
    ]
    parts += [legend(named, TALL - 6), line((250, TALL - 10), (262, TALL - 10), "path two")]
    parts.append(legend([Named("best so far", "none", "dot")], TALL - 6, 256))
    told = f"Tuning: {len(tried)} trials, {len(known)} with a value, the best {best:.3f}"
    return picture(told, TALL, parts)
