"""Tests of one release's noise against what was charged; each can fail in its own way.

| test | what it notices |
|---|---|
| shape | another distribution: Kolmogorov-Smirnov, Anderson-Darling, kurtosis, the largest |
| size | noise that is a little too small or too large in all |
| windows | neighbouring numbers that have too little noise, or other numbers in their place |
| spectrum | noise of low rank, or of rows that repeat |
| order | noise that depends on the noise before it |
| repeats | noise that occurs twice in one release |
| copy | a sample's own numbers in the place of noised ones |
| low bits | data in the last bits of the numbers |
| weight | a sample that counts more, or less, than once: along what it adds |
| bare | a sample along whose own direction there is less noise |
"""

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import scipy.stats
import torch
from jaxtyping import Float
from scipy.special import chdtr, chdtrc
from torch import Tensor

from attacks.conformance.finding import Finding, of_many
from attacks.conformance.residual import Residual
from panas.privacy.release.kinds.moments import unpack_symmetric

FEW, MANY = 20, 100  # numbers below which a distribution, and its fourth powers, say nothing
LAGS = 8  # places between numbers whose correlation is tested
DRAWS = 300  # of a spectrum without anything in it
LEAST_WIDTH = 6  # of a matrix whose spectrum is tested
WINDOWS = (8, 32, 128)  # neighbouring numbers whose size is tested
COPIED = 100  # samples that are looked for, the first ones
BITS = 4  # last ones of a number, that are tested
LONG = 2.0**14  # steps of a float in one standard deviation, for its last bits to be even


def findings_of(residual: Residual) -> list[Finding]:
    """All tests of one release."""
    found = [*_of_units(residual), _size(residual)]
    every = residual.flat[residual.all_fine]
    if len(every) >= FEW:
        found += _shape("numbers", every.numpy())
    for name, z in sorted(residual.arrays.items()):
        flat = z.flatten()
        fine = flat[residual.fine[name].flatten()]
        if FEW <= len(fine) < len(every):
            found += _shape(name, fine.numpy())
        if len(flat) >= FEW:
            found += [_order(name, flat), _repeats(name, flat), _windows(name, flat)]
        found += _spectrum(name, z)
        if name in residual.sent:
            found += _copy(name, residual)
            if not residual.compressed:
                found += _low_bits(name, residual)
    return found


def _shape(name: str, z: np.ndarray) -> Iterator[Finding]:
    says = f"the noise of its {name} is not normal"
    yield Finding("shape (Kolmogorov-Smirnov)", name, scipy.stats.kstest(z, "norm").pvalue, says)
    yield Finding("shape (Anderson-Darling)", name, anderson_darling(np.sort(z)), says)
    if len(z) >= MANY:  # its tail is three times too light at 1e-4
        p = float(scipy.stats.kurtosistest(z).pvalue) ** 0.75 if z.std() > 0 else 0.0
        yield Finding("shape (kurtosis)", name, p, says)
    # Of many numbers, none may be as near to 0 as all of these are.
    inside = (1 - 2 * float(scipy.stats.norm.sf(np.abs(z).max()))) ** len(z)
    says = f"the largest number of its {name}'s noise is none of normal noise"
    yield Finding("shape (largest)", name, min(1.0, 2 * min(inside, 1 - inside)), says)


def anderson_darling(z: Float[np.ndarray, "n"]) -> float:
    """Chance of so large an Anderson-Darling statistic if these are standard normal.

    Args:
        z: ascending.

    The limit's tail as Marsaglia and Marsaglia 2004 give it; good to a per cent from n = 20 on.
    """
    n, i = len(z), np.arange(1, len(z) + 1)
    below, above = scipy.stats.norm.logcdf(z), scipy.stats.norm.logsf(z[::-1])
    statistic = -n - float(((2 * i - 1) * (below + above)).sum()) / n
    return _anderson_darling_tail(statistic)


def _anderson_darling_tail(a: float) -> float:
    if a <= 0.01:
        return 1.0
    if a < 2:
        terms = (2.00012, 0.247105, -0.0649821, 0.0347962, -0.0116720, 0.00168691)
        series = sum(c * a**k for k, c in enumerate(terms))
        return 1 - math.exp(-1.2337141 / a) / math.sqrt(a) * series
    terms = (1.0776, -2.30695, 0.43424, -0.082433, 0.008056, -0.0003146)
    if a < 8:
        exponent = sum(c * a**k for k, c in enumerate(terms))
        return -math.expm1(-math.exp(exponent)) if exponent < 700 else 1.0
    # Beyond its range: the limit's largest weight is 1/2 of a chi-square, so that it falls as e^-a.
    at_8 = -math.expm1(-math.exp(sum(c * 8.0**k for k, c in enumerate(terms))))
    return at_8 * math.exp(-(a - 8))


def _size(residual: Residual) -> Finding:
    z = residual.flat
    p = both_sides(float(z.square().sum()), len(z))
    return Finding("size", "all numbers", p, "its noise has another size than was charged")


def both_sides(squares: float, numbers: int) -> float:
    """Chance of a sum of squares of so many normal numbers as far out, from both sides.

    Args:
        squares: the sum.
        numbers: how many, at least 1.
    """
    law = scipy.stats.chi2(numbers)
    return float(min(1.0, 2 * min(law.cdf(squares), law.sf(squares))))


def _windows(name: str, z: Float[Tensor, "n"]) -> Finding:
    """Sums of squares of neighbouring numbers: of a strip without noise they are too small."""
    ps, tests, squares = [1.0], 0, z.square()
    for size in WINDOWS:
        for start in (0, size // 2):
            count = (len(z) - start) // size
            sums = squares[start : start + count * size].reshape(-1, size).sum(1).numpy()
            low, high = chdtr(size, sums), chdtrc(size, sums)
            ps += list(2 * np.minimum(low, high))
            tests += count
    says = f"some numbers of its {name} beside each other have noise of another size"
    return Finding("windows", name, of_many(min(1.0, float(min(ps))), max(1, tests)), says)


def _order(name: str, z: Float[Tensor, "n"]) -> Finding:
    """Correlation with what comes some places later; also a number's size with the next one's."""
    ps = []
    for lag in range(1, LAGS + 1):
        for values in (z, z.square() - 1):
            a, b = values[:-lag], values[lag:]
            norm = math.sqrt(len(a)) * (1.0 if values is z else 2.0)
            ps.append(2 * float(scipy.stats.norm.sf(_mild(abs(float(a @ b)) / norm, len(a)))))
    says = f"the numbers of its {name}'s noise depend on each other"
    return Finding("order", name, of_many(min(ps), len(ps)), says)


def _mild(z: float, n: int) -> float:
    """A sum of products of few normal numbers has longer tails than a normal one."""
    return z / math.sqrt(1 + z * 6 / math.sqrt(n))


def _repeats(name: str, z: Float[Tensor, "n"]) -> Finding:
    """Pairs of numbers of equal size: of k independent ones next to none are so near."""
    near = 1e-5  # far above the steps of 32-bit numbers
    sizes = z.abs().sort().values
    pairs = int((sizes.diff() < near).sum())
    expected = len(z) ** 2 / 2 * near * 2 / math.sqrt(math.pi)
    p = float(scipy.stats.poisson.sf(pairs - 1, expected)) if pairs else 1.0
    return Finding("repeats", name, p, f"numbers of its {name}'s noise occur twice")


def _spectrum(name: str, z: Float[Tensor, "..."]) -> Iterator[Finding]:
    matrix, symmetric = as_matrix(z)
    if matrix is None or min(matrix.shape) < 2 or max(matrix.shape) < LEAST_WIDTH:
        return
    if not matrix.any():  # no noise at all, which other tests say
        return
    mean, deviation = _usual_spread(*matrix.shape, symmetric)
    # Half as far out: the law's own tails are longer than a normal one's.
    far = abs(spread_of(matrix) - mean) / deviation / 2
    says = f"the noise of its {name} has fewer directions than was charged for"
    yield Finding("spectrum", name, 2 * float(scipy.stats.norm.sf(far)), says)


def as_matrix(z: Float[Tensor, "..."]) -> tuple[Tensor | None, bool]:
    """An array of noise as a matrix whose directions are all alike, and whether it is symmetric.

    A row of d (d + 1) / 2 numbers, d at least 6, is taken for the upper triangle of one.
    """
    if z.dim() == 2:
        return z, False
    d = (math.isqrt(8 * z.numel() + 1) - 1) // 2
    if z.dim() != 1 or d < LEAST_WIDTH or d * (d + 1) // 2 != z.numel():
        return None, False
    matrix = unpack_symmetric(z, d)
    return matrix + torch.diag(matrix.diag()) * (math.sqrt(2) - 1), True


def spread_of(matrix: Float[Tensor, "n m"]) -> float:
    """How unevenly noise is spread over directions, by the fourth powers of its singular values."""
    gram = matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix
    return math.log(max(float(gram.square().sum() / gram.trace() ** 2), 1e-300))


@cache
def _usual_spread(n: int, m: int, symmetric: bool) -> tuple[float, float]:
    generator, values = torch.Generator().manual_seed(0), []
    for _ in range(DRAWS):
        drawn = torch.randn(n, m, generator=generator, dtype=torch.float64)
        values.append(spread_of((drawn + drawn.T) / math.sqrt(2) if symmetric else drawn))
    return float(np.mean(values)), float(np.std(values))


def _copy(name: str, residual: Residual) -> Iterator[Finding]:
    """How near neighbouring numbers are to a sample's own.

    Numbers with noise around anything are at least as far from a fixed row as noise alone is.
    """
    rows = residual.rows[:COPIED]
    sent, scale = residual.sent[name].double().flatten(), residual.scales[name].flatten()
    count, d = rows.shape
    if not count or d < LEAST_WIDTH or len(sent) < d:
        return
    weight = 1 / scale.square()
    total = (weight * sent.square()).unfold(0, d, 1).sum(1, keepdim=True)
    products = (weight * sent).unfold(0, d, 1) @ rows.T
    squares = weight.unfold(0, d, 1) @ rows.square().T
    nearest = float((total - 2 * products + squares).min().clamp(min=0))
    p = of_many(float(chdtr(d, nearest)), total.numel() * count)
    yield Finding("copy", name, p, f"some numbers of its {name} are a sample's own")


def _low_bits(name: str, residual: Residual) -> Iterator[Finding]:
    """Whether the last bits are even, of numbers that the noise moves over thousands of steps."""
    sent, scale = (values[name].flatten() for values in (residual.sent, residual.scales))
    steps = 2.0 ** (torch.frexp(sent.double()).exponent - 24).double()
    last = sent[scale / steps > LONG].float().contiguous().view(torch.int32) & (2**BITS - 1)
    if len(last) < 5 * 2**BITS:
        return
    counts = np.bincount(last.numpy(), minlength=2**BITS)
    p = float(scipy.stats.chisquare(counts).pvalue)
    yield Finding("low bits", name, p, f"the last bits of its {name} are not those of noise")


def _of_units(residual: Residual) -> Iterator[Finding]:
    z, units = residual.flat, residual.units
    if len(units):
        along = (units @ z) / units.norm(dim=1)
        p = 2 * float(scipy.stats.norm.sf(float(along.abs().max())))
        says = "it holds one sample more, or less, than once"
        yield Finding("weight", "single samples", of_many(p, len(units)), says)
        least = 2 * float(scipy.stats.norm.cdf(float(along.abs().min()))) - 1
        says = "along what one sample adds to it there is no noise"
        yield Finding("bare", "single samples", of_many(least, len(units)), says)
    sizes, numbers = _along(residual)
    if numbers:
        p = float(scipy.stats.chi2.cdf(float(sizes.min()), numbers))
        says = "in the direction of one sample there is less noise than was charged for"
        yield Finding("bare", "directions of samples", of_many(p, len(sizes)), says)


def _along(residual: Residual) -> tuple[Float[Tensor, "rows"], int]:
    """Chi-squares of the noise in the direction of each row, and of how many numbers each is."""
    v = residual.directions
    total, numbers = torch.zeros(len(v), dtype=torch.float64), 0
    for name in sorted(residual.arrays):
        matrix, symmetric = as_matrix(residual.arrays[name])
        if matrix is None or not len(v) or matrix.shape[1] != v.shape[1]:
            continue
        moved = v @ matrix.T
        total += moved.square().sum(1)
        if symmetric:  # along v itself its variance is 2
            total -= (moved * v).sum(1).square() / 2
        numbers += len(matrix)
    return total, numbers
