"""Audit of a trained network: who was it trained on?

Asked of the network that a client keeps, were it published, and of any network trained elsewhere.
Members are the samples that it was trained on, others are like them and were not used; the
auditor holds both. Two attacks of `attacks.membership`: the loss threshold, and with shadow
networks LiRA.

| verdict | when, for the attack with the larger area under its curve |
|---|---|
| leaks | the area is surely above 1/2 + `MARGIN`, or true positives at 1 % false ones above 5 %, |
| | or epsilon, were each score independent, above the claim |
| no better than blind | none of it, and the area is surely below 1/2 + `MARGIN` |
| inconclusive | else, or fewer than `MIN_SAMPLES` members or others |

What it cannot show: that nobody can tell members. Stronger attacks, or other shadows, may.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attacks.membership import Query, Train, lira, logits, loss_scores
from attacks.roc import Roc, roc
from attacks.verdict import Verdict
from panas.data.dataset import Samples, concat
from panas.errors import BadInput

MARGIN = 0.1
"""Of the area under the curve that is let pass: 0.6 is a coin that is right six times of ten."""

LOUD = 0.05
"""True positives at 1 % false ones that count as a leak: five times of what chance finds."""

MIN_SAMPLES = 20


@dataclass(frozen=True)
class NetworkAudit:
    """What membership attacks on one network came to."""

    verdict: Verdict
    evidence: str
    members: int
    others: int
    accuracy: tuple[float, float]
    """On members, on others."""
    curves: dict[str, Roc]
    """By attack."""

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        return {
            "verdict": self.verdict,
            "evidence": self.evidence,
            "members": self.members,
            "others": self.others,
            "accuracy": {"members": self.accuracy[0], "others": self.accuracy[1]},
            "attacks": [{"name": k, **v.to_json()} for k, v in self.curves.items()],
        }


def audit_network(
    query: Query,
    members: Samples,
    others: Samples,
    *,
    rng: np.random.Generator,
    claim: float | None = None,
    delta: float = 1e-5,
    public: Samples | None = None,
    train: Train | None = None,
    shadows: int = 0,
    workers: int = 1,
) -> NetworkAudit:
    """Attack a network, and score the attacks.

    Args:
        query: images (b, c, h, w) in [-1, 1] to logits (b, classes).
        members: it was trained on them.
        others: it was not; as many as members at best, and from where they are.
        rng: of shadows and bootstrap.
        claim: epsilon that it was trained with; None: no claim.
        delta: of the claim.
        public: samples for the shadows, neither members nor others.
        train: trains a shadow.
        shadows: number of them, at least 2; 0 leaves LiRA out.
        workers: processes.

    Raises:
        BadInput: for answers that are no logits, or shadows without samples or training.

    """
    if shadows and (public is None or train is None):
        raise BadInput("expected public samples and a training for shadows, got none; give both")
    pool = concat([members, others])
    truth = torch.arange(len(pool)) < len(members)
    scores = {"loss threshold": loss_scores(query, pool)}
    if shadows and public is not None and train is not None:
        scores["LiRA"] = lira(
            query, pool, public, train, rng=rng, shadows=shadows, share=0.8, workers=workers
        )
    right = (logits(query, pool).argmax(1) == pool.y).double()
    accuracy = float(right[truth].mean()), float(right[~truth].mean())
    curves = {k: roc(v, truth, rng=rng, delta=delta) for k, v in scores.items()}
    verdict, evidence = _judge(curves, len(members), len(others), claim)
    return NetworkAudit(verdict, evidence, len(members), len(others), accuracy, curves)


def _judge(
    curves: dict[str, Roc], members: int, others: int, claim: float | None
) -> tuple[Verdict, str]:
    name, best = max(curves.items(), key=lambda pair: pair[1].auc)
    (low, high), point = best.auc_interval, best.points[0]
    bound = max(c.epsilon_if_independent for c in curves.values())
    private = claim is not None and math.isfinite(claim)
    loud = low > 0.5 + MARGIN or point.interval[0] > LOUD
    verdict: Verdict = "inconclusive"
    if min(members, others) >= MIN_SAMPLES:
        if loud or (private and bound > (claim or 0.0)):
            verdict = "leaks"
        elif high < 0.5 + MARGIN:
            verdict = "no better than blind"
    claimed = f"claimed epsilon {claim:.3g}" if private else "no epsilon claimed"
    evidence = (
        f"{name} tells {members} members from {others} others with an area under its curve of "
        f"{best.auc:.3f} [{low:.3f}, {high:.3f}] (a coin: 0.5, of which {MARGIN} more is let pass) "
        f"and finds {point.tpr:.1%} of the members at 1 % false alarms; {claimed}, at least "
        f"{bound:.2f} if scores were independent"
    )
    return verdict, evidence
