"""What a Gaussian costs in closed form, and the DP-SGD that accountants are compared on."""

import math

from scipy.optimize import brentq
from scipy.stats import norm

GRID = [
    (q, sigma, steps)
    for q in (0.004, 0.05, 0.3)
    for sigma in (0.7, 1.3, 4.0)
    for steps in (1, 60, 700)
    # Below this the guarantee is void and PRV's grid does not fit into memory.
    if q * math.sqrt(steps) / sigma < 4
]


def analytic_gaussian(noise_multiplier: float, delta: float) -> float:
    """Exact epsilon of one Gaussian mechanism: Balle and Wang 2018, theorem 8."""

    def excess(e: float) -> float:
        a, b = 1 / (2 * noise_multiplier), e * noise_multiplier
        return norm.cdf(a - b) - math.exp(e + norm.logcdf(-a - b)) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, 500.0, xtol=1e-10))
