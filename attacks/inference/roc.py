"""The ROC of a membership attack, with its uncertainty: the only holder of who is a member.

| symbol | name |
|---|---|
| TPR(t), FPR(t) | shares of members, of others, whose score is at least t |
| AUC | probability that a member scores above another, ties half |

An average hides whether *some* are found with hardly a false alarm: hence the true positives at
1 % and 0.1 % false positives; with m others, a rate below 1/m counts those above all others. The
threshold comes from the others: where j of m may lie above it, `Point.fpr_bound` is the
Clopper-Pearson bound of j of m. Intervals are over other candidates, not over other trainings; for
a bound that holds with one network see `attacks.epsilon.one_run`.
Source: Carlini et al. 2022 (arXiv 2112.03570), section III; DeLong et al. 1988 (areas compared).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attacks.epsilon.mechanism import lower_bound
from attacks.statistics import RESAMPLES, clopper_pearson
from panas.runtime.errors import BadInput

RATES = (0.01, 0.001)
"""False-positive rates at which true positives are reported."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """True positives at a rate of false positives."""

    fpr: float  # that was asked for: at most so many of the others are above
    tpr: float
    interval: tuple[float, float]
    """Of tpr, by Clopper and Pearson, at the threshold that the others gave."""
    fpr_bound: float
    """Of the true rate of false positives there; wrong as often as one end of `interval`."""


@dataclass(frozen=True, kw_only=True)
class Roc:
    """How well scores tell members from others."""

    fpr: Float[np.ndarray, "t"]  # from 0 to 1, one a threshold; none where read from JSON
    tpr: Float[np.ndarray, "t"]  # at the same thresholds
    auc: float  # 0.5 is as good as a coin
    auc_interval: tuple[float, float]  # by bootstrap over members and over others
    points: tuple[Point, ...]  # at each of `RATES`
    epsilon_if_independent: float
    """Lower bound at `delta`, were each score an independent draw of the mechanism."""
    delta: float
    confidence: float  # of all intervals and bounds

    def to_json(self) -> dict[str, Any]:
        """The figures, without the curve."""
        return {k: v for k, v in asdict(self).items() if k not in ("fpr", "tpr")}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Roc":
        """The figures that `to_json` gave, without a curve."""
        points = (Point(**p | {"interval": tuple(p["interval"])}) for p in record["points"])
        typed = {"auc_interval": tuple(record["auc_interval"]), "points": tuple(points)}
        named = {k: v for k, v in record.items() if k != "name"}
        return cls(fpr=np.empty(0), tpr=np.empty(0), **named | typed)


def roc(
    scores: Float[Tensor, "n"],
    members: Bool[Tensor, "n"],
    *,
    rng: np.random.Generator,
    delta: float = 1e-5,
    confidence: float = 0.95,
) -> Roc:
    """Score the scores of an attack.

    Args:
        scores: one a candidate, higher for members; they may be infinite, never NaN.
        members: which candidates are members; two or more are, and two or more are not.
        rng: of the bootstrap, and of the order in which epsilon's halves are taken.
        delta: of the epsilon that the scores would need, in [0, 1).
        confidence: of all intervals, in (0, 1).
    """
    values, truth = scores.detach().cpu().double().numpy(), members.cpu().numpy()
    ins, outs = values[truth], values[~truth]
    if min(len(ins), len(outs)) < 2 or np.isnan(values).any():
        raise BadInput(
            "expected scores of two or more members and two or more others, all numbers, got "
            f"{len(ins)} and {len(outs)}; give more candidates, and see that no score is NaN"
        )
    _, group = np.unique(values, return_inverse=True)
    groups = int(group.max()) + 1
    hist_in, hist_out = (np.bincount(group[w], minlength=groups) for w in (truth, ~truth))
    draws = [_auc(_again(rng, hist_in), _again(rng, hist_out)) for _ in range(RESAMPLES)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    first, second = (torch.from_numpy(rng.permutation(s)) for s in (ins, outs))
    return Roc(
        fpr=np.concatenate([[0.0], hist_out[::-1].cumsum() / len(outs)]),
        tpr=np.concatenate([[0.0], hist_in[::-1].cumsum() / len(ins)]),
        auc=_auc(hist_in, hist_out),
        auc_interval=(float(low), float(high)),
        points=tuple(_point(ins, outs, rate, confidence) for rate in RATES),
        epsilon_if_independent=lower_bound(first, second, delta, confidence),
        delta=delta,
        confidence=confidence,
    )


def point_of(scores: Float[Tensor, "n"], members: Bool[Tensor, "n"], *, confidence: float) -> Point:
    """True positives at the first of `RATES`, with an interval.

    Args:
        scores: one a candidate, higher for members.
        members: which candidates are members.
        confidence: of the interval, in (0, 1).
    """
    values, truth = scores.detach().cpu().double().numpy(), members.cpu().numpy()
    return _point(values[truth], values[~truth], RATES[0], confidence)


def area_bound(
    scores: Float[Tensor, "n"],
    members: Bool[Tensor, "n"],
    *,
    error: float,
    beside: Float[Tensor, "n"] | None = None,
) -> float:
    """Lower bound of the area under a curve, or of what it has over another's.

    Args:
        scores: one a candidate, higher for members.
        members: which candidates are members; two or more are, and two or more are not.
        error: probability that the bound is wrong, in (0, 1).
        beside: other scores of the same candidates, compared in pairs; None: the area itself.
    """
    truth = members.cpu().numpy()
    ins, outs = _placements(scores, truth)
    area = float(ins.mean())
    if beside is not None:
        less = _placements(beside, truth)
        area -= float(less[0].mean())
        ins, outs = ins - less[0], outs - less[1]
    fewest = min(len(ins), len(outs))
    spread = math.sqrt(ins.var(ddof=1) / len(ins) + outs.var(ddof=1) / len(outs))
    return area - float(scipy.stats.t.isf(error, fewest - 1)) * spread


def _placements(
    scores: Float[Tensor, "n"], truth: Bool[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "a"], Float[np.ndarray, "b"]]:
    """Of each member the share of others below it, of each other that of members above; ties half.

    Either has the area as its mean.
    """
    values = scores.detach().cpu().double().numpy()
    ins, outs = np.sort(values[truth]), np.sort(values[~truth])

    def below(among: np.ndarray, of: np.ndarray) -> np.ndarray:
        ends = np.searchsorted(among, of, "left") + np.searchsorted(among, of, "right")
        return ends / (2 * len(among))

    return below(outs, values[truth]), 1 - below(ins, values[~truth])


def _again(rng: np.random.Generator, histogram: np.ndarray) -> np.ndarray:
    """As many draws from a histogram as it holds."""
    n = int(histogram.sum())
    return rng.multinomial(n, histogram / n)


def _auc(ins: np.ndarray, outs: np.ndarray) -> float:
    """Of the numbers of members and of others at each value, in rising order."""
    below = outs.cumsum() - outs / 2
    return float(ins @ below / (ins.sum() * outs.sum()))


def _point(ins: np.ndarray, outs: np.ndarray, rate: float, confidence: float) -> Point:
    # Rounding must not turn ten others in a thousand into nine.
    allowed = math.floor(rate * len(outs) + 1e-9)
    threshold = np.sort(outs)[::-1][allowed]
    hits = int((ins > threshold).sum())
    return Point(
        fpr=rate,
        tpr=hits / len(ins),
        interval=clopper_pearson(hits, len(ins), confidence),
        # Of those allowed, not of those found: with ties fewer are, and the threshold is no less
        # a choice of the data.
        fpr_bound=clopper_pearson(allowed, len(outs), confidence)[1],
    )
