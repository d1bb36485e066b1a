"""Audit of one release: whether its noise is what was claimed, and what epsilon it has at least.

Two questions to one site's last release, both asked by someone who holds the truth:

1. *Is the noise there?* `attacks.epsilon.noise`.
2. *What does the mechanism promise at most?* `attacks.epsilon.mechanism` on this site's own
   samples: D is all of them, D' lacks one unit, a sample or a whole group. What D and D' give
   without noise is computed once; each draw of the noise is the mechanism run on the unit alone
   and on nothing, less the same without noise. The claim is epsilon of this release alone.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attacks.epsilon.mechanism import ceiling, gaussian_score, lower_bound
from attacks.epsilon.noise import NOISE_CONFIDENCE, ReleaseClaim, realised_noise
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.estimate import Rows
from panas.privacy.release.rows import clip_rows
from panas.privacy.unit import number_units

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
