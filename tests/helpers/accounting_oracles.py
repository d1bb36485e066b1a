"""What mechanisms cost by other ways than the product's, and the DP-SGD to compare them on."""

import math
from collections.abc import Sequence

import dp_accounting as dpa
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from panas.privacy.accounting.events import Event, Gaussian, SampledGaussian

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


def composed(events: Sequence[Event], delta: float, interval: float = 1e-3) -> float:
    """dp-accounting's own accountant, which shares no code with the ledger's prices."""
    known = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(known, value_discretization_interval=interval)
    for e in events:
        assert isinstance(e, Gaussian | SampledGaussian)
        mechanism = dpa.GaussianDpEvent(e.noise_multiplier)
        if isinstance(e, SampledGaussian):
            accountant.compose(dpa.PoissonSampledDpEvent(e.rate, mechanism), e.steps)
        else:
            accountant.compose(mechanism)
    return float(accountant.get_epsilon(delta))
