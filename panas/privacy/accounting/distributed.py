"""What a sum costs to which every site adds its share of the noise, in whole steps of a grid.

| symbol | name |
|---|---|
| Delta, g, D | `sensitivity` in L2, `step`, `size` of a `SummedVector` |
| sigma | of one share: discrete Gaussian, in steps |
| k | `shares` of noise that surely are in the sum |
| S | sqrt(k) sigma, the noise of the sum, in steps |
| mu | (Delta / g + sqrt(D)) / S, a change of the sum over its noise |
| theta | how far log-probabilities of D numbers' noise are from those of a Gaussian, rounded |

Rounding to the grid moves each number by half a step at most, hence two neighbours apart by one
more: Delta / g + sqrt(D). A continuous Gaussian rounded to whole steps costs what it costs
unrounded, and k discrete Gaussians together have its probabilities up to factors exp(+-theta),
beyond `REACH` S a tail below 1e-80. Both together cost no more than the continuous Gaussian whose
mu is larger by 2 theta Phi(w) / phi(w) with a small w, about 2.5 theta; `sum_multiplier` returns
the inverse of that.
With 2^24 steps to the noise it is smaller than the exact Gaussian's by less than 1 in 10,000.

The proof is in docs/explanation/proofs.md. Source of the comparison of sums of discrete
Gaussians: Kairouz, Liu and Steinke 2021.
"""

import math
from dataclasses import dataclass

from scipy.special import log_ndtr

from panas.runtime.errors import BadInput

REACH = 20.0  # standard deviations beyond which the noise is a tail of 2e-87 a number
MOST_BUMP = 0.01  # of mu, for noise that is not quite a Gaussian's
ROUNDOFF = 1e-12  # relative, of the formulas here


@dataclass(frozen=True, kw_only=True)
class SummedVector:
    """What sites add up: `size` numbers on a grid of `step`.

    One unit moves them by at most `sensitivity` in L2 norm. Step and sensitivity are in the units
    of the numbers, before rounding.
    """

    sensitivity: float
    step: float
    size: int

    def __post_init__(self) -> None:
        if not (0 < self.sensitivity < math.inf and 0 < self.step < math.inf and self.size >= 1):
            raise BadInput(f"expected numbers above 0 of a summed vector, got {self}")

    @property
    def steps(self) -> float:
        """By how many steps, in L2, one unit moves the rounded vector at most."""
        return self.sensitivity / self.step + math.sqrt(self.size)


def sum_multiplier(vector: SummedVector, sigma: float, shares: int) -> float:
    """The noise multiplier of a Gaussian event that costs at least what the sum costs.

    Args:
        vector: what is summed.
        sigma: of the discrete Gaussian that each share is, in steps.
        shares: how many shares of those who neither drop out nor collude are in the sum; 1 gives
            the price of a single site's share alone, as of a vector that were opened.

    Raises:
        BadInput: if the grid is too coarse for the noise.

    Privacy: at every epsilon >= 0, alone and composed, the sum's delta is at most that of
    `Gaussian(multiplier)`, plus 1e-79 (1 + e^epsilon). More shares than stated cost less.

    """
    S2 = shares * sigma**2
    mu = vector.steps / math.sqrt(S2)
    theta = vector.size * (sum_distance(sigma, shares) + _theta(S2) + REACH**2 / (8 * S2))
    w = 3 * theta + 2 * theta / mu
    bump = 2 * theta * _inverse_mills(w) if w < 1 else math.inf
    if not bump <= min(3 * theta, MOST_BUMP * mu):
        raise BadInput(
            f"expected noise of many steps of the grid, got {math.sqrt(S2):.3g} steps for "
            f"{vector.size} numbers at noise multiplier {1 / mu:.3g}; take a finer grid or more "
            "noise, or set privacy.trust to server"
        )
    return (1 - ROUNDOFF) / (mu + bump)


def share_sigma(vector: SummedVector, multiplier: float, shares: int) -> int:
    """The least sigma of a share with which the sum has this noise multiplier, to one part in
    100,000.

    Args:
        vector: how the summed numbers are rounded to whole steps.
        multiplier: m of the sum, standard deviation over sensitivity, above 0.
        shares: how many shares surely add up, as in `sum_multiplier`; BadInput as there.
    """
    if not 0 < multiplier < math.inf:
        raise BadInput(f"expected a noise multiplier above 0, got {multiplier}")
    sigma = math.ceil(vector.steps * multiplier / math.sqrt(shares))
    while (result := sum_multiplier(vector, sigma, shares)) < multiplier:
        sigma = max(sigma + 1, math.ceil(sigma * (1 + 1e-7) * multiplier / result))
    return sigma


def sum_distance(sigma: float, shares: int) -> float:
    """tau: by how much log-probabilities of a sum of discrete Gaussians differ, at most, from
    those of the one discrete Gaussian of their variance; infinity if sigma is tiny."""
    parts = [_theta(sigma**2 * j / (j + 1)) for j in range(1, shares)]
    return 4 * sum(parts) if max(parts, default=0.0) <= 0.5 else math.inf


def _theta(variance: float) -> float:
    """u: how far sums of exp(-(z - c)^2 / 2v) over whole z are from sqrt(2 pi v), relatively.

    By Poisson summation 2 sum_j exp(-2 pi^2 v j^2), of which this bounds the rest by a geometric
    series.
    """
    first = math.exp(-2 * math.pi**2 * variance)
    return 2 * first / (1 - math.exp(-6 * math.pi**2 * variance)) if first < 1 else math.inf


def _inverse_mills(w: float) -> float:
    """Phi(w) / phi(w), of the standard normal distribution."""
    return math.exp(float(log_ndtr(w)) + w**2 / 2) * math.sqrt(2 * math.pi)
