"""Ridge heads on unit representations, from their exact or noised second moments.

| symbol | name |
|---|---|
| A = sum u u^T, B = sum e_y u^T | moments of unit representations (`Moments`) |
| s | standard deviation of the noise on each number of B; s^2 is `Moments.variance` |
| T = I - 1/C | targets: row y is what the head should answer for class y |
| N, H | number of samples that were pooled, and how many of each class |
| w | weight of noised moments beside exact public ones |
| w_k, s_k | weight of site k's moments beside those of other sites, and their noise |
| v | variance of a number of one site's exact moments, from site to site |
| n_c, q | pooled noised count of class c; variance of their noise, `Moments.counts_variance` |
| S^2 | variance of the pooled counts from class to class |

    W = T B (A + lambda I)^-1
    w_k = (v + s_0^2) / (v + s_k^2),   s_0 = min_k s_k

A is drawn to what public samples say of it (`panas.training.linear.second_moments`), and made
positive semidefinite: noise can push eigenvalues below zero, where it has none.
Site k sends n mu + D_k + E_k, where D_k has variance v and E_k s_k^2 a number. Of all linear
estimates of mu, the one with the least variance weighs site k by 1 / (v + s_k^2). This assumes
that D_k are independent of each other and of s_k, and that sites have about as many samples each.
Equal noise gives weight 1 to all, and the sharpest sites always count fully.

Classes are balanced by counts drawn to their mean where noise explains how they differ:

    n_c - r (n_c - mean n),   r = min(1, (2 q / S^2)^4 / 2)

Counts that differ by noise alone have S^2 = q; r is 1/2 at 2 q, and 3 % at 4 q. James and Stein's
q / S^2 falls too slowly: with `PSEUDO_COUNT` classes are balanced too little already where counts
are well known. Fashion-MNIST at ten sites of 150, epsilon 1: .486 for .441.
All of it is post-processing of releases and public samples. The constants were measured on
Fashion-MNIST and CIFAR-10 at d = 128 (`benchmarks.joining`); none depends on private samples.

**Public head.** Nothing private has a part in the head of labelled public samples, so that its
penalty can be chosen by cross-validation: the one
with the least negative log-likelihood of held-out samples, as it is what averages weigh by and
what a residual starts from. It is what a site has without spending anything.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from panas.features.exact import product
from panas.privacy.release.estimate import Moments, Rows
from panas.privacy.release.rows import sums_by_class
from panas.runtime.errors import BadInput
from panas.runtime.seeds import one_thread, stream
from panas.training.linear.second_moments import PublicMoments, denoised, spread_of

Weights = Float[Tensor, "classes d"]

LOGIT_SCALE = 12.0
"""Logits are so many times what a ridge head answers: its answers for a sure class are near 1."""
LEAST_RIDGE, LEAST_WITH_PUBLIC = 0.9, 0.3  # lambda, where noise asks for less
MANY_PUBLIC = 500  # labelled public samples from which on they say how much noise is worth
PSEUDO_COUNT = 100.0  # added to each class's count where classes are balanced
DOUBT = 2.0  # S^2 / q at which counts are drawn to their mean by half
BETWEEN_SITES = 10.0
"""Times `spread_of`, variance of moments from site to site: their classes differ, too."""
NOISE = 2.0  # lambda, in units of s sqrt(d)


def exact_moments(z: Float[Tensor, "n d"], y: Tensor, classes: int) -> Moments:
    """The moments of rows whose labels anybody may see, or that stay where they are.

    Args:
        z: representations, n >= 0.
        y: their classes (n,), 0 to C - 1.
        classes: C.
    """
    u = z.double()
    return Moments(u.T @ u, sums_by_class(u, y, classes), 0.0)


def ridge(m: Moments, penalty: float) -> Weights:
    """W of the formula above.

    Args:
        m: A (d, d) and B (C, d), noised or not; negative eigenvalues of A count as 0.
        penalty: lambda, above 0.
    """
    values, vectors = torch.linalg.eigh(m.A)
    aim = m.B - m.B.mean(0)
    return aim @ vectors @ torch.diag(1 / (values.clamp(min=0) + penalty)) @ vectors.T


def noise_penalty(m: Moments) -> float:
    """Lambda that the noise of moments asks for."""
    return NOISE * math.sqrt(m.variance * len(m.A))


def shared_head(
    pooled: Moments,
    public: Moments | None = None,
    labelled_public: int = 0,
    seen: PublicMoments | None = None,
) -> Weights:
    """The server's head, from the sum of all sites' noised moments and the exact public ones.

    Args:
        pooled: sum over sites, variances are those of the sum; classes are balanced by its counts.
        public: exact moments of labelled public samples, if there are any.
        labelled_public: how many these are.
        seen: second moments of all public samples, with labels and without.
    """
    samples = float(_counts(pooled).clamp(min=0).sum())
    balanced = replace(balance(pooled), A=denoised(pooled, samples, seen))
    if public is None or not labelled_public:
        return ridge(balanced, max(noise_penalty(pooled), LEAST_RIDGE))
    weight = trust(pooled.variance, len(pooled.A), samples)
    joint = Moments(public.A + weight * balanced.A, public.B + weight * balanced.B, 0.0)
    return ridge(joint, max(weight * noise_penalty(pooled), least_penalty(labelled_public)))


def pooled(sent: Iterable[Moments], classes: int, d: int) -> Moments:
    """The sum of sites' noised moments and counts, each weighed by its noise; of none, zeros.

    Sites of equal noise are added up as they come: there is one sum of each noise in memory.

    Args:
        sent: one a site, with counts; read one at a time.
        classes: C.
        d: width of the representations.
    """
    zero = torch.zeros(classes, d).double()
    nothing = Moments(torch.zeros(d, d).double(), zero, 0.0, torch.zeros(classes))
    alike: dict[float, Moments] = {}  # the sum of all sites of one variance
    sites, total = 0, nothing
    for m in sent:
        alike[m.variance] = _plus(alike.get(m.variance, nothing), m, 1.0)
        sites += 1
    samples = sum(_samples(m) for m in alike.values()) / max(sites, 1)
    spread, least = BETWEEN_SITES * spread_of(samples, d), min(alike, default=0.0)
    for variance, m in alike.items():
        total = _plus(total, m, noise_weight(variance, least, spread))
    return total


def noise_weight(variance: float, least: float, spread: float) -> float:
    """Weight w_k of a site's moments; in [0, 1], and exactly 1 where the noise is the least.

    Args:
        variance: of the noise on each of its numbers, 0 or more.
        least: that of the site with the least noise.
        spread: v, variance between sites of the exact numbers.
    """
    return 1.0 if variance == least else (spread + least) / (spread + variance)


def _plus(total: Moments, m: Moments, weight: float) -> Moments:
    counts = total.counts
    if counts is not None and m.counts is not None:
        counts = counts + weight * m.counts
    variance = total.variance + weight**2 * m.variance
    of_counts = total.counts_variance + weight**2 * m.counts_variance
    return Moments(total.A + weight * m.A, total.B + weight * m.B, variance, counts, of_counts)


def _samples(m: Moments) -> float:
    return 0.0 if m.counts is None else max(0.0, float(m.counts.sum()))


def balance(m: Moments) -> Moments:
    """Moments whose rows of B weigh as if all classes were about as frequent, as far as noise lets
    that be known."""
    counts = _counts(m).double()
    apart = counts - counts.mean()
    known = (counts - _doubt(apart, m.counts_variance) * apart).clamp(min=0)
    factor = (known.mean() + PSEUDO_COUNT) / (known + PSEUDO_COUNT)
    return replace(m, B=factor[:, None] * m.B)


def _doubt(apart: Float[Tensor, "classes"], variance: float) -> float:
    """r, of what counts are apart from their mean and the variance of their noise; in [0, 1]."""
    spread = float(apart.square().sum()) / max(1, len(apart) - 1)
    return min(1.0, (DOUBT * variance / max(variance, spread)) ** 4 / 2) if variance else 0.0


def _counts(m: Moments) -> Float[Tensor, "classes"]:
    if m.counts is None:
        raise BadInput("expected moments with counts of their classes, got none; give counts")
    return m.counts


def trust(variance: float, width: int, samples: float) -> float:
    """Weight w of noised moments beside exact public ones: the share of signal in them.

    Args:
        variance: of the noise on each number, 0 or more.
        width: d.
        samples: N, private samples of all sites, of which a public one tells as much as a private
            one.
    """
    signal = spread_of(samples, width)
    return signal / (signal + variance) if signal + variance else 1.0


def logits(weights: Weights, z: Float[Tensor, "n d"]) -> Float[Tensor, "n classes"]:
    """Logits of a ridge head on representations; a row has its bits whatever is beside it."""
    return (LOGIT_SCALE * product(z, weights.T)).float()


def least_penalty(labelled_public: int) -> float:
    """Lambda where noise asks for less, by the number of labelled public samples."""
    return LEAST_RIDGE if labelled_public < MANY_PUBLIC else LEAST_WITH_PUBLIC


PENALTIES = (0.3, 0.6, 0.9, 1.5, 2.5, 4.0, 7.0)
FEWEST = 50  # samples; of fewer, `FOR_FEW` is taken
FOR_FEW = 0.9
FOLDS, REPEATS = 5, 3


def fit_public_head(public: Rows, classes: int) -> Weights:
    """The head of n >= 1 labelled public samples; equal samples give equal heads."""
    learnt = exact_moments(public.z, public.y, classes)
    return ridge(learnt, best_penalty(public, classes))


def best_penalty(public: Rows, classes: int) -> float:
    """The penalty by which held-out public samples are likeliest."""
    if len(public.y) < FEWEST:
        return FOR_FEW
    rng, loss = stream(0, "public head"), torch.zeros(len(PENALTIES))
    with one_thread():
        for _ in range(REPEATS):
            parts = torch.from_numpy(rng.permutation(len(public.y))).tensor_split(FOLDS)
            for at, held in enumerate(parts):
                rest = torch.cat([part for i, part in enumerate(parts) if i != at])
                learnt = exact_moments(public.z[rest], public.y[rest], classes)
                for i, penalty in enumerate(PENALTIES):
                    values = logits(ridge(learnt, penalty), public.z[held])
                    loss[i] += F.cross_entropy(values, public.y[held], reduction="sum")
    return PENALTIES[int(loss.argmin())]
