"""A site's part of a sum of releases, where nobody sees more than the sum over all sites.

Every site adds a share of the noise. The sum of the shares of n - t sites protects a unit as much
as the noise of a release that is seen alone; a share alone protects less, which the charge says.

| symbol | name |
|---|---|
| n, t | sites, and how many of them may be missing or help the server |
| m | noise multiplier of the sum over n - t sites, `noise_multiplier` |
| s | standard deviation of its noise: m times the kind's sensitivity |
| share | of variance s^2 / (n - t), in whole steps of a grid: `sigma` |

Source: Kairouz, Liu and Steinke 2021 (distributed discrete Gaussian).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from panas.privacy.accounting.distributed import SummedVector, share_sigma, sum_multiplier
from panas.privacy.accounting.events import Gaussian, Unprotected
from panas.privacy.discrete_gaussian import discrete_gaussian
from panas.privacy.ledger.charge import Receipt, SecureSum
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.estimate import Rows
from panas.privacy.release.gate import ReleaseRequest
from panas.privacy.release.kind import SummedKind, summed_kind
from panas.privacy.release.rows import checked_rows
from panas.privacy.unit import check_unit
from panas.runtime.errors import BadInput

STEPS = 24
"""A grid has at least 2^24 steps to the standard deviation of the sum's noise."""
Sampler = Callable[[int, int], Int64[np.ndarray, "k"]]
"""Draws so many numbers of a discrete Gaussian of standard deviation sigma."""


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """The noise of a sum and how it is shared out; all of it is public."""

    sites: int  # n
    missing: int  # t
    step: float  # of the grid, a power of two
    sigma: int  # standard deviation of a site's share, in steps; 0 for no noise
    noise_multiplier: float  # of the sum over n - t sites, rounding included; 0 for no noise
    local: float  # of one share alone

    @staticmethod
    def of(kind: SummedKind, least: float, sites: int, missing: int, size: int) -> "SumNoise":
        """The noise with which a sum over `sites`, `missing` of them gone, has at least the
        multiplier `least`; 0 for no noise. `size` is how many numbers there are."""
        of_sites = partial(SumNoise, sites=sites, missing=missing)
        if not least:
            return of_sites(step=2.0**-STEPS, sigma=0, noise_multiplier=0.0, local=0.0)
        s, honest = kind.SUM_SENSITIVITY * least, sites - missing
        step = 2.0 ** math.floor(math.log2(s) - STEPS)
        vector = SummedVector(sensitivity=kind.SUM_SENSITIVITY, step=step, size=size)
        sigma = share_sigma(vector, least, honest)
        of_sum, local = (sum_multiplier(vector, sigma, shares) for shares in (honest, 1))
        return of_sites(step=step, sigma=sigma, noise_multiplier=of_sum, local=local)

    @property
    def trust(self) -> SecureSum | None:
        """What a charge for a share rests on; None without noise."""
        if not self.sigma:
            return None
        return SecureSum(sites=self.sites, missing=self.missing, local=self.local)

    @property
    def event(self) -> Gaussian | Unprotected:
        """What a share is charged as under that trust."""
        return Gaussian(self.noise_multiplier) if self.sigma else Unprotected()

    def scale(self, present: int) -> float:
        """Standard deviation of each number's noise in the sum over so many sites."""
        return self.sigma * self.step * math.sqrt(present)


@dataclass(frozen=True)
class Summand:
    """What a site adds to a sum, in steps of the grid: it must leave under a mask alone."""

    steps: Int64[np.ndarray, "k"]
    receipt: Receipt


def add_to_sum(
    request: ReleaseRequest,
    rows: Callable[[], Rows],
    *,
    noise: SumNoise,
    ledger: Ledger,
    sampler: Sampler = discrete_gaussian,
    keep: Callable[[Summand], None] | None = None,
) -> Summand:
    """Charge the ledger, then read the data and make the site's part of the sum.

    As `panas.privacy.release.gate.release`, whose event is `noise.event`; `keep` masks and writes.

    Privacy: epsilon-delta of that event for one unit, to whoever sees the sum alone, as long as at
    most t sites are missing or tell their own part; of `noise.local` to all others together.
    """
    kind, account = summed_kind(request.kind), ledger.account()
    if request.event != noise.event:
        raise BadInput(f"expected a charge of {noise.event}, got {request.event}; give that event")
    if noise.sigma:
        request.check_relation(account)
    charge = request.charge(kind.SUM_SENSITIVITY, noise.trust)
    with ledger.charge(charge, resumes=keep is not None) as receipt:
        read = rows()
        check_unit(account.unit, read.groups)
        exact = kind.numbers(checked_rows(read, request.classes, request.site), request.classes)
        steps = in_steps(exact, noise.step)
        if noise.sigma:
            steps = steps + sampler(noise.sigma, len(steps))
        receipt.use()
        summand = Summand(steps, receipt)
        if keep is not None:
            keep(summand)
    return summand


def in_steps(numbers: Tensor, step: float) -> Int64[np.ndarray, "k"]:
    """Each number as its nearest whole step of the grid."""
    return np.rint(numbers.double().numpy() / step).astype(np.int64)


def from_steps(steps: Int64[np.ndarray, "k"], step: float) -> Tensor:
    """The numbers that steps stand for, float64."""
    return torch.from_numpy(steps * step)
