"""One predictor of many: candidates stacked by what they say of validation samples.

    p(y | x) = sum_k w_k p_k(y | x),   w maximises sum_i log p(y_i | x_i) + A sum_k q_k log w_k

over the validation samples i. q_k is what candidate k weighs before they are looked at, and counts
as much as A samples (10; 1 beside a forest). 70 % of q is the residual's, which has learnt from all
that the others have and from the site's own samples; the others share the rest evenly. A posterior
would end at the one most likely candidate; w goes on mixing candidates that are right on different
samples.

Each candidate is itself an average of several variants, p_k = sum_v a_v p_v, with more or less of
the log prior of the site's labels, sharper or flatter, and with more or less of what a forest of
public rows says, where there is one. Head and forest err on different rows: the product of both is
right more often than either. Variants are weighed by the square root of how likely they make the
validation samples: they hardly differ, and none is the truth.

**Label frequencies.** At small budgets a noised histogram tells little of them, and the labels of
the validation samples tell more. They are combined by how much each tells:

    pi = ((m + 1) q + c) / sum,   m = n / (1 + C^2 s^2 / (n (C - 1)))

| symbol | name |
|---|---|
| q | label frequencies by the histogram |
| c | counts of validation labels; a group counts as one where groups are the privacy unit |
| n, s | total of the histogram, standard deviation of its noise |
| m | number of exact labels that would tell as much (`worth_of`) |

A frequency of n labels has variance q (1 - q) / n, about (C - 1) / (C^2 n); noise adds s^2 / n^2.
Without any of it, q counts as one label. n is of counts clamped at 0, so m is somewhat too large
where noise is; q is clamped, too, and errs less than s tells.

A variant adds 0, 1/2 or 1 of log pi, less what its logits hold of log q. A validation sample is
judged by the counts of other units. Ten sites of unequally frequent classes gain .9 points at
epsilon 1 and .1 at 8 with 150 samples each, 5 at epsilon 1 with 50. Where classes are equally
frequent the change is -.2 to .2 points (`benchmarks.joining` and `joining_tables`).

Sources: Yao, Vehtari, Simpson and Gelman 2018 (stacking of predictive distributions); Gruenwald and
van Ommen 2017 (likelihoods to a power below 1, where no candidate is true).

Privacy: weights and pi come from validation samples and stay with the site; nothing covers them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

STRENGTHS = (0.0, 0.5, 1.0)  # of the log label frequencies
TEMPERATURES = (0.5, 1.0, 2.0)  # that logits are divided by
FOREST = "forest"  # the candidate that others are mixed with
RESIDUAL = "residual"  # the candidate that has learnt most
FAVOUR = 0.7  # what it weighs beforehand, where there are others
PRIOR, BESIDE_FOREST = 10.0, 1.0
"""Samples that these weights count as much as; fewer beside a forest, whose worth is unlike that of
heads: it may be the best candidate of a table, or the worst."""
POWER = 0.5  # of the likelihood of variants
STEPS = 1000  # at most, of expectation and maximisation
CLOSE = 1e-7  # weights that change less are done
VOTES = (0.0, 1 / 3, 2 / 3)  # share of the forest's logits in those of another candidate


@dataclass(frozen=True)
class Variant:
    """One way to use a candidate."""

    candidate: str
    strength: float  # of the log label frequencies that are added to its logits
    temperature: float
    votes: float = 0.0  # share of the forest's logits in its own
    holds: bool = False  # whether its logits hold the noised log prior already

    def probabilities(
        self,
        logits: Mapping[str, Float[Tensor, "n classes"]],
        log_frequencies: Float[Tensor, "#n classes"],
        log_prior: Float[Tensor, "classes"],
    ) -> Float[Tensor, "n classes"]:
        """What it says of samples.

        Args:
            logits: of each candidate.
            log_frequencies: of labels; one row for all samples, or one for each.
            log_prior: what logits hold of them, where they do.
        """
        own, more = logits[self.candidate].double(), log_frequencies.double()
        if self.votes:
            own = (1 - self.votes) * own + self.votes * logits[FOREST].double()
        if self.holds:
            more = more - (1 - self.votes) * log_prior.double()
        return ((own + self.strength * more) / self.temperature).softmax(1)


@dataclass(frozen=True)
class Average:
    """Variants and their weights, which sum to 1."""

    weights: tuple[tuple[Variant, float], ...]
    log_frequencies: tuple[float, ...] = ()
    """Log of pi of the formula; none: of the noised histogram."""

    def probabilities(
        self, logits: Mapping[str, Float[Tensor, "n classes"]], log_prior: Float[Tensor, "classes"]
    ) -> Float[Tensor, "n classes"]:
        """The average of what its variants say.

        Args:
            logits: of each candidate.
            log_prior: of the noised histogram, which some of them hold.
        """
        own = torch.tensor(self.log_frequencies).double() if self.log_frequencies else log_prior
        each = (a * v.probabilities(logits, own[None], log_prior) for v, a in self.weights)
        return sum(each, torch.zeros(()))

    def shares(self) -> dict[str, float]:
        """How much each candidate has to say; a mixture counts for both, by its share of votes."""
        result = dict.fromkeys((v.candidate for v, _ in self.weights), 0.0)
        for variant, weight in self.weights:
            result[variant.candidate] += weight * (1 - variant.votes)
            if variant.votes:
                result[FOREST] += weight * variant.votes
        return result

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        variants = [asdict(v) | {"weight": weight} for v, weight in self.weights]
        return {"variants": variants, "log_frequencies": list(self.log_frequencies)}

    @staticmethod
    def from_json(record: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> "Average":
        """What `to_json` wrote; earlier versions wrote the variants alone."""
        if not isinstance(record, Mapping):
            record = {"variants": record, "log_frequencies": ()}
        variants = (
            (Variant(**{k: r[k] for k in r if k != "weight"}), r["weight"])
            for r in record["variants"]
        )
        return Average(tuple(variants), tuple(record["log_frequencies"]))


def average(
    logits: Mapping[str, Float[Tensor, "v classes"]],
    y: Int[Tensor, "v"],
    log_prior: Float[Tensor, "classes"],
    with_prior: Sequence[str] = (),
    *,
    worth: float,
    groups: Int[Tensor, "v"] | None = None,
) -> Average:
    """Weigh candidates by their likelihood of validation samples; without any, by their prior.

    Args:
        logits: of the candidates by name, on v samples each, v >= 0; `FOREST` is mixed with all
            others, and `RESIDUAL` favoured.
        y: classes of the samples.
        log_prior: log frequencies of the site's classes, as `log_prior` gives them.
        with_prior: candidates whose logits hold the prior already.
        worth: exact labels that tell as much as the prior, as `worth_of` gives it; 0 or more.
        groups: privacy unit of each sample; None: a sample is a unit.
    """
    counts, others = _label_counts(y, groups, len(log_prior))
    judged = _frequencies(log_prior, others, worth)
    variants, likelihoods = [], []
    for name in logits:
        votes = VOTES if FOREST in logits and name != FOREST else (0.0,)
        group = list(_variants(name, votes, holds=name in with_prior))
        p = torch.stack([v.probabilities(logits, judged, log_prior) for v in group])
        each = p[:, torch.arange(len(y)), y].clamp(min=1e-12)
        inner = (POWER * each.log().sum(1)).softmax(0)
        variants.append(list(zip(group, inner.tolist(), strict=True)))
        likelihoods.append(inner @ each)
    samples = BESIDE_FOREST if FOREST in logits else PRIOR
    weights = _stacked(torch.stack(likelihoods), samples * _beforehand(tuple(logits)))
    return Average(
        tuple((v, w * a) for w, group in zip(weights, variants, strict=True) for v, a in group),
        tuple(_frequencies(log_prior, counts, worth).tolist()),
    )


def worth_of(histogram: Float[Tensor, "classes"], noise: float) -> float:
    """How many exact labels tell as much of label frequencies as a histogram; m of the formula.

    Args:
        histogram: counts, noised or not.
        noise: standard deviation of the noise on each count, 0 or more.
    """
    n, classes = max(1.0, float(histogram.double().clamp(min=0).sum())), len(histogram)
    return n / (1 + classes**2 * noise**2 / (n * max(1, classes - 1)))


def _label_counts(
    y: Int[Tensor, "v"], groups: Int[Tensor, "v"] | None, classes: int
) -> tuple[Float[Tensor, "classes"], Float[Tensor, "v classes"]]:
    """Label counts of all units, each of L2 norm 1 as in the histogram, and of all units but that
    of each sample."""
    unit = torch.arange(len(y)) if groups is None else groups.unique(return_inverse=True)[1]
    each = torch.zeros(len(unit.unique()), classes, dtype=torch.float64)
    each.index_put_((unit, y), torch.ones(len(y), dtype=torch.float64), accumulate=True)
    each /= each.norm(dim=1, keepdim=True)
    total = each.sum(0)
    return total, (total - each).clamp(min=0)[unit]


def _frequencies(
    log_prior: Float[Tensor, "classes"], counts: Float[Tensor, "*n classes"], worth: float
) -> Float[Tensor, "*n classes"]:
    """log pi of the formula, of each row of counts."""
    shares = (worth + 1) * log_prior.double().exp() + counts
    return (shares / shares.sum(-1, keepdim=True)).log()


def _stacked(values: Float[Tensor, "k v"], prior: Float[Tensor, "k"]) -> list[float]:
    """The weights of largest likelihood under a prior in samples, by EM; it is concave."""
    weights = prior / prior.sum()
    for _ in range(STEPS):
        parts = weights[:, None] * values
        counts = (parts / parts.sum(0)).sum(1) + prior
        before, weights = weights, counts / counts.sum()
        if (weights - before).abs().max() < CLOSE:
            break
    return weights.tolist()


def log_prior(histogram: Float[Tensor, "classes"]) -> Float[Tensor, "classes"]:
    """Log frequencies of a noised label histogram, each count at least 1."""
    counts = histogram.double().clamp(min=0) + 1
    return torch.log(counts / counts.sum()).float()


def _beforehand(names: Sequence[str]) -> Float[Tensor, "k"]:
    """What each candidate weighs before samples are looked at; the sum is 1."""
    if RESIDUAL not in names or len(names) == 1:
        return torch.full((len(names),), 1 / len(names)).double()
    rest = (1 - FAVOUR) / (len(names) - 1)
    return torch.tensor([FAVOUR if name == RESIDUAL else rest for name in names]).double()


def _variants(candidate: str, votes: Sequence[float], *, holds: bool) -> Iterator[Variant]:
    for part, strength, temperature in product(votes, STRENGTHS, TEMPERATURES):
        yield Variant(candidate, strength, temperature, part, holds)
