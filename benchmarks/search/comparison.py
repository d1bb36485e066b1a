"""Comparing searches: medians with intervals, cost ratios, and tests corrected by Holm's way."""

import math
import statistics
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import wilcoxon

from benchmarks.rivals import OURS, PLAIN
from benchmarks.tabular import Trace, at
from panas.runtime.seeds import stream

LEVEL = 0.05


def compare(
    runs: dict[str, list[tuple[int, Trace]]], grid: tuple[int, ...], full: int, chance: float
) -> dict[str, Any]:
    """Medians, intervals, cost ratio and tests of one part of the benchmark."""
    curves = {
        name: np.array([[at(trace, b * full, chance) for b in grid] for _, trace in result])
        for name, result in runs.items()
    }
    worse, doubtful = worse_than(curves)
    return {
        "budgets": list(grid),
        "repetitions": len(runs[OURS]),
        "algorithms": {
            name: {
                metric: interval(values[:, :, k]) for k, metric in enumerate(("validation", "test"))
            }
            | {"passes": statistics.median(spent for spent, _ in runs[name])}
            for name, values in curves.items()
        },
        "cost_ratio": cost_ratio(runs[OURS], runs[PLAIN]),
        "plain_ga_reaches_its_own_end_at": cost_ratio(runs[PLAIN], runs[PLAIN])["paired"],
        "significantly_worse": worse,
        "worse_before_correction": doubtful,
    }


def interval(values: Float[np.ndarray, "r b"], resamples: int = 2000) -> dict[str, list[float]]:
    """Median over repetitions and its 95 % bootstrap interval, at each budget."""
    rows = stream(0, "bootstrap").integers(len(values), size=(resamples, len(values)))
    medians = np.median(values[rows], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975), axis=0)
    middle = np.median(values, axis=0)
    results = {"median": middle, "low": low, "high": high}
    return {name: [round(float(x), 4) for x in values] for name, values in results.items()}


def cost_ratio(
    ours: list[tuple[int, Trace]], plain: list[tuple[int, Trace]]
) -> dict[str, float | None]:
    """Passes that ours needs to reach the plain GA's final validation, over all the GA's passes.

    Returns:
        By the median curve, by the median of paired repetitions, and the larger; None: not reached.

    """
    finals = [trace[-1][1] for _, trace in plain]
    target, spent = statistics.median(finals), statistics.median(p for p, _ in plain)
    costs = sorted({c for _, trace in ours for c, _, _ in trace})
    at_median = (c for c in costs if statistics.median(at(t, c, 0.0)[0] for _, t in ours) >= target)
    by_median = next(at_median, math.inf) / spent
    paired = statistics.median(
        next((c for c, v, _ in trace if v >= final), math.inf) / p
        for (_, trace), (p, _), final in zip(ours, plain, finals, strict=True)
    )
    results = {"medians": by_median, "paired": paired, "larger": max(by_median, paired)}
    return {k: round(v, 4) if math.isfinite(v) else None for k, v in results.items()}


def worse_than(
    curves: dict[str, Float[np.ndarray, "r b 2"]],
) -> tuple[list[str], dict[str, int]]:
    """Against whom ours is significantly worse at any budget, by validation or by test.

    Returns:
        The names after Holm's correction; and, for each rival, at how many of the comparisons
        the uncorrected test says so.

    """
    ours = curves[OURS]
    p = {name: _p_worse(ours, values) for name, values in curves.items() if name != OURS}
    rejected = holm(np.concatenate([v.ravel() for v in p.values()])).reshape(len(p), -1)
    worse = [name for name, row in zip(p, rejected, strict=True) if row.any()]
    return worse, {name: int((v <= LEVEL).sum()) for name, v in p.items()}


def _p_worse(
    ours: Float[np.ndarray, "r b 2"], rival: Float[np.ndarray, "r b 2"]
) -> Float[np.ndarray, "b 2"]:
    difference = np.round(ours - rival, 9)
    p = np.ones(difference.shape[1:])
    for i in np.ndindex(*p.shape):
        if difference[:, *i].any():
            p[i] = wilcoxon(difference[:, *i], alternative="less", zero_method="zsplit").pvalue
    return p


def holm(p: Float[np.ndarray, "m"], level: float = LEVEL) -> Bool[np.ndarray, "m"]:
    """Which hypotheses fall, at a family-wise level (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    passed = p[order] <= level / np.arange(len(p), 0, -1)
    fallen = np.zeros(len(p), bool)
    fallen[order] = np.logical_and.accumulate(passed)
    return fallen
