"""A second opinion on epsilon: Opacus's PRV accountant, which shares no code with dp-accounting.

Source: Gopi, Lee and Wutschitz 2021, "Numerical composition of differential privacy". It
brackets the truth for Poisson-sampled Gaussians, one sample added or removed.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from opacus.accountants.analysis.prv import (
    DiscretePRV,
    Domain,
    PoissonSubsampledGaussianPRV,
    TruncatedPrivacyRandomVariable,
    compose_heterogeneous,
    compute_safe_domain_size,
    discretize,
)

from panas.privacy.accounting.closed_form import group_epsilon
from panas.privacy.accounting.composition import Merged
from panas.privacy.accounting.events import REPLACE, Relation

LARGEST = 1 << 22
"""Points of the grid that are worth their memory; beyond, the bracket is made wider."""


@dataclass(frozen=True)
class DiscreteLoss:
    """The privacy loss on a grid; `loss` is None where no grid would do.

    Attributes:
        loss: Opacus's discrete privacy loss random variable.
        error: by how much epsilon may be off, above 0.
        delta_error: by how much delta may be off besides.

    """

    loss: DiscretePRV | None
    error: float
    delta_error: float

    def bounds(self, delta: float) -> tuple[float, float, float]:
        """Lower bound, estimate, upper bound of epsilon; (0, infinity, infinity) without a grid."""
        if self.loss is None:
            return 0.0, math.inf, math.inf
        try:
            with np.errstate(all="ignore"):
                found = self.loss.compute_epsilon(delta, self.delta_error, self.error)
        except (RuntimeError, ValueError):
            return 0.0, math.inf, math.inf
        low, estimate, high = (float(x) for x in found)
        if not low <= estimate <= high:  # NaN
            return 0.0, math.inf, math.inf
        return max(0.0, low), max(0.0, estimate), max(0.0, high)

    def delta_above(self, epsilon: float) -> float:
        """An upper bound of delta at `epsilon`."""
        if self.loss is None:
            return 1.0
        with np.errstate(all="ignore"):
            delta = float(self.loss.compute_delta_estimate(epsilon - self.error))
        return delta + self.delta_error


def discrete_loss(steps: Sequence[tuple[float, float, int]], delta: float) -> DiscreteLoss:
    """The privacy loss of T steps at rate q and noise sigma, for each (q, sigma, T).

    Args:
        steps: q in (0, 1], sigma above 0, T at least 1.
        delta: at which it will be asked; sets the precision.

    """
    losses = [PoissonSubsampledGaussianPRV(q, sigma) for q, sigma, _ in steps]
    counts = [t for *_, t in steps]
    error, delta_error = 0.01, delta / 1000
    while error <= 1.0:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                # Opacus warns of the Renyi orders of its first grid.
                warnings.simplefilter("ignore")
                reach = float(compute_safe_domain_size(losses, counts, error, delta_error))
                mesh = error / math.sqrt(sum(counts) * math.log(12 / delta_error) / 2)
                if math.isfinite(reach) and 2 * reach / mesh < LARGEST:
                    domain = Domain.create_aligned(-reach, reach, mesh)
                    cut = [
                        TruncatedPrivacyRandomVariable(p, domain.t_min, domain.t_max)
                        for p in losses
                    ]
                    parts = [discretize(p, domain) for p in cut]
                    whole = compose_heterogeneous(dprvs=parts, num_self_compositions=counts)
                    return DiscreteLoss(whole, error, delta_error)
        except (RuntimeError, ValueError, OverflowError, ZeroDivisionError):
            pass  # such a grid cannot hold it; a coarser one may
        error *= 2
    return DiscreteLoss(None, math.inf, delta_error)


@lru_cache(maxsize=256)
def prv_epsilon(
    merged: Merged, delta: float, relation: Relation, group: int
) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound of epsilon for Gaussian events.

    Beyond one sample added or removed the upper bound is the general rule's, and the estimate too.
    """
    reach, pairs = group, merged.precision
    if relation == REPLACE and merged.sampled:
        # A replacement is two steps of one sample; a Gaussian's halfway point is Delta / 2 away.
        reach, pairs = 2 * group, merged.precision / 4
    full = [(1.0, pairs**-0.5, 1)] if pairs else []
    loss = discrete_loss([*full, *merged.sampled], delta)
    low, estimate, high = loss.bounds(delta)
    if reach == 1:
        return low, estimate, high
    high = group_epsilon(loss.delta_above, delta, reach)
    return low, high, high
