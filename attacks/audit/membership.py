"""Audit of a trained network: who was it trained on?

Members are the samples that it was trained on, others are like them and were not used; the
auditor holds both. The attacks are the loss threshold and, with shadow networks, LiRA and RMIA.
Each is judged by two criteria, and any that is met is a leak. The control is *blind*: a regression
of membership on values and labels that never queries the network. docs/explanation/audits.md has
the table of verdicts.

A leak is tested at `ERROR` / (2 x attacks x networks of the run): uninformative scores give "leaks"
in at most one of a hundred runs. All parts of a criterion must hold, so they need no share of that.
Intervals that are shown are at 1 - `SHOWN` / (2 x attacks).

The estimate is the epsilon that scores would need, were they independent. Those of one network are
not, so that it refutes no claim. An area surely below 1/2 takes others for members, as where the
two are swapped. Silence proves nothing: stronger attacks, or other shadows, may identify members.

Members and others may differ in more than membership (another hospital, another class mix). Then
scores separate the two although no network has leaked. The control's columns, by ridge:

| part | columns |
|---|---|
| values | along the first `DIRECTIONS` principal directions, and squares of these (for scales) |
| label | an indicator of each class |

Each fold is scored by a fit on the others; samples of a group are in one fold.

Source: Das, Zhang and Tramer 2024 (blind baselines beat membership inference attacks).

>>> import numpy as np
>>> import panas
>>> import torch
>>> from attacks.inference.membership import query_of
>>> rng, flat = np.random.default_rng(0), torch.nn.Flatten()
>>> net = torch.nn.Sequential(flat, torch.nn.Linear(64, 2))
>>> samples = panas.as_samples((rng.random((64, 1, 8, 8)), np.arange(64) % 2))
>>> members, others = samples.take(range(32)), samples.take(range(32, 64))
>>> audit_network(query_of(net), members, others, rng=rng).verdict
'inconclusive'
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attacks.audit.named import in_people
from attacks.audit.verdict import Verdict
from attacks.inference.membership import Query, ShadowConfig, logits, loss_scores, shadow_attacks
from attacks.inference.roc import Roc, area_bound, point_of, roc
from attacks.reconstruction.inverters import fit
from attacks.statistics import MIN_SAMPLES, clopper_pearson
from panas.data.samples import Samples, concat, value_hashes

MARGIN = 0.1
"""Tolerated of the area under the curve: 0.6 is a coin that is right six times of ten."""

LOUD = 0.05
"""True positives at 1 % false ones that count as a leak: five times of what chance finds."""

ERROR = 0.01  # how often a run may be called a leak by scores that tell nothing
SHOWN = 0.05  # of the intervals that are shown, all together
CRITERIA = 2  # of each attack: the area, and the true positives at 1 % false ones


@dataclass(frozen=True, kw_only=True)
class PrivacyClaim:
    """What is said of a network's training."""

    epsilon: float | None = None  # None, or infinity: nothing is claimed
    delta: float = 1e-5  # also of the estimate of epsilon
    mu: float | None = None  # of Gaussian differential privacy, where all was charged so
    why: str = ""  # nothing is claimed, if that is known
    networks: int = 1  # that are audited together: their verdicts share `ERROR`


NO_CLAIM = PrivacyClaim()
STAYS = PrivacyClaim(why="it was trained without noise, and must stay")


@dataclass(frozen=True, kw_only=True)
class NetworkAudit:
    """What membership attacks on one network came to."""

    verdict: Verdict
    evidence: str
    members: int
    others: int
    accuracy: tuple[float, float]  # on members, on others
    curves: dict[str, Roc]  # by attack
    blind_area: float | None = None  # under the curve of who never asked the network

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        record = dict(vars(self))
        attacks = [{"name": k, **v.to_json()} for k, v in record.pop("curves").items()]
        accuracy = dict(zip(("members", "others"), self.accuracy, strict=True))
        return record | {"accuracy": accuracy, "attacks": attacks}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "NetworkAudit":
        """What `to_json` gave; its curves have their figures alone."""
        curves = {a["name"]: Roc.from_json(a) for a in record["attacks"]}
        accuracy = (record["accuracy"]["members"], record["accuracy"]["others"])
        kept = {k: v for k, v in record.items() if k != "attacks"}
        return cls(**kept | {"accuracy": accuracy, "curves": curves})


def audit_network(
    query: Query,
    members: Samples,
    others: Samples,
    *,
    rng: np.random.Generator,
    claim: PrivacyClaim = NO_CLAIM,
    shadows: ShadowConfig | None = None,
) -> NetworkAudit:
    """Attack a network, and score the attacks.

    Args:
        query: images in [-1, 1] to logits.
        members: it was trained on them.
        others: it was not; as many as members at best, and from where they are.
        rng: of shadows and bootstrap.
        claim: of its training.
        shadows: of LiRA and RMIA, on samples that are neither members nor others; None leaves
            them out.
    """
    pool = concat([members, others])
    twice = int(np.isin(value_hashes(others), value_hashes(members)).sum())
    if twice:
        warnings.warn(
            f"{twice} of the {len(others)} others are members, too, which hides what the network "
            "knows: leave them out",
            stacklevel=2,
        )
    truth = torch.arange(len(pool)) < len(members)
    scores = {"loss threshold": loss_scores(query, pool)}
    if shadows is not None:
        scores |= shadow_attacks(query, pool, shadows, rng=rng)
    right = (logits(query, pool).argmax(1) == pool.y).double()
    blind = blind_scores(pool, truth, rng=rng)
    bar = Bar(blind, roc(blind, truth, rng=rng, confidence=1 - SHOWN))
    curves, verdict, evidence = judge_scores(scores, truth, claim, rng=rng, bar=bar)
    return NetworkAudit(
        verdict=verdict,
        evidence=evidence,
        members=len(members),
        others=len(others),
        accuracy=(float(right[truth].mean()), float(right[~truth].mean())),
        curves=curves,
        blind_area=round(bar.curve.auc, 6),
    )


@dataclass(frozen=True)
class Bar:
    """What scores must beat: those of who never asked the network."""

    scores: Float[Tensor, "n"]
    curve: Roc

    @property
    def tells(self) -> bool:
        """Whether members and others surely differ in more than membership."""
        return self.curve.auc_interval[0] > 0.5


def judge_scores(
    scores: Mapping[str, Float[Tensor, "n"]],
    members: Bool[Tensor, "n"],
    claim: PrivacyClaim,
    *,
    rng: np.random.Generator,
    bar: Bar | None = None,
) -> tuple[dict[str, Roc], Verdict, str]:
    """What the scores of one or more attacks show: curves by attack, a verdict, its evidence.

    The curves have intervals at the corrected confidence.

    Args:
        scores: by attack, on the same n candidates, higher for members.
        members: which candidates the network was trained on.
        claim: of the training; its `networks` share the error.
        rng: of the bootstrap.
        bar: what blind scores reach on these candidates; None: a coin is the only control.
    """
    confidence = 1 - SHOWN / (CRITERIA * len(scores))
    error = ERROR / (CRITERIA * len(scores) * claim.networks)
    curves = {
        k: roc(v, members, rng=rng, delta=claim.delta, confidence=confidence)
        for k, v in scores.items()
    }
    n, m = int(members.sum()), int((~members).sum())
    estimate = max(c.epsilon_if_independent for c in curves.values())
    fired = [
        f"{name} {what}"
        for name, values in scores.items()
        for what in _fired(values, members, bar, error)
    ]
    verdict: Verdict = "inconclusive"
    if min(n, m) >= MIN_SAMPLES:
        if fired:
            verdict = "leaks"
        elif all(_silent(c, n) for c in curves.values()):
            verdict = "no better than blind"
    text = f"members are surely identified: {', '.join(fired)}" if fired else _sign(curves)
    if bar is not None and bar.tells:
        text += f"; values and labels alone separate the two, by an area of {bar.curve.auc:.3f}"
    if min(n, m) < MIN_SAMPLES:
        text = f"too few samples for a verdict: {MIN_SAMPLES} members and as many others at least"
    figures = "; ".join(_figures(name, c, n, m) for name, c in curves.items())
    people = in_people(claim.epsilon, claim.delta, mu=claim.mu)
    text += people and f"; {people}"
    return curves, verdict, f"{text}; {figures}; {_terms(claim, confidence, estimate)}"


def _terms(claim: PrivacyClaim, confidence: float, estimate: float) -> str:
    claimed, above = f"no epsilon claimed{claim.why and f' ({claim.why})'}", ""
    if claim.epsilon is not None and math.isfinite(claim.epsilon):
        claimed = f"claimed epsilon {claim.epsilon:.3g}"
        above = ", which is above the claim but no proof" * (estimate > claim.epsilon)
    return (
        f"at confidence {confidence:.4g}; tolerated: an area of {0.5 + MARGIN} and {LOUD:.0%} "
        f"found; {claimed}, an estimate of about {estimate:.2f}, were scores independent{above}"
    )


def _fired(
    scores: Float[Tensor, "n"], members: Bool[Tensor, "n"], bar: Bar | None, error: float
) -> list[str]:
    """The criteria that an attack meets, each wrong with `error`."""
    area = area_bound(scores, members, error=error) > 0.5 + MARGIN
    # One end of the point's interval is wrong with half of what its confidence leaves.
    point = point_of(scores, members, confidence=1 - 2 * error)
    result = point.interval[0] > max(LOUD, point.fpr_bound)
    if bar is not None:
        over = area_bound(scores, members, error=error, beside=bar.scores)
        area = area and over > (MARGIN if bar.tells else 0.0)
        result = result and point.interval[0] > bar.curve.points[0].interval[1]
    met = {
        "by the area under its curve": area,
        "by its true positives at 1 % false ones": result,
    }
    return [what for what, fires in met.items() if fires]


def _sign(curves: Mapping[str, Roc]) -> str:
    """What scores say that are no leak."""
    settings = {name: c.auc < 0.5 for name, c in curves.items() if _tells(c)}
    turned = [name for name, below in settings.items() if below]
    if turned:
        return (
            f"others are taken for members ({', '.join(turned)}): check that the two are not "
            "swapped, are alike, and have right labels"
        )
    if settings:
        return f"some are surely identified, but below the tolerance: {', '.join(settings)}"
    return "no attack surely identifies members"


def _tells(curve: Roc) -> bool:
    """Whether an attack is surely other than a coin, by however little and in either direction."""
    low, high = curve.auc_interval
    return not low <= 0.5 <= high or curve.epsilon_if_independent > 0


def _silent(curve: Roc, members: int) -> bool:
    """Whether an attack is like a coin, and surely stays below the tolerance."""
    hits = round(curve.points[0].tpr * members)
    loudest = clopper_pearson(hits, members, 1 - 2 * SHOWN)[1]  # the upper end alone: 95 %
    return curve.auc_interval[1] < 0.5 + MARGIN and loudest <= LOUD and not _tells(curve)


def _figures(name: str, curve: Roc, members: int, others: int) -> str:
    point = curve.points[0]
    (low, high), (few, many) = curve.auc_interval, point.interval
    return (
        f"{name}: an area of {curve.auc:.3f} [{low:.3f}, {high:.3f}], and {point.tpr:.1%} "
        f"[{few:.1%}, {many:.1%}] of {members} members found at 1 % false alarms among {others} "
        f"others (true rate at most {point.fpr_bound:.1%})"
    )


DIRECTIONS = 32
FOLDS = 5
FITTED = 4000  # candidates that one fit learns from, at most
BATCH = 512  # samples that are read at a time


def blind_scores(
    candidates: Samples, members: Bool[Tensor, "n"], *, rng: np.random.Generator
) -> Float[Tensor, "n"]:
    """Scores of candidates without any question to a network; all 0 for too few of them.

    Args:
        candidates: members and others, in any order.
        members: which of them the network was trained on.
        rng: divides them into folds, and draws features.
    """
    folds = _folds(candidates, members, rng)
    features, truth = _features(candidates, rng), members.double()[:, None]
    scores = torch.zeros(len(candidates), dtype=torch.float64)
    for k in range(FOLDS):
        out = folds == k
        rest = torch.from_numpy(rng.permutation(torch.nonzero(~out)[:, 0].numpy())[:FITTED])
        if not 0 < int(members[rest].sum()) < len(rest) or len(rest) < 2 * FOLDS:
            return torch.zeros_like(scores)
        scores[out] = fit(features[rest], truth[rest])(features[out])[:, 0]
    return scores


def _folds(candidates: Samples, members: Bool[Tensor, "n"], rng: np.random.Generator) -> Tensor:
    """A fold for each candidate, with as many members and others in each as can be."""
    units = torch.arange(len(candidates)) if candidates.groups is None else candidates.groups
    folds = torch.zeros(len(candidates), dtype=torch.long)
    for kind in (members, ~members):
        of = units[kind].unique()
        dealt = torch.from_numpy(rng.permutation(len(of)) % FOLDS)
        folds[kind] = dealt[torch.searchsorted(of, units[kind])]
    return folds


def _features(candidates: Samples, rng: np.random.Generator) -> Float[Tensor, "n f"]:
    seen = rng.permutation(len(candidates))[:FITTED]
    x = candidates.inputs(seen).flatten(1)
    centre, k = x.mean(0), min(DIRECTIONS, *x.shape)
    directions = torch.linalg.svd(x - centre, full_matrices=False).Vh[:k].T
    parts = torch.arange(len(candidates)).split(BATCH)
    z = torch.cat([(candidates.inputs(p).flatten(1) - centre) @ directions for p in parts])
    z = z / z.std(0).clamp(min=1e-6)
    return torch.cat([z, z.square(), torch.eye(candidates.classes)[candidates.y]], dim=1).double()
