"""A second opinion on epsilon: Opacus's PRV accountant, which shares no code with dp-accounting.

It brackets the truth for Poisson-sampled Gaussians, one sample added or removed.
Source: Gopi, Lee and Wutschitz 2021, "Numerical composition of differential privacy".
"""

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from opacus.accountants.analysis import prv

from panas.privacy.accounting.closed_form import group_epsilon
from panas.privacy.accounting.events import REPLACE, Merged

LARGEST = 1 << 22  # points of a grid; beyond, the bracket is made wider


class _Loss(NamedTuple):
    """The privacy loss on a grid; None where no grid would do."""

    loss: prv.DiscretePRV | None
    error: float  # by how much epsilon may be off
    delta_error: float  # and delta

    def bounds(self, delta: float) -> tuple[float, float, float]:
        low = estimate = high = math.nan
        if self.loss is not None:
            with np.errstate(all="ignore"), suppress(RuntimeError, ValueError):
                result = self.loss.compute_epsilon(delta, self.delta_error, self.error)
                low, estimate, high = (float(x) for x in result)
        if not low <= estimate <= high:
            return 0.0, math.inf, math.inf
        return max(0.0, low), max(0.0, estimate), max(0.0, high)

    def delta_above(self, epsilon: float) -> float:
        """An upper bound of delta at `epsilon`."""
        if self.loss is None:
            return 1.0
        with np.errstate(all="ignore"):
            delta = float(self.loss.compute_delta_estimate(epsilon - self.error))
        return delta + self.delta_error


def _loss(steps: Sequence[tuple[float, float, int]], delta: float) -> _Loss:
    """The privacy loss of T steps for each (q, sigma, T), as precise as `delta` needs."""
    losses = [prv.PoissonSubsampledGaussianPRV(q, sigma) for q, sigma, _ in steps]
    counts = [t for *_, t in steps]
    error, delta_error = 0.01, delta / 1000
    while error <= 1.0:
        # A grid that cannot hold it raises; a coarser one may hold it.
        refused = suppress(RuntimeError, ValueError, OverflowError, ZeroDivisionError)
        with refused, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the Renyi orders of Opacus's first grid
            reach = float(prv.compute_safe_domain_size(losses, counts, error, delta_error))
            mesh = error / math.sqrt(sum(counts) * math.log(12 / delta_error) / 2)
            if math.isfinite(reach) and 2 * reach / mesh < LARGEST:
                grid = prv.Domain.create_aligned(-reach, reach, mesh)
                ends = grid.t_min, grid.t_max
                cut = [prv.TruncatedPrivacyRandomVariable(p, *ends) for p in losses]
                parts = [prv.discretize(p, grid) for p in cut]
                whole = prv.compose_heterogeneous(dprvs=parts, num_self_compositions=counts)
                return _Loss(whole, error, delta_error)
        error *= 2
    return _Loss(None, math.inf, delta_error)


@lru_cache(maxsize=256)
def prv_epsilon(merged: Merged, delta: float) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound; beyond one sample the last two are the rule's."""
    reach, pairs = merged.group, merged.precision
    if merged.relation == REPLACE and merged.sampled:
        # A replacement is two steps of one sample; a Gaussian's halfway point is Delta / 2 away.
        reach, pairs = 2 * reach, pairs / 4
    full = [(1.0, pairs**-0.5, 1)] if pairs else []
    loss = _loss([*full, *merged.sampled], delta)
    low, estimate, high = loss.bounds(delta)
    if reach == 1:
        return low, estimate, high
    high = group_epsilon(loss.delta_above, delta, reach)
    return low, high, high
