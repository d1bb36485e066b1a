"""The gate: what leaves a site is charged to its ledger first, and carries the receipt.

A representation is computed by reading the private sample again, so that DP-SGD weights do not
protect it: post-processing covers functions of the weights alone. What leaves is therefore a
mechanism of its own (`panas.privacy.release.kind`), which covers the labels too.

**Sums.** Where nobody sees more than the sum of releases over all sites, every site adds a share of
the noise. The sum of the shares of n - t sites protects a unit as much as the noise of a release
that is seen alone; a share alone protects less, which the charge says.

| symbol | name |
|---|---|
| n, t | sites, and how many of them may be missing or help the server |
| m | noise multiplier of the sum over n - t sites, `noise_multiplier` |
| s | standard deviation of its noise: m times the kind's sensitivity |
| share | of variance s^2 / (n - t), in whole steps of a grid: `sigma` |

Source: Kairouz, Liu and Steinke 2021 (distributed discrete Gaussian).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from panas.privacy.accounting.distributed import SummedVector, share_sigma, sum_multiplier
from panas.privacy.accounting.events import ADD_OR_REMOVE, Gaussian, PostProcessing, Unprotected
from panas.privacy.discrete_gaussian import discrete_gaussian
from panas.privacy.ledger.account import Account
from panas.privacy.ledger.charge import Charge, Receipt, SecureSum
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.noise import NoiseSource
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import (
    ReleaseEvent,
    SummedKind,
    kind_named,
    noise_scale,
    summed_kind,
)
from panas.privacy.release.rows import checked_rows
from panas.privacy.unit import check_unit
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class Released:
    """What leaves a site; it cannot be built without the receipt of its charge."""

    kind: str
    arrays: Mapping[str, Tensor]
    receipt: Receipt
    site: int  # who sends it

    def __post_init__(self) -> None:
        if not isinstance(self.receipt, Receipt) or self.receipt.charge.mechanism != self.kind:
            raise BadInput(
                f"expected the receipt of a charge for {self.kind!r}, got {self.receipt!r}; "
                "charge the ledger first"
            )
        self.receipt.use()


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """What is to leave."""

    kind: str
    event: ReleaseEvent  # the kind's, or `Unprotected()` for no noise
    site: int
    round: int
    classes: int
    subset: str = "train"  # of the site's samples that `rows` reads, as its account names them

    def charge(self, sensitivity: float | None, trust: SecureSum | None = None) -> Charge:
        """What is charged before it leaves."""
        return Charge(
            event=self.event,
            phase="release",
            mechanism=self.kind,
            recipient="server",
            sensitivity=sensitivity,
            subset=self.subset,
            round=self.round,
            trust=trust,
        )

    def check_relation(self, account: Account) -> None:
        """Refuse an account of another relation than releases are priced under."""
        if account.relation != ADD_OR_REMOVE:
            raise BadInput(
                f"expected an account under {ADD_OR_REMOVE} for {self.kind}, got one under "
                f"{account.relation}; open it with that relation"
            )


def release(
    request: ReleaseRequest,
    rows: Callable[[], Rows | tuple[Tensor, Tensor]],
    *,
    ledger: Ledger,
    noise: NoiseSource,
    keep: Callable[[Released], None] | None = None,
) -> Released:
    """Charge the ledger, then read the data and let what the mechanism makes of it leave.

    What takes time or memory, and may fail, is done before, and `rows` gives what is there already:
    nothing is charged for work that cannot be done, and what was computed before the charge stays
    in memory. A representation that is not finite counts as a row of zeros. BudgetExhausted or
    BadInput from the charge, or if the event is not the kind's, the account is of another relation,
    or a label is no class: nothing leaves, and what was charged stays so.

    With `keep`, a release that died under way may be made again for the same charge: what was drawn
    before was never sent, so that one draw leaves for one charge. Whether a process dies must not
    depend on what was drawn, else what leaves is drawn from those that it survives: between charge
    and `keep` nothing refuses, or branches on, a number. A kill from outside sees none.

    Args:
        request: kind, event, classes and round.
        rows: reads representations, labels, and groups where they are the privacy unit; called once
            the charge is on disk.
        ledger: of the samples that are read, its account open.
        noise: the operating system's, unless for a test.
        keep: writes what leaves to the disk, from where alone it is sent, before the charge is
            noted as used.

    Privacy: epsilon-delta of the event for one unit added or removed, labels included; none for
    `Unprotected()`.
    """
    event, kind, account = request.event, kind_named(request.kind), ledger.account()
    _check_event(request, account)
    scale = noise_scale(kind, event.noise_multiplier) if isinstance(event, Gaussian) else 0.0
    charge = request.charge(kind.SENSITIVITY)
    with ledger.charge(charge, resumes=keep is not None) as receipt:
        read = Rows(*rows())
        if kind.READS == "training":
            check_unit(account.unit, read.groups)
        checked = checked_rows(read, request.classes, request.site)
        arrays = kind.run(checked, request.classes, scale, noise)
        released = Released(request.kind, arrays, receipt, request.site)
        if keep is not None:
            keep(released)
    return released


def _check_event(request: ReleaseRequest, account: Account) -> None:
    event, wanted = request.event, kind_named(request.kind).CHARGED_AS
    if isinstance(event, Unprotected):
        return
    if not isinstance(event, wanted):
        raise BadInput(
            f"expected {request.kind} to be charged as what it is, {wanted.__name__}, got "
            f"{event}; give that event, or Unprotected() for no noise"
        )
    if isinstance(event, PostProcessing):
        if any(isinstance(e, Unprotected) for e in account.events("training")):
            raise BadInput(
                "expected public rows of weights that were trained under DP, got weights without; "
                "they are no post-processing: charge Unprotected()"
            )
    else:
        request.check_relation(account)


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
        """The noise with which a sum over sites has at least a noise multiplier.

        Args:
            kind: what is summed.
            least: noise multiplier of the sum; 0 for no noise.
            sites: n, how many take part.
            missing: t, how many of them may be gone, below n / 3.
            size: how many numbers a site's part has.
        """
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

    It does so as `panas.privacy.release.gate.release`, whose event is `noise.event`.

    Args:
        request: kind, event, classes and round.
        rows: reads representations, labels and groups; called once the charge is on disk.
        noise: of the sum, which all sites compute alike.
        ledger: of the samples that are read, its account open.
        sampler: draws the site's share of the noise in whole steps; another one for tests alone.
        keep: masks the part and writes it to the disk before the charge is noted as used.

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
