"""Audit of one release: whether its noise is what was claimed, and what epsilon it has at least.

Two questions to one site's last release, both asked by someone who holds the truth:

1. *Is the noise there?*
2. *What does the mechanism promise at most?* `attacks.epsilon.mechanism` on this site's own
   samples: D is all of them, D' lacks one unit, a sample or a whole group. What D and D' give
   without noise is computed once; each draw of the noise is the mechanism run on the unit alone
   and on nothing, less the same without noise. The claim is epsilon of this release alone.

**The first.** What was released less what it would be without noise, over the claimed standard
deviation s, is k independent standard normal numbers if the claim is true: the sum of their squares
is chi-square with k degrees of freedom. Tested apart, from both sides, are each array, its numbers
of equal noise (a diagonal), each of its rows (a class), and each number. The levels share the error
by Bonferroni, a third each. Too much noise refutes a claim as well: the mechanism is another. Where
compression has rounded noised numbers, their squares have the mean and variance of claimed noise so
rounded.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy
import torch
from jaxtyping import Bool, Float
from scipy.special import chdtr, chdtrc, ndtri
from torch import Tensor

from attacks.epsilon.mechanism import ceiling, gaussian_score, lower_bound
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.compression import Compression, rounded_like, rounding
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import ReleaseKind, is_noised, kind_named, noise_scale
from panas.privacy.release.rows import clip_rows
from panas.privacy.unit import number_units
from panas.runtime.errors import BadInput

MANY, QUANTILES = 30, 128
"""Numbers of which the sum is about normal, and points at which noise is rounded."""
NOISE_CONFIDENCE = 0.9999
"""Of the intervals of the noise, all parts together: a false alarm is costly, and must be rare with
a hundred sites."""


@dataclass(frozen=True, kw_only=True)
class ReleaseClaim:
    """A release that noise protects, the noise that it claims, and the truth behind it."""

    kind: str
    arrays: Mapping[str, Tensor]  # what left
    truth: Rows  # what it was made of, at least one row
    classes: int
    noise_multiplier: float
    compression: Compression = "none"  # of the run's releases, whose rounding is no noise

    def __post_init__(self) -> None:
        if not is_noised(self.mechanism) or not len(self.truth.z):
            raise BadInput(
                "expected a noised release of at least one sample, got "
                f"{self.kind} of {len(self.truth.z)}"
            )
        specs = self.mechanism.arrays(self.classes, self.truth.z.shape[1])
        wanted = {name: spec.shape for name, spec in specs.items()}
        if {name: tuple(a.shape) for name, a in self.arrays.items()} != wanted:
            raise BadInput(
                f"expected the arrays of {self.kind} and no others ({', '.join(wanted)}), got "
                f"{', '.join(self.arrays) or 'none'} of other names or shapes; refuse the release"
            )

    @cached_property
    def mechanism(self) -> ReleaseKind:
        """What made it."""
        return kind_named(self.kind)

    @property
    def scale(self) -> float:
        """s."""
        return noise_scale(self.mechanism, self.noise_multiplier)

    @property
    def spread(self) -> dict[str, Tensor]:
        """The noise of each number in units of s, by part."""
        parts = self.mechanism.arrays(self.classes, self.truth.z.shape[1])
        return {name: spec.noise for name, spec in parts.items() if spec.noise is not None}

    def again(self, rows: Rows, scale: float, noise: NoiseSource) -> dict[str, Tensor]:
        """What the mechanism makes of other rows, or of other noise.

        Args:
            rows: n >= 0 of them, of the release's width.
            scale: standard deviation of the noise on each number; 0 for none.
            noise: what draws it.
        """
        return self.mechanism.run(rows, self.classes, scale, noise)


@dataclass(frozen=True)
class PartNoise:
    """The noise of some numbers of a release over the claimed one."""

    name: str
    ratio: float
    interval: tuple[float, float]
    odds: float  # of what was found, or worse, over the error that the part may make

    @property
    def wrong(self) -> bool:
        """Whether the interval lies beside 1."""
        return not self.interval[0] <= 1 <= self.interval[1]


def realised_noise(
    claim: ReleaseClaim, confidence: float = NOISE_CONFIDENCE
) -> tuple[PartNoise, ...]:
    """The noise of each part over the claimed one; all intervals hold 1 at `confidence`.

    Of the single numbers of an array the one is given whose noise is least likely.
    """
    exact, s, spread = claim.again(claim.truth, 0.0, SystemNoise()), claim.scale, claim.spread
    whole, some, every = dict[str, Numbers](), dict[str, Numbers](), dict[str, Numbers]()
    for name, of_each in spread.items():
        sent = claim.arrays[name].double()
        values = (sent - exact[name].double()).abs() / (s * of_each)
        # Both are rounded to 32 bits: noise below that cannot be told from none.
        rounded = sent.abs() * 2.0**-23 / (s * of_each)
        numbers = torch.stack(
            [values, rounded, *_compressed(claim, name, exact[name].double(), s * of_each)]
        )
        whole[name] = every[name] = numbers.flatten(1)
        some |= _divided(name, numbers, of_each)
    error, results = (1 - confidence) / 3, list[PartNoise]()
    for level in (whole, some):
        results += [_part(name, part, error / len(level)) for name, part in level.items()]
    single = error / sum(numbers.shape[1] for numbers in every.values())
    for name, numbers in every.items():
        at = _least_likely(numbers)
        results.append(_part(f"{name} number {at}", numbers[:, at : at + 1], single))
    return tuple(results)


def noise_of(
    name: str,
    sent: Float[Tensor, "..."],
    exact: Float[Tensor, "..."],
    scale: float,
    confidence: float = NOISE_CONFIDENCE,
) -> PartNoise:
    """The noise of numbers that each should have noise of one standard deviation.

    Args:
        name: of the part, for the record.
        sent: the numbers as they left, float32.
        exact: the same without noise.
        scale: claimed standard deviation, above 0.
        confidence: of the interval, in (0, 1).
    """
    values = (sent.double() - exact.double()).abs() / scale
    rounding = sent.double().abs() * 2.0**-23 / scale
    ones = torch.ones_like(values)
    numbers = torch.stack([values, rounding, 0 * ones, ones, 2 * ones])
    return _part(name, numbers.flatten(1), 1 - confidence)


def _compressed(
    claim: ReleaseClaim, name: str, exact: Float[Tensor, "..."], scale: Float[Tensor, "..."]
) -> tuple[Tensor, Tensor, Tensor]:
    """How compression changes each number of an array with the claimed noise, in units of noise.

    Returned are how far it may move the number, and mean and variance of the squared difference
    between sent and exact.

    The exact numbers and their steps are known, so noise that was rounded has a known distribution.
    """
    sent, ones = claim.arrays[name], torch.ones_like(exact)
    if claim.compression == "none":
        return 0 * ones, ones, 2 * ones
    z = ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    noise = torch.from_numpy(z / (z**2).mean() ** 0.5)
    mean, fourth = torch.zeros_like(exact), torch.zeros_like(exact)
    for value in noise:
        square = (rounded_like(exact + value * scale, sent, claim.compression) - exact).square()
        square = square / scale.square()
        mean, fourth = mean + square / QUANTILES, fourth + square.square() / QUANTILES
    spread = (fourth - mean.square()).clamp(min=0)
    return rounding(sent, claim.compression) / scale, mean, spread


Numbers = Float[Tensor, "5 _"]
"""Sizes of noise in claimed standard deviations; how far 32 bits, and compression, may have moved
each; mean and variance of their squares."""


def _divided(
    name: str, numbers: Float[Tensor, "5 ..."], spread: Float[Tensor, "..."]
) -> dict[str, Numbers]:
    """An array by equal noise, and by row."""
    levels = spread.unique().tolist()
    some = {f"{name} where noise is {v:.3g} s": numbers[:, spread == v] for v in levels}
    rows = {f"{name} row {i}": numbers[:, i] for i in range(len(spread))}
    alike = some if len(levels) > 1 else {}
    return alike | (rows if spread.dim() > 1 else {})


def _least_likely(numbers: Numbers) -> int:
    """Which of the numbers is least likely if each has noise as claimed."""
    values, rounding, compressed, *_ = numbers
    moved = rounding + compressed
    least, most = (values - moved).clamp(min=0).square(), (values + moved).square()
    odds = np.minimum(chdtr(1, most.numpy()), chdtrc(1, least.numpy()))
    return int(odds.argmin())


def _part(name: str, numbers: Numbers, error: float) -> PartNoise:
    """The test of some numbers from both sides, at this error."""
    (values, rounding, compressed, expected, variance), k = numbers, numbers.shape[1]
    if k < MANY:  # any of it may be the rounding of what was compressed
        rounding, expected, variance = rounding + compressed, torch.ones(k), torch.full((k,), 2.0)
    # So many normal numbers spread as these (Welch and Satterthwaite), or more.
    k_of = min(float(k), float(2 * expected.sum().square() / variance.sum()))
    part = k_of / float(expected.sum())
    least = part * float((values - rounding).clamp(min=0).square().sum())
    total, most = (part * float(v.square().sum()) for v in (values, values + rounding))
    ends = _quantiles(k_of, error)
    interval = (math.sqrt(least / ends[1]), math.sqrt(most / ends[0]))
    odds = 2 * min(float(chdtr(k_of, most)), float(chdtrc(k_of, least))) / error
    return PartNoise(name, math.sqrt(total / k_of), interval, odds)


@cache
def _quantiles(k: float, error: float) -> tuple[float, float]:
    return float(scipy.stats.chi2.ppf(error / 2, k)), float(scipy.stats.chi2.isf(error / 2, k))


DELTA = 0.01
"""Of the claim that is tested: events rarer than this cannot be counted in so many draws."""


@dataclass(frozen=True, kw_only=True)
class ReleaseAudit:
    """What the audit of a release found."""

    part: str
    """Of the release: the most surely wrong, or the array with the least noise for its claim."""
    noise_over_claim: float
    """Standard deviation of the noise that was found there, over the claimed one."""
    noise_interval: tuple[float, float]
    """Of the same; all those of a sound release hold 1 at `NOISE_CONFIDENCE`."""
    claimed_epsilon: float  # of this release alone, at `delta`
    epsilon_lower_bound: float  # by draws of the mechanism, at `confidence`
    ceiling: float  # the largest bound that so many draws can show
    delta: float
    confidence: float
    refuted: bool  # whether there is other noise than claimed, less or more, or more epsilon

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        names = ("noise_over_claim", "claimed_epsilon", "epsilon_lower_bound", "ceiling")
        rounded = {name: round(getattr(self, name), 4) for name in names}
        interval = [round(v, 4) for v in self.noise_interval]
        return asdict(self) | rounded | {"noise_interval": interval}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "ReleaseAudit":
        """What `to_json` gave."""
        return cls(**record | {"noise_interval": tuple(record["noise_interval"])})


def audit_release(
    claim: ReleaseClaim,
    *,
    noise: NoiseSource | None = None,
    draws: int = 500,
    confidence: float = 0.95,
) -> ReleaseAudit:
    """Audit a release that noise protects.

    Args:
        claim: the release and what is claimed of it.
        noise: of the draws; None: the system's, as sites use.
        draws: runs of the mechanism in each world.
        confidence: of the bound on epsilon; of the noise it is `NOISE_CONFIDENCE` at least.

    """
    parts = realised_noise(claim, max(confidence, NOISE_CONFIDENCE))
    part = min((p for p in parts if p.wrong), key=lambda p: p.odds, default=None)
    wrong = part is not None
    part = part or min((p for p in parts if p.name in claim.arrays), key=lambda p: p.interval[1])
    claimed = epsilon_of((Gaussian(claim.noise_multiplier),), Budget(1.0, DELTA))
    bound = lower_bound(*_scores(claim, noise or SystemNoise(), draws), DELTA, confidence)
    return ReleaseAudit(
        part=part.name,
        noise_over_claim=part.ratio,
        noise_interval=part.interval,
        claimed_epsilon=claimed,
        epsilon_lower_bound=bound,
        ceiling=ceiling(draws, DELTA, confidence),
        delta=DELTA,
        confidence=confidence,
        refuted=wrong or bound > claimed,
    )


def neighbours(rows: Rows) -> tuple[Rows, Rows, Rows]:
    """D and D', all samples and all but those of one unit, and those of the unit alone; it is the
    one with the longest rows, summed."""
    lengths = clip_rows(rows.z.double()).norm(dim=1)
    units = torch.arange(len(lengths)) if rows.groups is None else number_units(rows.groups)
    sums = torch.zeros_like(lengths).index_add_(0, units, lengths)
    one = units == int(sums.argmax())
    return rows, _taken(rows, ~one), _taken(rows, one)


def _taken(rows: Rows, which: Bool[Tensor, "n"]) -> Rows:
    groups = None if rows.groups is None else rows.groups[which]
    return Rows(rows.z[which], rows.y[which], groups)


def _scores(
    claim: ReleaseClaim, noise: NoiseSource, draws: int
) -> tuple[Float[Tensor, "k"], Float[Tensor, "k"]]:
    parts, s = claim.spread, claim.scale
    everyone, rest, unit = neighbours(claim.truth)
    nobody = Rows(unit.z[:0], unit.y[:0])

    def made(rows: Rows, scale: float) -> Float[Tensor, "numbers"]:
        arrays = claim.again(rows, scale, noise)
        return torch.cat([arrays[name].double().flatten() for name in parts])

    mean_in, mean_out = (made(rows, 0.0) for rows in (everyone, rest))
    spread = torch.cat([of_each.flatten() for of_each in parts.values()])
    by_numbers = gaussian_score(mean_in, mean_out, s * spread)

    def scores(mean: Float[Tensor, "numbers"], rows: Rows) -> Float[Tensor, "draws"]:
        exact = mean - made(rows, 0.0)
        outputs = (exact + made(rows, s) for _ in range(draws))
        return torch.cat([by_numbers(out[None]) for out in outputs])

    return scores(mean_in, unit), scores(mean_out, nobody)
