"""What a release says of labels: whose class is which, and how many samples each class has.

| release | labels of rows | histogram |
|---|---|---|
| rows | in the clear: released beside z | counted |
| class sums | none: no sample stands alone | the noised counts |
| moments | none | length of B_c along mu_c; the trace of A gives n |
| public rows | none | no private label is read: the public histogram |
| a histogram beside | none | its counts and those above, each weighed by its noise |

| symbol | name |
|---|---|
| mu_c, s | mean of known u of class c; the noise's standard deviation |
| pi_c | `shares`: of the site's samples, how many are of class c |
| TV | total variation distance of two histograms: half the sum of |p_c - q_c| |

Blind to labels of rows is who answers the site's commonest class for each; blind to a histogram is
who knows the public one, or nothing. The two are scored apart, as shares may identify a site with
few classes where no label is revealed. Only the functions that score get the truth.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attacks.statistics import clopper_pearson
from attacks.threats.observation import Observation
from panas.data.samples import Samples
from panas.privacy.release.estimate import Moments, Rows
from panas.runtime.errors import BadInput
from panas.runtime.seeds import torch_generator

REDRAWS = 200  # histograms behind an interval
ERROR = 0.05  # of an interval, both sides together


@dataclass(frozen=True)
class Inference:
    """What a release says of labels, to someone who does not know the truth."""

    labels: Int[Tensor, "n"] | None  # the class of each row; None where no row was released
    shares: Float[Tensor, "classes"]  # pi, estimated; sums to 1
    redrawn: Float[Tensor, "draws classes"]
    """Shares that would not surprise: the sums under noise drawn once more on top."""
    size: float  # estimate of n, the number of the site's samples


@dataclass(frozen=True)
class LabelScore:
    """How many labels an attack got right, beside who did not look at any row."""

    accuracy: float
    interval: tuple[float, float]  # Clopper-Pearson, 95 %
    blind: float  # accuracy of the site's commonest class for every row, or 1/k if that is higher
    shuffled: float  # expected accuracy of the attack's own guesses, dealt out at random
    beats_blind: bool
    """Whether rows tell labels, at 97.5 %; not by a lucky guess of the commonest class for
    everyone, which shuffling would not change."""


@dataclass(frozen=True)
class HistogramScore:
    """How far an estimated histogram is from the truth, beside blind ones; in TV, 0 to 1."""

    distance: float
    interval: tuple[float, float]
    """95 % of the distances of the redrawn histograms; they have the noise twice, so that it
    errs to the far side."""
    public: float  # distance of the public histogram
    uniform: float
    beats_blind: bool  # whether the release tells the histogram: even redrawn it is nearer


@dataclass(frozen=True, kw_only=True)
class LabelAudit:
    """What a release says of labels, scored."""

    rows: LabelScore | None  # None where no row was released
    histogram: HistogramScore

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        return _rounded(asdict(self))

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "LabelAudit":
        """What `to_json` gave."""
        rows, histogram = (
            r and r | {"interval": tuple(r["interval"])}
            for r in (record["rows"], record["histogram"])
        )
        return cls(rows=rows and LabelScore(**rows), histogram=HistogramScore(**histogram))


def _rounded(value: Any) -> Any:
    match value:
        case dict():
            return {k: _rounded(v) for k, v in value.items()}
        case tuple():
            return [_rounded(v) for v in value]
    return round(value, 6) if isinstance(value, float) else value


def audit_labels(
    observation: Observation, truth: Int[Tensor, "n"], rng: np.random.Generator
) -> LabelAudit:
    """Guess labels and histogram from a release, and score both.

    Args:
        observation: what the server saw of the site.
        truth: the site's labels; of rows, those of the released rows in their order.
        rng: draws what noise may have hidden.
    """
    result, public = infer_labels(observation, rng=rng), observation.public
    rows = None if result.labels is None else score_labels(result.labels, truth, public)
    return LabelAudit(rows=rows, histogram=score_histogram(result, truth, public))


def infer_labels(observation: Observation, *, rng: np.random.Generator) -> Inference:
    """Guess labels and histogram from a release; "y" of rows must be the *released* labels."""
    if observation.noised_sums:
        return _from_sums(observation, rng)
    labels = observation.estimate.y if isinstance(observation.estimate, Rows) else None
    counted = observation.public.y if labels is None else labels
    shares = _normalised(_counts(counted, observation.public.classes))
    return Inference(labels, shares, shares.repeat(REDRAWS, 1), float(len(counted)))


def _from_sums(observation: Observation, rng: np.random.Generator) -> Inference:
    counts, scale = observation.counts(), observation.noise_scale
    mu, noise = observation.known_means, torch.full_like(counts, scale)
    size = float(counts.sum())
    if isinstance(observation.estimate, Moments):
        noise = scale / mu.norm(dim=1).clamp(min=1e-4)
        A = observation.estimate.A.float()
        if observation.basis is not None:
            A = observation.basis.T @ A @ observation.basis
        size = float(A.trace() / observation.known_z.square().sum(1).mean().clamp(min=1e-9))
    if (beside := observation.histogram) is not None:
        counts, noise = _together((counts, noise), (beside.counts, beside.scale))
    again = torch.randn(REDRAWS, len(counts), generator=torch_generator(rng))
    redrawn = (counts + noise * again).clamp(min=0)
    return Inference(None, _normalised(counts), _normalised(redrawn), max(size, 0.0))


def _together(
    *estimates: tuple[Float[Tensor, "classes"], Float[Tensor, "classes"] | float],
) -> tuple[Float[Tensor, "classes"], Float[Tensor, "classes"]]:
    """Estimates of the same counts, weighed by their noise, and the noise that is left."""
    weights = [torch.as_tensor(s).expand_as(n).clamp(min=1e-4) ** -2 for n, s in estimates]
    total = torch.stack(weights).sum(0)
    counts = torch.stack([w * n for w, (n, _) in zip(weights, estimates, strict=True)]).sum(0)
    return (counts / total).clamp(min=0), total**-0.5


def _normalised(counts: Float[Tensor, "*draws classes"]) -> Float[Tensor, "*draws classes"]:
    """Shares of counts; equal ones where there is no count at all."""
    total = counts.sum(-1, keepdim=True)
    equal = torch.full_like(counts, 1 / counts.shape[-1])
    return torch.where(total > 0, counts / total.clamp(min=1e-12), equal)


def score_labels(labels: Int[Tensor, "m"], truth: Int[Tensor, "n"], public: Samples) -> LabelScore:
    """Accuracy of guessed labels, in the order of the truth.

    Args:
        labels: one guess for each of the true labels; m = n.
        truth: 0 to classes - 1, n >= 1.
        public: for the number of classes.
    """
    n = len(truth)
    if not n or len(labels) != n:
        raise BadInput(f"expected a guess for each of one or more rows, got {len(labels)} of {n}")
    right = int((labels == truth).sum())
    guessed, actual = (_normalised(_counts(y, public.classes)) for y in (labels, truth))
    blind = max(float(actual.max()), 1 / public.classes)
    shuffled, interval = float((guessed * actual).sum()), clopper_pearson(right, n, 1 - ERROR)
    beats_blind = interval[0] > max(blind, shuffled)
    return LabelScore(right / n, interval, blind, shuffled, beats_blind)


def score_histogram(
    inference: Inference, truth: Int[Tensor, "n"], public: Samples
) -> HistogramScore:
    """Distance of the estimated histogram to that of the true labels, beside blind ones.

    Args:
        inference: shares of the classes, with redraws of their noise.
        truth: all labels of the site, 0 to classes - 1.
        public: whose histogram is the blind guess.
    """
    true = _normalised(_counts(truth, public.classes))
    distances = _distance(inference.redrawn, true)
    low, high = torch.quantile(distances, torch.tensor([ERROR / 2, 1 - ERROR / 2])).tolist()
    known = float(_distance(_normalised(public.histogram().float()), true))
    uniform = float(_distance(torch.full_like(true, 1 / public.classes), true))
    distance = float(_distance(inference.shares, true))
    return HistogramScore(distance, (low, high), known, uniform, high < min(known, uniform))


def _counts(y: Int[Tensor, "n"], classes: int) -> Float[Tensor, "classes"]:
    return torch.bincount(y, minlength=classes).float()


def _distance(
    p: Float[Tensor, "*draws classes"], q: Float[Tensor, "classes"]
) -> Float[Tensor, "*draws"]:
    return (p - q).abs().sum(-1) / 2
