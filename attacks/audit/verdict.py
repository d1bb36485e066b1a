"""The verdict on a reconstruction audit, and its evidence (table: docs/explanation/audits.md).

The bar of an attack is the best control that knows what the attack knows, but for the release
(`attacks.threats.controls.blind_to`). All are scored on the same samples. Null hypothesis of each
attack: its gain over *some* of these controls is at most `MARGIN`. It is rejected where the lower
bounds of the gains over all of them are above. The bounds of all attacks on all sites of a run hold
together at 1 - `ERROR`. (`MARGIN` is a share of the error of the public mean, or of the mean of all
others of the site where that is less. Each attack on each site is tested at its share of `ERROR`.
Samples of one group are one draw.) Silence is at 95 %.

A sample is re-identified where its reconstruction is nearer to it than to others of its class. An
attack that does so surely more often than its blind controls (at 1 - 0.05 / number of attacks) is
not blind. A release leaks, whatever the attacks see, if its noise or epsilon is not the charged one
(`attacks.epsilon.release`), or the ledger contradicts it (`attacks.audit.evidence`).
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attacks.epsilon.release import ReleaseAudit
from attacks.reconstruction.metrics import CANDIDATES, ReconstructionScore
from attacks.statistics import MIN_SAMPLES, clopper_pearson, gain_bounds, gain_interval
from attacks.threats import controls

Verdict = Literal["leaks", "no better than blind", "inconclusive", "nothing left", "masked"]

MARGIN = 0.05
"""By how much R^2 must beat the best blind control before it counts as a leak."""

ERROR = 0.01
"""How often a run in which nothing leaks may be called a leak, by all its reconstructions."""


def bar_of(
    attack: ReconstructionScore, beside: Sequence[ReconstructionScore]
) -> ReconstructionScore:
    """The best control that knows what an attack knows, but for the release."""
    return max(_blind(attack, beside), key=lambda s: s.r2)


def best_of(
    attacks: Sequence[ReconstructionScore], beside: Sequence[ReconstructionScore]
) -> ReconstructionScore:
    """The attack that gains most over its bar; one that is no number counts least."""

    def gain(attack: ReconstructionScore) -> float:
        result = attack.r2 - bar_of(attack, beside).r2
        return -math.inf if math.isnan(result) else result

    return max(attacks, key=gain)


def judge(
    attacks: Sequence[ReconstructionScore],
    beside: Sequence[ReconstructionScore],
    *,
    rng: np.random.Generator,
    sites: int = 1,
    groups: Int[Tensor, "n"] | None = None,
) -> tuple[Verdict, str]:
    """The verdict on one or more attacks beside the controls, and its evidence in a sentence.

    Args:
        attacks: scores on the same samples as those of the controls.
        beside: the controls; those of knowledge that no attack has are left out.
        rng: of the bootstrap.
        sites: that the run has: their verdicts share `ERROR`.
        groups: of each scored sample, where several may be of one; None: each is its own.

    """
    best = best_of(attacks, beside)
    bar, (mean, unit) = bar_of(best, beside), _reference(beside)
    mine, blind, total = (_by_group(s.errors, groups) for s in (best, bar, mean))
    low, high = gain_interval(mine, blind, total, rng=rng)
    enough = len(total) >= MIN_SAMPLES
    again = _reidentified(attacks, beside) if enough else ""
    surely = _surely(attacks, beside, total, groups, rng, ERROR / sites) if low > MARGIN else -1.0
    verdict: Verdict = "inconclusive"
    if surely > MARGIN:
        verdict = "leaks"
    elif enough and high <= MARGIN and not again:
        verdict = "no better than blind"
    n, units = len(best.errors), len(total)
    samples = f"{n} {'sample' if n == 1 else 'samples'}"
    samples += "" if units == n else f" of {units} groups"
    evidence = _compared(best, bar, (low * unit, high * unit)) + (
        f"on {samples}, with a tolerance of {MARGIN * unit:.2g}"
    )
    if verdict == "leaks":
        evidence += f"; surely {surely * unit:.3f} at least, at {ERROR:.0%} false alarms a run"
    if not enough:
        needed = f"too few samples for an interval and a verdict, which need {MIN_SAMPLES}"
        evidence = f"{needed}; {evidence}"
    if again:
        evidence += f"; {again}"
    for ceiling in (s for s in beside if s.name == "ceiling"):
        evidence += f"; noiseless rows would give {ceiling.r2:.3f}"
        if best.r2 > ceiling.r2:
            evidence += ", less than the attack, which by itself shows no leak"
    return verdict, evidence


def _compared(
    best: ReconstructionScore, bar: ReconstructionScore, interval: tuple[float, float]
) -> str:
    low, high = interval
    shown = "" if math.isnan(low) else f"[{low:.3f}, {high:.3f}] "
    return (
        f"R^2 of the best attack ({best.name}) {best.r2:.3f}, of the best blind control "
        f"({bar.name.replace('image', 'sample')}) {bar.r2:.3f}: a difference of "
        f"{best.r2 - bar.r2:.3f} {shown}"
    )


def _reference(beside: Sequence[ReconstructionScore]) -> tuple[ReconstructionScore, float]:
    """The mean that the margin is a share of, and its error over that of the public mean.

    The public mean of a site that differs much is so wrong that a share of its error may be all
    that there is to know of a sample: there the mean of all others is the one.
    """
    means = {s.name: s for s in beside if s.name in ("mean image", "others' mean")}
    public = float(means["mean image"].errors.sum())
    near = min(means.values(), key=lambda s: float(s.errors.sum()) or math.inf)
    error = float(near.errors.sum())
    return (near, error / public) if 0 < error < public else (means["mean image"], 1.0)


def _blind(
    attack: ReconstructionScore, beside: Sequence[ReconstructionScore]
) -> list[ReconstructionScore]:
    return [s for s in beside if s.name in controls.blind_to(attack.threat)]


def _by_group(values: Float[Tensor, "n"], groups: Int[Tensor, "n"] | None) -> Float[Tensor, "g"]:
    if groups is None:
        return values.double()
    units, at = groups.unique(return_inverse=True)
    return torch.zeros(len(units), dtype=torch.float64).index_add_(0, at, values.double())


def _surely(
    attacks: Sequence[ReconstructionScore],
    beside: Sequence[ReconstructionScore],
    total: Float[Tensor, "g"],
    groups: Int[Tensor, "n"] | None,
    rng: np.random.Generator,
    error: float,
) -> float:
    """The largest lower bound of an attack's gain over all its blind controls."""
    # No bound is above the gain itself.
    able = [s for s in attacks if s.r2 > bar_of(s, beside).r2]
    pairs = [(a, b) for a, attack in enumerate(able) for b in _blind(attack, beside)]
    if not pairs:
        return -math.inf
    gains = torch.stack([_by_group(b.errors - able[a].errors, groups) for a, b in pairs])
    bounds = gain_bounds(gains, total, rng=rng, error=error / len(attacks))
    least = np.full(len(able), math.inf)
    np.minimum.at(least, [a for a, _ in pairs], bounds)
    return float(least.max())


def _reidentified(
    attacks: Sequence[ReconstructionScore], beside: Sequence[ReconstructionScore]
) -> str:
    """That an attack surely finds single samples more often than who is blind; empty if none."""
    best = max(attacks, key=lambda s: s.reidentified)
    n, level = len(best.errors), 1 - 0.05 / len(attacks)
    low, high = clopper_pearson(round(best.reidentified * n), n, level)
    blind = max(s.reidentified for s in _blind(best, beside))
    if low <= max(blind, 1 / CANDIDATES):
        return ""
    return (
        f"{best.name} finds {best.reidentified:.1%} [{low:.1%}, {high:.1%}] of the samples again "
        f"among {CANDIDATES}, blind controls {blind:.1%}"
    )


def with_claim(
    verdict: Verdict,
    evidence: str,
    audit: ReleaseAudit | None,
    spent: float | None,
    fault: str | None = None,
) -> tuple[Verdict, str]:
    """The verdict on a whole release: that of `judge`, and what the release claims.

    Args:
        verdict: of the reconstructions.
        evidence: for it, in words.
        audit: of the release's noise and epsilon; None where nothing was claimed.
        spent: the ledger's epsilon for all that the site did; None where it is not known.
        fault: what contradicts the ledger, in words.
    """
    if spent is not None:
        total = "infinity" if spent == math.inf else f"{spent:.3g}"
        evidence += f"; claimed epsilon {total} in all"
    if fault is not None:
        verdict, evidence = "leaks", f"{evidence}; {fault}"
    if audit is None:
        return verdict, evidence
    (low, high), a = audit.noise_interval, audit
    evidence += (
        f"; this release alone claims {a.claimed_epsilon:.2f} at delta {a.delta:g}, and has at "
        f"least {a.epsilon_lower_bound:.2f} ({a.confidence:.1%} sure; so many draws can show "
        f"{a.ceiling:.2f}); the noise of its {a.part} is {a.noise_over_claim:.3f} "
        f"[{low:.3f}, {high:.3f}] of its claim"
    )
    return ("leaks" if audit.refuted else verdict), evidence
