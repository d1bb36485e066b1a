"""The mechanism audit: how much privacy a mechanism has at most, from draws of its output.

A mechanism M is (epsilon, delta)-private if P(M(D) in S) <= e^epsilon P(M(D') in S) + delta for
every event S and all neighbours D, D' (either may be the larger). One S and pair that need a
larger epsilon refute a claim. The adversary chose D and D', knows the code, sees many outputs of
each and scores them; S is "the score is at least (at most) t".

    epsilon_LB = ln((TPR_L - delta) / FPR_U)

| symbol | name |
|---|---|
| D, D' | the worlds "in" and "out" |
| TPR_L, FPR_U | Clopper-Pearson lower bound on P(S) in one world, upper one in the other |

It cannot show that a claim is true, nor an epsilon above `ceiling`, about ln(draws). With 10^5
draws the bound is within 10 to 20 % of a Gaussian's claim at delta = 0.01, and within 40 to 50 % at
1e-5, where events are too rare to count.
Source: Jagielski et al. 2020, section 4; Nasr et al. 2021, section 3.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attacks.statistics import lower_bounds, upper_bounds
from panas.runtime.errors import BadInput

ScoreFunction = Callable[[Tensor], Tensor]
"""Outputs (k, d) to scores (k,): the larger, the more an output looks like world "in"."""

CANDIDATES = 200
"""Thresholds that are tried from each end of the scores."""


def lower_bound(
    scores_in: Float[Tensor, "n"],
    scores_out: Float[Tensor, "m"],
    delta: float,
    confidence: float = 0.95,
) -> float:
    """A lower bound on epsilon, 0 or more, from scores of independent outputs of M(D) and M(D').

    The first half of each chooses one event among all thresholds, both directions and both orders
    of the worlds; the second half judges it, its two probabilities sharing the error. For an
    (epsilon, delta)-private M the bound exceeds epsilon with probability at most 1 - confidence,
    if the score was chosen without sight of these outputs.

    Args:
        scores_in: of outputs with the sample, independent, in the order drawn; n >= 2.
        scores_out: of outputs without it, likewise.
        delta: of the privacy that is refuted, in [0, 1).
        confidence: that the mechanism's epsilon is not below the bound, in (0, 1).

    >>> import torch
    >>> order = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    >>> without = torch.linspace(-2, 2, 500)[order]
    >>> lower_bound(without + 9, without, 0.01) > 3, lower_bound(without, without, 0.01)
    (True, 0.0)
    """
    worlds = [s.detach().cpu().double().numpy() for s in (scores_in, scores_out)]
    if min(map(len, worlds)) < 2 or any(np.isnan(w).any() for w in worlds):
        raise BadInput(
            f"expected two or more scores of each world, all numbers, got {len(worlds[0])} and "
            f"{len(worlds[1])}; draw more, and see that no output is NaN"
        )
    check_probabilities(delta, confidence)
    choosing = [w[: len(w) // 2] for w in worlds]
    judging = [w[len(w) // 2 :] for w in worlds]
    # Thresholds at ranks that are dense at both ends, where the events are rare.
    values = np.unique(np.concatenate(choosing))
    ranks = np.geomspace(1, len(values), CANDIDATES).astype(int) - 1
    thresholds = values[np.union1d(ranks, len(values) - 1 - ranks)]
    best = (-math.inf, 1, 0, 0.0)
    for sign in (1, -1):
        for likely in (0, 1):
            t = sign * thresholds
            signed = sign * choosing[likely], sign * choosing[1 - likely]
            result = _bound(*signed, t, delta, confidence)
            k = int(result.argmax())
            best = max(best, (float(result[k]), sign, likely, float(t[k])))
    _, sign, likely, threshold = best
    signed = sign * judging[likely], sign * judging[1 - likely]
    bound = _bound(*signed, np.array([threshold]), delta, confidence)
    return max(0.0, float(bound[0]))


def ceiling(draws: int, delta: float, confidence: float = 0.95) -> float:
    """The largest `lower_bound` that some number of outputs can give.

    Args:
        draws: outputs of each world, 2 or more.
        delta: of the privacy that is refuted, in [0, 1).
        confidence: as for `lower_bound`, in (0, 1).
    """
    check_probabilities(delta, confidence)
    apart = np.ones(draws - draws // 2)
    bound = _bound(apart, -apart, np.zeros(1), delta, confidence)
    return max(0.0, float(bound[0]))


def check_probabilities(delta: float, confidence: float) -> None:
    """Refuse a delta outside [0, 1) or a confidence outside (0, 1)."""
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise BadInput(
            f"expected delta in [0, 1) and confidence in (0, 1), got {delta} and {confidence}; "
            "give probabilities"
        )


def _bound(
    likely: np.ndarray, unlikely: np.ndarray, t: np.ndarray, delta: float, confidence: float
) -> np.ndarray:
    """Epsilon_LB of the events "score >= t", one a threshold, were each the only one."""
    error = (1 - confidence) / 2
    n, m = len(likely), len(unlikely)
    hits = n - np.searchsorted(np.sort(likely), t)
    misses = m - np.searchsorted(np.sort(unlikely), t)
    low, high = lower_bounds(hits, n, error), upper_bounds(misses, m, error)
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(low - delta, 0.0) / high)


def gaussian_score(
    mean_in: Float[Tensor, "d"], mean_out: Float[Tensor, "d"], std: Float[Tensor, "d"]
) -> ScoreFunction:
    """The log-likelihood ratio of N(mean_in, std^2) against N(mean_out, std^2).

    No score tells two Gaussians of known noise better apart, nor two Poisson-sampled ones.

    Args:
        mean_in: what the mechanism gives without noise, with the sample.
        mean_out: the same without the sample.
        std: of the noise on each number, above 0.
    """
    weights = (mean_in - mean_out).double() / std.double() ** 2
    middle = (mean_in + mean_out).double() / 2
    return lambda outputs: (outputs.double() - middle) @ weights


def fitted_score(
    outputs_in: Float[Tensor, "k d"], outputs_out: Float[Tensor, "m d"]
) -> ScoreFunction:
    """Fisher's linear discriminant, fitted on outputs that the audit does not use again.

    It knows nothing of the mechanism, and finds what is linear: too little noise or none, noise
    that cancels between two rounds or never changes.
    """
    worlds = [o.double() for o in (outputs_in, outputs_out)]
    gap = worlds[0].mean(0) - worlds[1].mean(0)
    centred = torch.cat([w - w.mean(0) for w in worlds])
    covariance = centred.T @ centred / len(centred)
    # A direction without noise is the best there is; the ridge keeps its weight finite.
    ridge = 1e-9 * (covariance.trace() + gap.square().sum())
    if not float(ridge) > 0:
        return lambda outputs: torch.zeros(len(outputs), dtype=torch.float64)
    eye = torch.eye(len(gap), dtype=torch.float64)
    weights = torch.linalg.solve(covariance + ridge * eye, gap)
    return lambda outputs: outputs.double() @ weights
