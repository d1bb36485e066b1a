"""The server: from what the sites released to a new shared head.

Everything here is post-processing of releases; no private sample is read.

| symbol | name |
|---|---|
| A = sum u u^T, B = sum e_y u^T | second moments of unit representations, summed over sites |
| W0 | head of the last broadcast, which the bottoms were trained against |
| s | standard deviation of the noise on each number of one site's B |

Moments: ridge regression around W0 on the simplex targets t_y that W0 itself aims at,

    W = (T B + lambda W0) (A + lambda I)^-1,   lambda = 2.5 sqrt(d sum s^2),

where the columns of T are t_y less the bias, which stays as it was, and the sum is over sites,
so that with much noise the head stays where it was, and with none it is least squares.
Class sums: nearest noised class mean. Rows: the paper's SGD on cross-entropy.

A site applies a head to its private rows, and so refuses one with a weight above `LARGEST_WEIGHT`
(1e6). At the bound, a row of
norm 1 and d numbers has logits of at most 1e6 sqrt(d), times 12 where a map scales rows: far below
3e38, where 32 bits end. Softmax and loss subtract the largest logit first. A sample's gradient is
(p - e_y) z^T of norm sqrt(2) |z| at most, whatever the head; through a bottom it is finite, or it
counts as zero (`panas.privacy.gradients.private`).
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dprbft.messages import Broadcast, Release
from panas.architecture.head import ETF_SCALE, Head
from panas.privacy.release.estimate import ClassSums, Estimate, Moments, Rows
from panas.runtime.errors import BadInput
from panas.training.sgd import OptimizerConfig


def to_head(broadcast: Broadcast) -> Head:
    """The head that a broadcast carries."""
    head = Head(broadcast.weight.shape[1], broadcast.weight.shape[0])
    with torch.no_grad():
        head.linear.weight.copy_(broadcast.weight)
        head.linear.bias.copy_(broadcast.bias)
    return head


def to_broadcast(head: Head, round: int) -> Broadcast:
    """The message that carries a head."""
    weight, bias = head.linear.weight.detach(), head.linear.bias.detach()
    return Broadcast(round, weight.cpu().clone(), bias.cpu().clone())


def aggregate(
    releases: Iterable[Release],
    previous: Broadcast,
    *,
    round: int,
    optimizer: OptimizerConfig,
    rng: np.random.Generator,
) -> Broadcast:
    """The next broadcast from one round's releases, all of one kind; without any, the same head.

    Args:
        releases: read one at a time, into one sum: only rows stay in memory.
        previous: what the sites were sent before the round.
        round: of the releases, from 1.
        optimizer: of the server's SGD, for raw rows.
        rng: order of its batches.
    """
    total = pooled(r.estimate(len(previous.weight)) for r in releases)
    match total:
        case None:
            return replace(previous, round=round)
        case Moments():
            head = ridge_head(total, previous)
        case ClassSums():
            head = mean_head(total, previous)
        case _:
            head = _train(total, to_head(previous), optimizer, rng)
    return to_broadcast(head, round)


def pooled(estimates: Iterable[Estimate]) -> Estimate | None:
    """The sum of estimates of one kind, which noise leaves unbiased; rows one after the other."""
    total: Estimate | None = None
    rows: list[Rows] = []
    for e in estimates:
        match total, e:
            case None, _:
                total = e
            case Moments(), Moments():
                total = Moments(total.A + e.A, total.B + e.B, total.variance + e.variance)
            case ClassSums(), ClassSums():
                variance = total.variance + e.variance
                total = ClassSums(total.S + e.S, total.counts + e.counts, variance)
            case Rows(), Rows():
                pass
            case _:
                kinds = sorted({type(total).__name__, type(e).__name__})
                raise BadInput(f"expected releases of one kind, got {' and '.join(kinds)}")
        if isinstance(e, Rows):
            rows.append(e)
    if rows:
        return Rows(torch.cat([r.z for r in rows]), torch.cat([r.y for r in rows]))
    return total


def targets(classes: int) -> Float[Tensor, "classes classes"]:
    """Logits that a perfect simplex head gives: row y is the target of class y."""
    if classes == 1:
        return torch.full((1, 1), ETF_SCALE, dtype=torch.float64)
    centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
    return ETF_SCALE * math.sqrt(classes / (classes - 1)) * centred


def ridge_head(total: Moments, previous: Broadcast) -> Head:
    """Ridge regression around the previous head, from everyone's moments."""
    d = previous.weight.shape[1]
    A, B = total.A, total.B
    ridge = max(2.5 * math.sqrt(d * total.variance), 1e-3)
    # Noise can push eigenvalues of A below zero, where it has none.
    values, vectors = torch.linalg.eigh(A)
    inverse = vectors @ torch.diag(1 / (values.clamp(min=0) + ridge)) @ vectors.T
    T = targets(len(previous.weight)) - previous.bias.double()[:, None]
    W = (T @ B + ridge * previous.weight.double()) @ inverse
    return to_head(Broadcast(previous.round, W.float(), previous.bias))


def mean_head(total: ClassSums, previous: Broadcast) -> Head:
    """Nearest class mean from noised sums; a class that the noise drowns keeps its old row."""
    n = total.counts
    floor = max(2 * math.sqrt(total.variance), 1.0)
    mean = total.S / n.clamp(min=floor)[:, None]
    seen = n >= floor
    weight = torch.where(seen[:, None], ETF_SCALE * mean, previous.weight)
    bias = torch.where(seen, -ETF_SCALE / 2 * mean.square().sum(1), previous.bias)
    return to_head(Broadcast(previous.round, weight, bias))


def _train(rows: Rows, head: Head, optimizer: OptimizerConfig, rng: np.random.Generator) -> Head:
    z, y = rows.z, rows.y
    optimiser = torch.optim.SGD(head.parameters(), lr=optimizer.learning_rate)
    for _ in range(optimizer.epochs):
        for batch in torch.from_numpy(rng.permutation(len(y))).split(optimizer.batch_size):
            optimiser.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(head(z[batch]), y[batch]).backward()
            optimiser.step()
    return head


def blend(own: Head, shared: Head, share: float) -> Head:
    """The head whose weights are a weighted mean of two heads'.

    Args:
        own: of the site.
        shared: of the server, of the same size.
        share: weight of the own head, in [0, 1].
    """
    mixed = Head(own.linear.in_features, own.linear.out_features)
    with torch.no_grad():
        for m, a, b in zip(mixed.parameters(), own.parameters(), shared.parameters(), strict=True):
            m.copy_(share * a.cpu() + (1 - share) * b.cpu())
    return mixed


def with_prior(head: Head, histogram: Float[Tensor, "classes"]) -> Head:
    """The head plus the log of a site's own class frequencies, from its noised histogram."""
    counts = histogram.clamp(min=0) + 1
    prior = to_head(to_broadcast(head, 0))
    with torch.no_grad():
        prior.linear.bias.add_(torch.log(counts / counts.sum()))
    return prior
