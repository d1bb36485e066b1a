"""What scores show, in a word and a sentence.

| verdict | when |
|---|---|
| leaks | the best attack's R^2 is above the best blind control's by more than `MARGIN` |
| no better than blind | it is not, and no attack finds single samples again |
| inconclusive | the interval holds `MARGIN`, some are found again, there are fewer than |
| | `MIN_SAMPLES` samples, or too few public samples to learn an attack from |
| nothing left | the client sent no release |
| masked | it sent a masked vector, which nobody sees alone |

The paired bootstrap interval of the difference must lie above the margin, or not above it. The
best of k attacks is chosen by the scores that it is judged by, so that a leak is claimed at
1 - 0.05 / k (Bonferroni), and silence at 95 %. A sample is found again where its reconstruction is
nearer to it than to others of its class, which what a class looks like cannot bring about: an
attack that does so surely more often than the blind controls (the same level) is not blind, however
little of a sample it gets right. Whatever the attacks see, a release leaks that has
less noise than the ledger was charged for, or a larger epsilon (`attacks.epsilon.release`), that no
charge covers, or that says of itself what the ledger does not (`attacks.audit.evidence`).

Silence of these attacks proves nothing: the proof is the ledger's epsilon, which stands beside.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from attacks.epsilon.release import ReleaseAudit
from attacks.reconstruction.metrics import CANDIDATES, ReconstructionScore
from attacks.statistics import MIN_SAMPLES, clopper_pearson, gain_interval
from attacks.threats import controls

Verdict = Literal["leaks", "no better than blind", "inconclusive", "nothing left", "masked"]

MARGIN = 0.05
"""By how much R^2 must beat the best blind control before it counts as a leak."""


def best_of(attacks: Sequence[ReconstructionScore]) -> ReconstructionScore:
    """The one with the largest R^2; one that is no number counts least."""
    return max(attacks, key=lambda s: -math.inf if math.isnan(s.r2) else s.r2)


def judge(
    attacks: Sequence[ReconstructionScore],
    beside: Sequence[ReconstructionScore],
    *,
    rng: np.random.Generator,
) -> tuple[Verdict, str]:
    """The verdict on one or more attacks beside the controls, and its evidence in a sentence."""
    mean = next(s for s in beside if s.name == "mean image")
    best = best_of(attacks)
    blind = max((s for s in beside if s.name in controls.BLIND), key=lambda s: s.r2)
    low, high = gain_interval(best.errors, blind.errors, mean.errors, rng=rng)
    level = 1 - 0.05 / len(attacks)
    surely, _ = gain_interval(best.errors, blind.errors, mean.errors, rng=rng, level=level)
    samples = len(best.errors)
    again = _found_again(attacks, beside) if samples >= MIN_SAMPLES else ""
    verdict: Verdict = "inconclusive"
    if samples >= MIN_SAMPLES and surely > MARGIN:
        verdict = "leaks"
    elif samples >= MIN_SAMPLES and high <= MARGIN and not again:
        verdict = "no better than blind"
    interval = "" if math.isnan(low) else f"[{low:.3f}, {high:.3f}] "
    noun = "sample" if samples == 1 else "samples"
    evidence = (
        f"R^2 of the best attack ({best.name}) {best.r2:.3f}, of the best blind control "
        f"({controls.in_words(blind.name)}) {blind.r2:.3f}: a difference of "
        f"{best.r2 - blind.r2:.3f} {interval}on {samples} {noun}, of which {MARGIN} is let pass"
    )
    if samples < MIN_SAMPLES:
        needed = f"too few samples for an interval and a verdict, which need {MIN_SAMPLES}"
        evidence = f"{needed}; {evidence}"
    if again:
        evidence += f"; {again}"
    for ceiling in (s for s in beside if s.name == "ceiling"):
        evidence += f"; noiseless rows would give {ceiling.r2:.3f}"
    return verdict, evidence


def _found_again(
    attacks: Sequence[ReconstructionScore], beside: Sequence[ReconstructionScore]
) -> str:
    """That an attack surely finds single samples more often than who is blind; empty if none."""
    best = max(attacks, key=lambda s: s.reidentified)
    n, level = len(best.errors), 1 - 0.05 / len(attacks)
    low, high = clopper_pearson(round(best.reidentified * n), n, level)
    blind = max(s.reidentified for s in beside if s.name in controls.BLIND)
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

    `spent` is the ledger's epsilon for all that the client did; `fault` contradicts the ledger.
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
