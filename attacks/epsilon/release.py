"""Audit of one release: whether its noise is what was claimed, and what epsilon it has at least.

Two questions to one client's last release, both asked by someone who holds the truth:

1. *Is the noise there?* What was released less what it would be without noise, over the claimed
   standard deviation s, is k independent standard normal numbers if the claim is true: the sum of
   their squares is chi-square with k degrees of freedom. Each part (an array of k numbers) is
   tested by itself, so that noise in one does not hide that another has none. It detects half the
   noise (or none) in the bytes that left.
2. *What does the mechanism promise at most?* `attacks.epsilon.mechanism` on this client's own
   samples: D is all of them, D' lacks one unit, a sample
   or a whole group. The claim is epsilon of this release alone.
   What it cannot show: see `attacks.epsilon.mechanism`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from scipy.stats import chi2
from torch import Tensor

from attacks.epsilon.mechanism import ceiling, gaussian_score, lower_bound
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import ReleaseKind, is_noised, kind_named, noise_scale
from panas.privacy.release.rows import clip_rows
from panas.privacy.unit import number_units
from panas.runtime.errors import BadInput

DELTA = 0.01
"""Of the claim that is tested: events rarer than this cannot be counted in so many draws."""

NOISE_CONFIDENCE = 0.999
"""Of the intervals of the noise, all parts together: a false alarm is costly."""


@dataclass(frozen=True, kw_only=True)
class ReleaseAudit:
    """What the audit of a release found."""

    part: str
    """Of the release, with the least noise for its claim."""
    noise_over_claim: float
    """Standard deviation of the noise that was found there, over the claimed one."""
    noise_interval: tuple[float, float]
    """Of the same, at `NOISE_CONFIDENCE`; that of a sound release holds 1."""
    claimed_epsilon: float
    """Of this release alone, at `delta`."""
    epsilon_lower_bound: float
    """By draws of the mechanism, at `confidence`."""
    ceiling: float
    """The largest bound that so many draws can show."""
    delta: float
    confidence: float
    refuted: bool
    """Whether there is less noise than claimed, or more epsilon."""

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


@dataclass(frozen=True, kw_only=True)
class ReleaseClaim:
    """A release that noise protects, the noise that it claims, and the truth behind it."""

    kind: str
    arrays: Mapping[str, Tensor]
    """What left."""
    truth: Rows
    """What it was made of, at least one row."""
    classes: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not is_noised(self.mechanism) or not len(self.truth.z):
            raise BadInput(
                "expected a noised release of at least one sample, got "
                f"{self.kind} of {len(self.truth.z)}"
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
        """What the mechanism makes of other rows, or of other noise."""
        return self.mechanism.run(rows, self.classes, scale, noise)


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
        noise: of the draws; None: the system's, as clients use.
        draws: runs of the mechanism in each world.
        confidence: of the bound on epsilon; of the noise it is `NOISE_CONFIDENCE` at least.

    """
    parts = realised_noise(claim, max(confidence, NOISE_CONFIDENCE))
    part = min(parts, key=lambda name: parts[name][1][1])
    ratio, interval = parts[part]
    claimed = epsilon_of((Gaussian(claim.noise_multiplier),), Budget(1.0, DELTA))
    bound = lower_bound(*_scores(claim, noise or SystemNoise(), draws), DELTA, confidence)
    return ReleaseAudit(
        part=part,
        noise_over_claim=ratio,
        noise_interval=interval,
        claimed_epsilon=claimed,
        epsilon_lower_bound=bound,
        ceiling=ceiling(draws, DELTA, confidence),
        delta=DELTA,
        confidence=confidence,
        refuted=interval[1] < 1 or bound > claimed,
    )


def realised_noise(
    claim: ReleaseClaim, confidence: float = NOISE_CONFIDENCE
) -> dict[str, tuple[float, tuple[float, float]]]:
    """The noise of each part over the claimed one, and its interval; all hold 1 at `confidence`."""
    exact, s, spread = claim.again(claim.truth, 0.0, SystemNoise()), claim.scale, claim.spread
    error, found = (1 - confidence) / len(spread), {}
    for name, of_each in spread.items():
        values = (claim.arrays[name] - exact[name]).double() / (s * of_each)
        total, k = float(values.square().sum()), values.numel()
        low, high = (math.sqrt(total / chi2.ppf(p, k)) for p in (1 - error / 2, error / 2))
        found[name] = (math.sqrt(total / k), (low, high))
    return found


def neighbours(rows: Rows) -> tuple[Rows, Rows]:
    """D and D': all samples, and all but those of the unit with the longest rows, summed."""
    lengths = clip_rows(rows.z.double()).norm(dim=1)
    units = torch.arange(len(lengths)) if rows.groups is None else number_units(rows.groups)
    sums = torch.zeros_like(lengths).index_add_(0, units, lengths)
    rest = units != int(sums.argmax())
    groups = None if rows.groups is None else rows.groups[rest]
    return rows, Rows(rows.z[rest], rows.y[rest], groups)


def _scores(
    claim: ReleaseClaim, noise: NoiseSource, draws: int
) -> tuple[Float[Tensor, "k"], Float[Tensor, "k"]]:
    """Likelihood ratios of `draws` outputs of each of the two worlds."""
    parts, s, worlds = claim.spread, claim.scale, neighbours(claim.truth)

    def flat(arrays: Mapping[str, Tensor]) -> Float[Tensor, "k"]:
        return torch.cat([arrays[name].double().flatten() for name in parts])

    mean_in, mean_out = (flat(claim.again(rows, 0.0, noise)) for rows in worlds)
    by_numbers = gaussian_score(mean_in, mean_out, s * flat(parts))

    def scores(rows: Rows) -> Float[Tensor, "k"]:
        outputs = (flat(claim.again(rows, s, noise)) for _ in range(draws))
        return torch.cat([by_numbers(out[None]) for out in outputs])

    return scores(worlds[0]), scores(worlds[1])
