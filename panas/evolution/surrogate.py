"""What a search expects of genomes that it has not trained, from those that it has.

A Gaussian process on features of the sequence of blocks and on `capacity`. Ten trained genomes
are enough for it to tell good ones from bad.

| symbol | name |
|---|---|
| X | features, standardised over the trained genomes: (n, f) |
| y | accuracies, standardised: (n,) |
| K | squared exponential with one length scale, plus a linear kernel, plus noise, |
| | plus a linear kernel of capacity alone |

Length scale, noise and the linear part's weight come from a small grid, by marginal likelihood:
with so few points a grid is as good as a gradient. (scikit-learn's processes have no kernels on
some of the columns and no variance in closed form.)

Source: White et al. 2021 (BANANAS) for the idea; Rasmussen and Williams 2006, algorithm 2.1.
"""

import math
from itertools import pairwise, product

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import ndtr

from panas.architecture.blocks import (
    BUILT_IN,
    Block,
    ConvBlock,
    DenseBlock,
    PoolBlock,
    Shape,
    shape_after,
)
from panas.architecture.cost import block_cost
from panas.architecture.genome import Genome
from panas.evolution.records import GenomeScore

Features = Float[np.ndarray, "n f"]
Values = Float[np.ndarray, " n"]

SCALES, NOISES, LINEAR = (0.3, 0.5, 0.8, 1.2, 2.0, 4.0), (0.01, 0.05, 0.15, 0.4), (0.0, 0.3, 1.0)
MATRICES = {"dense": 1, "gated": 2, "residual": 3}  # of a dense block, in place of a kernel's side
TRUST = 0.3  # prior variance of the slope on capacity


def capacity(genome: Genome, shape: Shape) -> float:
    """What a genome promises before any training, from its blocks alone: the larger, the better.

    Log of the parameters, plus changes of width (each a shortcut with weights), plus twice the log
    of the field of view. Rank correlation with accuracy is .64 to .69 in the spaces of
    `benchmarks.search`, where terms and weights were chosen; synaptic flow has .26 and .57.
    """
    return float(features(genome, shape)[-1])


def prior_of(shape: Shape) -> GenomeScore:
    """Capacity as the score that seeds a search and decides between equals: it trains nothing."""
    return lambda genome: capacity(genome, shape)


class Promise:
    """What a prior expects of genomes: each is scored once, and 0 without a prior."""

    def __init__(self, prior: GenomeScore | None) -> None:
        self._prior = prior
        self.scores: dict[Genome, float] = {}

    def __call__(self, genome: Genome) -> float:
        """The prior's score of a genome."""
        if self._prior is None:
            return 0.0
        if genome not in self.scores:
            # A score may be infinite or none at all; a journal holds finite numbers only.
            least = np.finfo(float).min
            self.scores[genome] = float(np.nan_to_num(self._prior(genome), nan=least))
        return self.scores[genome]


def features(genome: Genome, shape: Shape) -> Float[np.ndarray, " f"]:
    """Depth to field of view, then `capacity`; a custom block is a convolution of kernel 1.

    A dense block has the number of its matrices in place of a kernel's side, and no field of view.
    """
    field, stride, own = 1, 1, 0
    parameters = macs = 0
    widths, kernels, pools = [shape[0]], list[int](), list[float]()
    for position, block in enumerate(genome.blocks, start=1):
        price, after = block_cost(block, shape, "group"), shape_after(block, shape)
        parameters, macs = parameters + price.parameters, macs + price.macs
        if isinstance(block, PoolBlock):
            field, stride = field + stride, 2 * stride
            pools.append(position / len(genome.blocks))
        else:
            kernels.append(_kernel_of(block))
            own += not isinstance(block, BUILT_IN)
            field += (kernels[-1] - 1) * stride * isinstance(block, ConvBlock)
            widths.append(after[0])
        shape = after
    changes = sum(a != b for a, b in pairwise(widths))
    return np.array(
        [
            len(kernels),
            len(pools),
            own,
            np.mean(pools) if pools else 1.0,
            isinstance(genome.blocks[0], PoolBlock),
            isinstance(genome.blocks[-1], PoolBlock),
            np.log(widths[1]),
            np.log(widths[-1]),
            np.log(np.mean(widths[1:])),
            changes,
            np.mean(kernels),
            kernels[0],
            kernels[-1],
            np.log1p(parameters),
            np.log1p(macs),
            np.log(field),
            np.log1p(parameters) + changes + 2 * np.log(field),
        ],
        dtype=float,
    )


def _kernel_of(block: Block) -> int:
    if isinstance(block, DenseBlock):
        return MATRICES[block.kind]
    return block.kernel_size if isinstance(block, ConvBlock) else 1


class Predictor:
    """Accuracies of genomes, learnt from 2 or more.

    Args:
        X: features of the n >= 2 genomes, as `features` gives them.
        y: their accuracies, in [0, 1].
        scale_of: features over whose spread all are scaled; None: those of X.
    """

    def __init__(
        self, X: Features, y: Values, scale_of: Float[np.ndarray, "m f"] | None = None
    ) -> None:
        like = X if scale_of is None else scale_of
        spread = like.std(0)
        # A feature that has not varied yet keeps its unit: divided by 0 it would drown the others.
        self._mean, self._scale = like.mean(0), np.where(spread > 1e-9, spread, 1.0)
        self._offset, self._spread = y.mean(), y.std() + 1e-9
        self._X = (X - self._mean) / self._scale
        target = (y - self._offset) / self._spread
        fits = (self._fit(target, *p) for p in product(SCALES, NOISES, LINEAR))
        _, self._hyperparameters, self._factor, self._alpha, self._variance = max(
            fits, key=lambda fit: fit[0]
        )

    def predict(self, X: Features) -> tuple[Values, Values]:
        """Mean and standard deviation of the accuracy of other genomes."""
        mean, covariance = self._posterior(X)
        return mean, np.sqrt(np.diag(covariance))

    def batch(self, X: Features, best: Values | float, count: int) -> list[int]:
        """Genomes to train at once, by expected improvement, as if each came true.

        Args:
            X: features of n genomes to choose from.
            best: accuracy to improve on, in [0, 1], one for all or one each.
            count: how many; all of them if there are fewer.
        """
        mean, covariance = self._posterior(X)
        noise = self._hyperparameters[1] * self._variance * self._spread**2
        chosen: list[int] = []
        for _ in range(min(count, len(X))):
            deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
            gain = improvement(mean, deviation, best)
            gain[chosen] = -np.inf
            i = int(np.argmax(gain))
            chosen.append(i)
            column = covariance[:, i]
            covariance = covariance - np.outer(column, column) / (column[i] + noise)
        return chosen

    def _posterior(self, X: Features) -> tuple[Values, Float[np.ndarray, "n n"]]:
        Z = (X - self._mean) / self._scale
        scale, _, linear = self._hyperparameters
        cross = _kernel(Z, self._X, scale, linear)
        inner = solve_triangular(self._factor, cross.T, lower=True)
        covariance = (_kernel(Z, Z, scale, linear) - inner.T @ inner) * self._variance
        np.fill_diagonal(covariance, np.maximum(np.diag(covariance), 1e-9 * self._variance))
        return self._offset + self._spread * (cross @ self._alpha), self._spread**2 * covariance

    def _fit(
        self, target: Values, scale: float, noise: float, linear: float
    ) -> tuple[float, tuple[float, float, float], Features, Values, float]:
        n = len(target)
        K = _kernel(self._X, self._X, scale, linear) + noise * np.eye(n)
        factor = cholesky(K, lower=True)
        alpha = cho_solve((factor, True), target)
        variance = max(float(target @ alpha) / n, 1e-12)
        evidence = -0.5 * n * np.log(variance) - np.log(np.diag(factor)).sum()
        return evidence, (scale, noise, linear), factor, alpha, variance


def improvement(mean: Values, deviation: Values, best: Values | float) -> Values:
    """Expected improvement of normal variables.

    Args:
        mean: of each.
        deviation: standard deviation of each, above 0.
        best: what to improve on, one for all or one each.
    """
    z = (mean - best) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return deviation * (z * ndtr(z) + density)


def _kernel(
    A: Float[np.ndarray, "a f"], B: Float[np.ndarray, "b f"], scale: float, linear: float
) -> Float[np.ndarray, "a b"]:
    a, b, capacities = A[:, :-1], B[:, :-1], np.outer(A[:, -1], B[:, -1])
    squares = ((a[:, None] - b[None]) ** 2).mean(-1)
    return np.exp(-0.5 * squares / scale**2) + linear * a @ b.T / a.shape[1] + TRUST * capacities
