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
| k | numbers of a part: A and B; S and counts |

What it cannot show: see `attacks.epsilon.mechanism`. A release that is claimed to be unprotected
has no claim to test.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from scipy.stats import chi2
from torch import Tensor

from attacks.epsilon.mechanism import MechanismAudit, audit_mechanism, gaussian_score
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.calibration import epsilon_of
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.privacy.release.mechanisms import Kind, class_sums, clip_rows, moments, noise_scale
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
        noise: standard deviation of the noise that was found there, over the claimed one.
        noise_interval: of it, at `NOISE_CONFIDENCE`; a sound release holds 1.
        claim: epsilon of this release alone at `DELTA`.
        mechanism: what draws of the mechanism show.

    """

    part: str
    noise: float
    noise_interval: tuple[float, float]
    claim: float
    mechanism: MechanismAudit

    @property
    def refuted(self) -> bool:
        """Whether there is less noise than claimed, or more epsilon."""
        return self.noise_interval[1] < 1 or self.mechanism.lower_bound > self.claim

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        return {
            "part": self.part,
            "noise_over_claim": round(self.noise, 4),
            "noise_interval": [round(v, 4) for v in self.noise_interval],
            "claimed_epsilon": round(self.claim, 4),
            "epsilon_lower_bound": round(self.mechanism.lower_bound, 4),
            "ceiling": round(self.mechanism.ceiling, 4),
            "delta": self.mechanism.delta,
            "confidence": self.mechanism.confidence,
            "refuted": self.refuted,
        }


def audit_release(
    kind: Kind,
    arrays: dict[str, Tensor],
    z: Float[Tensor, "n d"],
    y: Int[Tensor, "n"],
    *,
    classes: int,
    noise_multiplier: float,
    noise: NoiseSource | None = None,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
) -> ReleaseAudit:
    """Audit a release of `moments` or `class_sums`.

    Args:
        kind: of the release.
        arrays: what left.
        z: the true representations that it was made of.
        y: their labels.
        classes: number of classes.
        noise_multiplier: that was claimed, above 0.
        noise: of the draws; None: the system's, as clients use.
        draws: runs of the mechanism in each world.
        confidence: of the bound on epsilon; of the noise it is `NOISE_CONFIDENCE` at least.

    Raises:
        BadInput: for another kind, or no sample.

    """
    if kind not in ("moments", "class_sums") or not len(z):
        raise BadInput(f"expected a noised release of at least one sample, got {kind} of {len(z)}")
    s = noise_scale(kind, noise_multiplier)
    claim = epsilon_of((Gaussian(noise_multiplier),), Budget(1.0, DELTA))
    parts = realised_noise(kind, arrays, z, y, classes, s, max(confidence, NOISE_CONFIDENCE))
    part = min(parts, key=lambda name: parts[name][1][1])
    source = noise or SystemNoise()
    worlds = neighbours(z, y)
    mechanism = _audit(kind, worlds, classes, s, source, draws, confidence)
    ratio, interval = parts[part]
    return ReleaseAudit(
        part=part, noise=ratio, noise_interval=interval, claim=claim, mechanism=mechanism
    )


Noise = tuple[float, tuple[float, float]]
"""What was found over what was claimed, and its interval."""


def realised_noise(
    kind: Kind,
    arrays: dict[str, Tensor],
    z: Float[Tensor, "n d"],
    y: Int[Tensor, "n"],
    classes: int,
    s: float,
    confidence: float = NOISE_CONFIDENCE,
) -> dict[str, Noise]:
    """The noise of each part of a release over the claimed one; all hold 1 at `confidence`."""
    exact = _run(kind, z, y, classes, 0.0, SystemNoise())
    spread = _spread(kind, z.shape[1], classes)
    off = {name: ((arrays[name] - exact[name]).double() / (s * spread[name])) for name in spread}
    error = (1 - confidence) / len(off)
    return {name: _deviation(values, error) for name, values in off.items()}


def _deviation(values: Float[Tensor, "*k"], error: float) -> Noise:
    """The standard deviation of centred normal numbers, and its interval (chi-square)."""
    total, k = float(values.square().sum()), values.numel()
    low, high = (math.sqrt(total / chi2.ppf(p, k)) for p in (1 - error / 2, error / 2))
    return math.sqrt(total / k), (low, high)


NUMBERS: dict[Kind, tuple[str, ...]] = {
    "moments": ("A", "B"),
    "class_sums": ("S", "counts"),
}
"""The parts of a release that have Gaussian noise."""

World = tuple[Tensor, Tensor]


def neighbours(z: Float[Tensor, "n d"], y: Int[Tensor, "n"]) -> tuple[World, World]:
    """D and D': all samples, and all but the longest."""
    rest = torch.arange(len(z)) != int(clip_rows(z.double()).norm(dim=1).argmax())
    return (z, y), (z[rest], y[rest])


def _run(
    kind: Kind, z: Tensor, y: Tensor, classes: int, s: float, noise: NoiseSource
) -> dict[str, Tensor]:
    """The mechanism itself."""
    if kind == "moments":
        return moments(z, y, classes, s, noise)
    return class_sums(z, y, classes, s, noise)


def _flat(kind: Kind, arrays: dict[str, Tensor]) -> Float[Tensor, "k"]:
    """All numbers of a release, in float64."""
    return torch.cat([arrays[name].double().flatten() for name in NUMBERS[kind]])


def _spread(kind: Kind, d: int, classes: int) -> dict[str, Tensor]:
    """The noise of each number in units of s, by part: 1, but for A off the diagonal."""
    shapes = {"S": (classes, d), "counts": (classes,), "B": (classes, d)}
    row, column = torch.triu_indices(d, d)
    off = torch.where(row == column, 1.0, math.sqrt(0.5)).double()
    return {
        name: off if name == "A" else torch.ones(shapes[name]).double() for name in NUMBERS[kind]
    }


def _audit(
    kind: Kind,
    worlds: tuple[World, World],
    classes: int,
    s: float,
    noise: NoiseSource,
    draws: int,
    confidence: float,
) -> MechanismAudit:
    """The mechanism audit of the two worlds, by the likelihood ratio of their outputs."""
    means = [_flat(kind, _run(kind, z, y, classes, 0.0, noise)) for z, y in worlds]
    spread = s * _flat(kind, _spread(kind, worlds[0][0].shape[1], classes))
    by_numbers = gaussian_score(means[0], means[1], spread)

    def drawn(world: World) -> Float[Tensor, "k d"]:
        outputs = (_flat(kind, _run(kind, *world, classes, s, noise)) for _ in range(draws))
        return torch.stack([by_numbers(out[None]) for out in outputs])

    first, second = worlds
    return audit_mechanism(
        lambda _: drawn(first),
        lambda _: drawn(second),
        lambda outputs: outputs[:, 0],
        draws,
        DELTA,
        confidence,
    )
