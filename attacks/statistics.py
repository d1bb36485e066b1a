"""Intervals: exact ones of probabilities, and bootstrapped ones of means and of gains in R^2.

Source: Clopper and Pearson 1934; Efron 1981; Hall 1988.
"""

import math

import numpy as np
import scipy
from jaxtyping import Float, Int
from torch import Tensor

from panas.runtime.errors import BadInput

RESAMPLES = 1000  # bootstrap draws behind an interval
BELOW = (1 - 0.95) / 2  # share of draws below an interval, and above it
TAIL = 10  # draws beyond a quantile that is read from them, at least
MAX_DRAWS = 10_000  # behind one bound, at most

MIN_SAMPLES = 20
"""With fewer scored samples an audit gives no verdict, and a gain in R^2 no interval: draws of few
and skewed errors have standard errors near 0."""


def clopper_pearson(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of a probability; each end is wrong at most (1 - confidence) / 2.

    Args:
        hits: 0 to n.
        n: independent trials, at least 1.
        confidence: of both ends together, in (0, 1).
    """
    if not (0 <= hits <= n and n >= 1 and 0 < confidence < 1):
        raise BadInput(
            f"expected 0 to n hits of n >= 1 and a confidence in (0, 1), got {hits} of {n} and "
            f"{confidence}; count again"
        )
    at, error = np.array([hits]), (1 - confidence) / 2
    return float(lower_bounds(at, n, error)[0]), float(upper_bounds(at, n, error)[0])


def lower_bounds(hits: Int[np.ndarray, "k"], n: int, error: float) -> Float[np.ndarray, "k"]:
    """Clopper-Pearson lower bounds of k probabilities.

    Args:
        hits: of each, 0 to n.
        n: independent trials of each, at least 1.
        error: probability that one bound is wrong, in (0, 1).
    """
    return np.where(hits > 0, scipy.stats.beta.ppf(error, np.maximum(hits, 1), n - hits + 1), 0.0)


def upper_bounds(hits: Int[np.ndarray, "k"], n: int, error: float) -> Float[np.ndarray, "k"]:
    """Clopper-Pearson upper bounds of k probabilities.

    Args:
        hits: of each, 0 to n.
        n: independent trials of each, at least 1.
        error: probability that one bound is wrong, in (0, 1).
    """
    return np.where(hits < n, scipy.stats.beta.isf(error, hits + 1, np.maximum(n - hits, 1)), 1.0)


def mean_interval(values: Float[Tensor, "n"], *, rng: np.random.Generator) -> tuple[float, float]:
    """Bootstrap interval of a mean at 95 %, by percentiles."""
    n = len(values)
    counts = rng.multinomial(n, np.full(n, 1 / n), RESAMPLES)
    low, high = np.quantile(counts @ values.double().numpy() / n, [BELOW, 1 - BELOW])
    return float(low), float(high)


def gain_interval(
    errors: Float[Tensor, "n"],
    baseline: Float[Tensor, "n"],
    reference: Float[Tensor, "n"],
    *,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Studentised bootstrap interval of R^2(errors) - R^2(baseline) at 95 %, paired by sample.

    With the reference itself as baseline it is the interval of R^2. Pairing cancels what makes a
    sample hard for everyone. Each draw of n samples is measured in standard errors of its own, so
    that few and skewed errors widen the side that they must (percentiles of plain draws claim too
    much there). NaN for both ends with fewer than `MIN_SAMPLES` samples, and where a draw's
    reference is 0.

    Args:
        errors: squared error of the attack on each sample, 0 or more.
        baseline: that of what it is compared with; the reference itself gives the interval of R^2.
        reference: that of the mean public image, by which R^2 divides.
        rng: draws the samples again.
    """
    if len(errors) < MIN_SAMPLES:
        return math.nan, math.nan
    gain, total = (baseline - errors).double().numpy(), reference.double().numpy()
    n = len(gain)
    counts = rng.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    if not (counts @ total).min() > 0:
        return math.nan, math.nan
    centre, spread = (v[:, 0] for v in _ratios(np.full((1, n), 1 / n), gain[:, None], total))
    centres, spreads = (v[:, 0] for v in _ratios(counts, gain[:, None], total))
    floor = max(1e-9 * float(np.abs(gain).mean() / total.mean()), 1e-300)
    low, high = np.quantile((centres - centre) / np.maximum(spreads, floor), [BELOW, 1 - BELOW])
    return float(centre[0] - high * spread[0]), float(centre[0] - low * spread[0])


def gain_bounds(
    gains: Float[Tensor, "k n"],
    reference: Float[Tensor, "n"],
    *,
    rng: np.random.Generator,
    error: float,
) -> Float[np.ndarray, "k"]:
    """Lower bounds of k gains in R^2.

    Samples are drawn again together as for `gain_interval`. No bound is nearer than Student's;
    where the error is rarer than `MAX_DRAWS` draws can show, Student's quantiles scale theirs. NaN
    as of `gain_interval`.

    Args:
        gains: each the difference of two attacks' squared errors, by sample.
        reference: squared error of the mean public image on each sample.
        rng: draws the samples again.
        error: probability that one bound is wrong, in (0, 1).
    """
    top, bottom = gains.double().numpy().T, reference.double().numpy()
    n, k = top.shape
    if n < MIN_SAMPLES:
        return np.full(k, math.nan)
    draws = min(max(RESAMPLES, math.ceil(TAIL / error)), MAX_DRAWS)
    centre, spread = _ratios(np.full((1, n), 1 / n), top, bottom)
    floor = np.maximum(1e-9 * np.abs(top).mean(0) / bottom.mean(), 1e-300)
    parts = []
    for part in np.array_split(np.arange(draws), math.ceil(draws * n / 1e6)):
        counts = rng.multinomial(n, np.full(n, 1 / n), len(part)) / n
        if not (counts @ bottom).min() > 0:
            return np.full(k, math.nan)
        centres, spreads = _ratios(counts, top, bottom)
        parts.append((centres - centre) / np.maximum(spreads, floor))
    shown = max(error, TAIL / draws)
    rare = float(scipy.stats.t.isf(error, n - 1))
    quantiles = np.quantile(np.concatenate(parts), 1 - shown, axis=0)
    quantiles *= rare / float(scipy.stats.t.isf(shown, n - 1))
    # Spreads are n^(1/2) standard errors without the correction for n - 1; so are the draws'.
    return centre[0] - np.maximum(quantiles, rare / math.sqrt(n - 1)) * spread[0]


def _ratios(
    weights: Float[np.ndarray, "draws n"],
    top: Float[np.ndarray, "n k"],
    bottom: Float[np.ndarray, "n"],
) -> tuple[Float[np.ndarray, "draws k"], Float[np.ndarray, "draws k"]]:
    """Ratios of weighted means, and n^(1/2) times their standard errors (delta method)."""
    mean = (weights @ bottom)[:, None]
    ratio = (weights @ top) / mean
    squares = weights @ top**2 - 2 * ratio * (weights @ (top * bottom[:, None]))
    squares += ratio**2 * (weights @ bottom**2)[:, None]
    return ratio, np.sqrt(np.maximum(squares, 0.0)) / mean
