"""Audit of one release: whether its noise is what was claimed, and what epsilon it has at least.

Two questions to one client's last release, both asked by someone who holds the truth:

1. *Is the noise there?* What was released less what it would be without noise, in units of the
   claimed standard deviation s, is k independent standard normal numbers if the claim is true, and
   the sum of their squares is chi-square with k degrees of freedom. Each part of a release is
   looked at by itself, so that noise in one does not hide that another has none. It tells half
   the noise (or none) in the very bytes that left.
2. *What does the mechanism promise at most?* `attacks.epsilon.mechanism` on this client's own
   samples: D is all of them, D' lacks one, and the mechanism that made the release is run many
   times on both. The bound is beside the claim: epsilon of this release alone.

| symbol | name |
|---|---|
| s | claimed standard deviation of the noise on each number |
| k | numbers of a part: one array of the release |

What it cannot show: see `attacks.epsilon.mechanism`. A release that is claimed to be unprotected
has no claim to test.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from scipy.stats import chi2
from torch import Tensor

from attacks.epsilon.mechanism import MechanismAudit, audit_mechanism, gaussian_score
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.kind import ReleaseKind, is_noised, kind_named, noise_scale
from panas.privacy.release.rows import clip_rows
from panas.runtime.errors import BadInput

DRAWS = 500
"""Runs of the mechanism in each world."""

DELTA = 0.01
"""Of the claim that is tested: events rarer than this cannot be counted in so many draws."""

CONFIDENCE = 0.95
NOISE_CONFIDENCE = 0.999
"""Of the intervals of the noise, all parts together: a false alarm is costly."""


@dataclass(frozen=True, kw_only=True)
class ReleaseAudit:
    """What the audit of a release found.

    Attributes:
        part: of the release, with the least noise for its claim.
        noise_over_claim: standard deviation of the noise that was found there, over the claimed.
        noise_interval: of it, at `NOISE_CONFIDENCE`; a sound release holds 1.
        claimed_epsilon: of this release alone at `delta`.
        epsilon_lower_bound: by draws of the mechanism, at `confidence`.
        ceiling: the largest bound that so many draws can show.
        delta: of both epsilons.
        confidence: of the bound.
        refuted: whether there is less noise than claimed, or more epsilon.

    """

    part: str
    noise_over_claim: float
    noise_interval: tuple[float, float]
    claimed_epsilon: float
    epsilon_lower_bound: float
    ceiling: float
    delta: float
    confidence: float
    refuted: bool

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        names = ("noise_over_claim", "claimed_epsilon", "epsilon_lower_bound", "ceiling")
        rounded = {name: round(getattr(self, name), 4) for name in names}
        return (
            asdict(self) | rounded | {"noise_interval": [round(v, 4) for v in self.noise_interval]}
        )

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "ReleaseAudit":
        """What `to_json` gave."""
        return cls(**record | {"noise_interval": tuple(record["noise_interval"])})


@dataclass(frozen=True, kw_only=True)
class ReleaseClaim:
    """A release, the noise that it claims, and the truth behind it.

    Attributes:
        kind: of the release; one that noise protects.
        arrays: what left.
        truth: the rows that it was made of, at least one.
        classes: number of classes.
        noise_multiplier: that was claimed, above 0.

    """

    kind: str
    arrays: Mapping[str, Tensor]
    truth: Rows
    classes: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not is_noised(self.mechanism) or not len(self.truth.z):
            raise BadInput(
                f"expected a noised release of at least one sample, got {self.kind} of "
                f"{len(self.truth.z)}"
            )

    @property
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
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
) -> ReleaseAudit:
    """Audit a release that noise protects.

    Args:
        claim: the release.
        noise: of the draws; None: the system's, as clients use.
        draws: runs of the mechanism in each world.
        confidence: of the bound on epsilon; of the noise it is `NOISE_CONFIDENCE` at least.

    """
    parts = realised_noise(claim, max(confidence, NOISE_CONFIDENCE))
    part = min(parts, key=lambda name: parts[name][1][1])
    ratio, interval = parts[part]
    claimed = epsilon_of((Gaussian(claim.noise_multiplier),), Budget(1.0, DELTA))
    found = _audit_mechanism(claim, noise or SystemNoise(), draws, confidence)
    return ReleaseAudit(
        part=part,
        noise_over_claim=ratio,
        noise_interval=interval,
        claimed_epsilon=claimed,
        epsilon_lower_bound=found.lower_bound,
        ceiling=found.ceiling,
        delta=found.delta,
        confidence=found.confidence,
        refuted=interval[1] < 1 or found.lower_bound > claimed,
    )


Noise = tuple[float, tuple[float, float]]
"""What was found over what was claimed, and its interval."""


def realised_noise(claim: ReleaseClaim, confidence: float = NOISE_CONFIDENCE) -> dict[str, Noise]:
    """The noise of each part of a release over the claimed one; all hold 1 at `confidence`."""
    exact, s, spread = claim.again(claim.truth, 0.0, SystemNoise()), claim.scale, claim.spread
    error = (1 - confidence) / len(spread)
    return {
        name: _deviation((claim.arrays[name] - exact[name]).double() / (s * of_each), error)
        for name, of_each in spread.items()
    }


def _deviation(values: Float[Tensor, "*k"], error: float) -> Noise:
    """The standard deviation of centred normal numbers, and its interval (chi-square)."""
    total, k = float(values.square().sum()), values.numel()
    low, high = (math.sqrt(total / chi2.ppf(p, k)) for p in (1 - error / 2, error / 2))
    return math.sqrt(total / k), (low, high)


def neighbours(rows: Rows) -> tuple[Rows, Rows]:
    """D and D': all samples, and all but the longest."""
    rest = torch.arange(len(rows.z)) != int(clip_rows(rows.z.double()).norm(dim=1).argmax())
    return rows, Rows(rows.z[rest], rows.y[rest])


def _audit_mechanism(
    claim: ReleaseClaim, noise: NoiseSource, draws: int, confidence: float
) -> MechanismAudit:
    """The mechanism audit of the two worlds, by the likelihood ratio of their outputs."""
    parts, s, worlds = claim.spread, claim.scale, neighbours(claim.truth)

    def flat(arrays: Mapping[str, Tensor]) -> Float[Tensor, "k"]:
        return torch.cat([arrays[name].double().flatten() for name in parts])

    means = [flat(claim.again(rows, 0.0, noise)) for rows in worlds]
    by_numbers = gaussian_score(means[0], means[1], s * flat(parts))

    def scores(rows: Rows) -> Float[Tensor, "k 1"]:
        outputs = (flat(claim.again(rows, s, noise)) for _ in range(draws))
        return torch.stack([by_numbers(out[None]) for out in outputs])

    return audit_mechanism(
        lambda _: scores(worlds[0]),
        lambda _: scores(worlds[1]),
        lambda outputs: outputs[:, 0],
        draws,
        DELTA,
        confidence,
    )
