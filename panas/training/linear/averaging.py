"""One predictor of many: candidates averaged by the likelihood of validation samples.

    p(y | x) = sum_k a_k p_k(y | x),   a_k ~ q_k exp(-V NLL_k / 2)

NLL_k is the mean negative log-likelihood of candidate k on the V validation samples, and q_k what
it weighs before they are looked at. Half of q is the residual's, which has learnt from all that the
others have, and from the site's own samples; the others share the rest evenly. The exponent is half
of a posterior's, as no candidate is the truth. A posterior in which all variants count alike is up
to .8 points worse, and more sites lose a point (seeds 100 to 102 of `benchmarks.joining`); to pick
the best candidate is worse still.

Each candidate stands for several, which share its weight: with more or less of the log prior of the
site's labels, sharper or flatter, and with more or less of what a forest of public rows says, where
there is one. Head and forest err on different rows: the product of both is right more often than
either, and a site whose few validation samples favour the wrong one of them loses less.

Source: Gruenwald and van Ommen 2017 (likelihoods to a power below 1, where no candidate is true).

Privacy: weights come from validation samples and stay with the site; they are not covered.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

STRENGTHS = (0.0, 0.5, 1.0)  # of the log prior
TEMPERATURES = (0.5, 1.0, 2.0)  # that logits are divided by
FOREST = "forest"  # the candidate that others are mixed with
RESIDUAL = "residual"  # the candidate that has learnt most
FAVOUR = 0.5  # what it weighs beforehand, where there are others
POWER = 0.5  # of the likelihood
VOTES = (0.0, 1 / 3, 2 / 3)  # share of the forest's logits in those of another candidate


@dataclass(frozen=True)
class Variant:
    """One way to use a candidate."""

    candidate: str
    strength: float  # of the log prior that is added to its logits
    temperature: float
    votes: float = 0.0  # share of the forest's logits in its own

    def probabilities(
        self, logits: Mapping[str, Float[Tensor, "n classes"]], log_prior: Float[Tensor, "classes"]
    ) -> Float[Tensor, "n classes"]:
        """What it says of samples, from the logits of each candidate."""
        own = logits[self.candidate].double()
        if self.votes:
            own = (1 - self.votes) * own + self.votes * logits[FOREST].double()
        scaled = (own + self.strength * log_prior.double()) / self.temperature
        return scaled.softmax(1)


@dataclass(frozen=True)
class Average:
    """Variants and their weights, which sum to 1."""

    weights: tuple[tuple[Variant, float], ...]

    def probabilities(
        self, logits: Mapping[str, Float[Tensor, "n classes"]], log_prior: Float[Tensor, "classes"]
    ) -> Float[Tensor, "n classes"]:
        """The average of what its variants say, from the logits of each candidate."""
        return sum(
            (a * v.probabilities(logits, log_prior) for v, a in self.weights),
            torch.zeros(()),
        )

    def shares(self) -> dict[str, float]:
        """How much each candidate has to say; a mixture counts for both, by its share of votes."""
        found = dict.fromkeys((v.candidate for v, _ in self.weights), 0.0)
        for variant, weight in self.weights:
            found[variant.candidate] += weight * (1 - variant.votes)
            if variant.votes:
                found[FOREST] += weight * variant.votes
        return found

    def to_json(self) -> list[dict[str, Any]]:
        """As plain JSON."""
        return [
            {
                "candidate": v.candidate,
                "strength": v.strength,
                "temperature": v.temperature,
                "votes": v.votes,
                "weight": weight,
            }
            for v, weight in self.weights
        ]

    @staticmethod
    def from_json(record: Sequence[Mapping[str, Any]]) -> "Average":
        """What `to_json` wrote."""
        return Average(
            tuple((Variant(**{k: r[k] for k in r if k != "weight"}), r["weight"]) for r in record)
        )


def average(
    logits: Mapping[str, Float[Tensor, "v classes"]],
    y: Int[Tensor, "v"],
    log_prior: Float[Tensor, "classes"],
    with_prior: Sequence[str] = (),
) -> Average:
    """Weigh candidates by what they say of validation samples; without any, as beforehand.

    `with_prior` names candidates whose logits hold the prior already. A candidate `FOREST`, if
    there is one, is mixed with all others; one `RESIDUAL` is favoured.
    """
    mixed = {name: VOTES if FOREST in logits and name != FOREST else (0.0,) for name in logits}
    variants = [
        v for name in logits for v in _variants(name, mixed[name], fixed=name in with_prior)
    ]
    beforehand, several = _beforehand(tuple(logits)), Counter(v.candidate for v in variants)
    scores = torch.stack(
        [
            math.log(beforehand[v.candidate] / several[v.candidate])
            - POWER
            * F.nll_loss(
                v.probabilities(logits, log_prior).clamp(min=1e-12).log(),
                y,
                reduction="sum",
            )
            for v in variants
        ]
    )
    weights = scores.softmax(0).tolist()
    return Average(tuple(zip(variants, weights, strict=True)))


def log_prior(histogram: Float[Tensor, "classes"]) -> Float[Tensor, "classes"]:
    """Log frequencies of a noised label histogram, each count at least 1."""
    counts = histogram.double().clamp(min=0) + 1
    return torch.log(counts / counts.sum()).float()


def _beforehand(names: Sequence[str]) -> dict[str, float]:
    """What each candidate weighs before samples are looked at; the sum is 1."""
    if RESIDUAL not in names or len(names) == 1:
        return dict.fromkeys(names, 1 / len(names))
    return dict.fromkeys(names, (1 - FAVOUR) / (len(names) - 1)) | {RESIDUAL: FAVOUR}


def _variants(candidate: str, votes: Sequence[float], *, fixed: bool) -> Iterator[Variant]:
    strengths = (0.0,) if fixed else STRENGTHS
    for part, strength, temperature in product(votes, strengths, TEMPERATURES):
        yield Variant(candidate, strength, temperature, part)
