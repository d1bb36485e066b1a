"""The table of a comparison: figures of each method in each column, over sites and seeds.

Paired differences of two methods over the same sites and seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import scipy

from dprbft.run.comparison.carry_out import Results
from dprbft.run.comparison.experiment import COLUMNS, ColumnName
from dprbft.run.comparison.outcome import Outcome, Point
from dprbft.run.comparison.plan import Cell
from dprbft.run.summary import mean_known


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much more one has than another, over pairs."""

    mean: float
    error: float | None  # standard error of the mean; None for a single pair
    p: float | None  # of the paired t-test, two-sided; None where nothing varies
    pairs: int


def paired(own: Sequence[float], other: Sequence[float]) -> Difference | None:
    """The difference of `own` over `other`, pair by pair; None without a pair.

    The test is Student's t-test for paired samples. It takes pairs as independent; sites that share
    a run are not quite that.
    """
    gains = [a - b for a, b in zip(own, other, strict=True)]
    if not gains:
        return None
    error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else None
    p = float(scipy.stats.ttest_rel(own, other).pvalue) if error else None
    return Difference(mean=fmean(gains), error=error, p=p, pairs=len(gains))


LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Accuracies to reach, where the experiment names none: those of them that a method reaches."""
MEASURES = ("accuracy", "balanced_accuracy", "auroc", "macro_f1")

BySeed = Mapping[int, Outcome]


def table(results: Results) -> dict[str, Any]:
    """All figures, as plain JSON.

    The figures of a method are those of its column "sound", where that was run, else "paper", and
    of the first row where an experiment has rows; "columns" and "rows" have all.
    """
    plan, experiment = results.plan, results.plan.experiment
    cells = _cells(results)
    goals = experiment.targets if experiment and experiment.targets else _reached(cells)
    methods = dict[str, Any]()
    for method in plan.methods:
        rows = {}
        for row in plan.rows:
            by_column = {
                column: _figures(cells, Cell(method=method, column=column, row=row), results, goals)
                for column in plan.columns
                if Cell(method=method, column=column, row=row) in cells
            }
            if by_column:
                rows[row] = {"columns": by_column}
        if rows:
            methods[method] = _topmost(rows)
    return {
        "methods": methods,
        "first": plan.methods[0],
        "size": plan.size,
        "columns": list(plan.columns),
        "rows": [row for row in plan.rows if row is not None],
        "seeds": list(plan.seeds),
        "targets": list(goals),
        "metric": experiment.metric if experiment else "accuracy",
        "experiment": _about(results),
        "left_out": plan.left_out,
        "failed": [
            {"run": str(planned.folder), "reason": str(e)} for planned, e in results.failed.items()
        ],
        "stopped": [
            {"run": str(planned.folder), "reason": outcome.stopped}
            for planned, outcome in results.found.items()
            if outcome.stopped
        ],
        "view": "simulator: accuracies are measured on test splits that no site would share",
    }


def _cells(results: Results) -> dict[Cell, dict[int, Outcome]]:
    """Outcomes by cell and seed."""
    cells = dict[Cell, dict[int, Outcome]]()
    for planned, outcome in results.found.items():
        cells.setdefault(planned.cell, {})[planned.seed] = outcome
    return cells


def _topmost(rows: Mapping[str | None, dict[str, Any]]) -> dict[str, Any]:
    """A method's entry: the figures that stand for it, then all."""
    columns = next(iter(rows.values()))["columns"]
    first = next(column for column in COLUMNS if column in columns)
    named = {row: figures for row, figures in rows.items() if row is not None}
    entry = {**columns[first], "column": first, "columns": columns}
    return entry | ({"rows": named} if named else {})


def _about(results: Results) -> dict[str, Any] | None:
    """What the experiment tells of itself, and what was published."""
    experiment = results.plan.experiment
    if experiment is None:
        return None
    record = experiment.model_dump(mode="json", include={"title", "source", "about"})
    return record | {"published": [line.model_dump(mode="json") for line in experiment.published]}


def _reached(cells: Mapping[Cell, BySeed]) -> tuple[float, ...]:
    """Those of `LEVELS` that a method reaches on average in some run."""
    best = max(
        (max(p.accuracy for p in o.curve) for by in cells.values() for o in by.values() if o.curve),
        default=0.0,
    )
    return tuple(level for level in LEVELS if level <= best)


def _figures(
    cells: Mapping[Cell, BySeed], cell: Cell, results: Results, goals: Sequence[float]
) -> dict[str, Any]:
    """The figures of one method in one column of one row."""
    by_seed = cells[cell]
    outcomes = list(by_seed.values())
    accuracies = [x for o in outcomes for x in o.accuracy]
    beaten = [a > m for o in outcomes for a, m in zip(o.accuracy, o.majority, strict=True)]
    spent = [e for o in outcomes for e in o.epsilon]
    metrics = [m for o in outcomes for m in o.metrics]
    return {
        "accuracy": _spread(accuracies),
        "majority": fmean(x for o in outcomes for x in o.majority),
        "beats_majority": all(beaten),
        "sites_above_majority": sum(beaten),
        "sites": len(accuracies),
        "difference": _difference(cells, cell, results.plan.methods[0]),
        "metrics": {name: mean_known([m[name] for m in metrics]) for name in MEASURES}
        | {name: _by_class([m[name] for m in metrics]) for name in ("f1", "recall")},
        "up_bytes": round(fmean(o.up_bytes for o in outcomes)),
        "down_bytes": round(fmean(o.down_bytes for o in outcomes)),
        "rounds": fmean(o.rounds for o in outcomes),
        "epsilon": max(spent, key=float),
        "trust": list(dict.fromkeys(assumption for o in outcomes for assumption in o.trust)),
        "epsilon_parts": {
            part: max((p[part] for o in outcomes for p in o.parts), key=float)
            for part in outcomes[0].parts[0]
        },
        "targets": {f"{goal:g}": _target(outcomes, goal) for goal in goals},
        "parameters": mean_known([x for o in outcomes for x in o.parameters]),
        "macs": mean_known([x for o in outcomes for x in o.macs]),
        "search_seconds": fmean(
            o.seconds.get("search", 0.0) + o.seconds.get("tune", 0.0) for o in outcomes
        ),
        "seconds": fmean(sum(o.seconds.values()) for o in outcomes),
        "about": outcomes[0].about[0],
        "seeds": sorted(by_seed),
        "curve": _curve(outcomes),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else 0.0}


def _by_class(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The mean over sites that have samples of a class, class by class."""
    return [mean_known(values) for values in zip(*rows, strict=True)]


def _difference(cells: Mapping[Cell, BySeed], cell: Cell, first: str) -> dict[str, Any] | None:
    """The paired difference to the first method: in this column, or in the one that it has."""
    if cell.method == first:
        return None
    columns: list[ColumnName] = [cell.column, *(c for c in COLUMNS if c != cell.column)]
    others = (Cell(method=first, column=column, row=cell.row) for column in columns)
    reference = next((other for other in others if other in cells), None)
    if reference is None:
        return None
    own, other = cells[cell], cells[reference]
    pairs = [pair for seed in own if seed in other for pair in _pairs(own[seed], other[seed])]
    difference = paired([a for a, _ in pairs], [b for _, b in pairs])
    return {**asdict(difference), "to": first, "column": reference.column} if difference else None


def _pairs(own: Outcome, other: Outcome) -> list[tuple[float, float]]:
    """Accuracies of the same sites."""
    known = dict(zip(other.sites, other.accuracy, strict=True))
    named = zip(own.sites, own.accuracy, strict=True)
    return [(accuracy, known[site]) for site, accuracy in named if site in known]


def _target(outcomes: Sequence[Outcome], goal: float) -> dict[str, Any]:
    """Rounds and bytes until the mean accuracy of all sites is there, over the runs that get it."""
    firsts = [p for o in outcomes if (p := next((p for p in o.curve if p.accuracy >= goal), None))]
    return {
        "rounds": mean_known([p.round for p in firsts]),
        "up_bytes": mean_known([p.up_bytes for p in firsts]),
        "down_bytes": mean_known([p.down_bytes for p in firsts]),
        "reached": len(firsts),
        "runs": len(outcomes),
    }


def _curve(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The mean over seeds, round by round, of those rounds that all have."""
    by_round = [{p.round: p for p in o.curve} for o in outcomes]
    shared = sorted(set.intersection(*({*points} for points in by_round)))
    return [_mean_point([points[r] for points in by_round]) for r in shared]


def _mean_point(points: Sequence[Point]) -> dict[str, Any]:
    spent = [p.epsilon for p in points if p.epsilon is not None]
    worst = max(map(float, spent), default=None)
    return {
        "round": points[0].round,
        "accuracy": fmean(p.accuracy for p in points),
        "std": stdev([p.accuracy for p in points]) if len(points) > 1 else 0.0,
        "up_bytes": round(fmean(p.up_bytes for p in points)),
        "down_bytes": round(fmean(p.down_bytes for p in points)),
        "epsilon": "infinity" if worst is not None and math.isinf(worst) else worst,
    }
