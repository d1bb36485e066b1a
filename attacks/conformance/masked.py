"""Is a masked vector uniform modulo 2^64, as it is if its masks are? The seeds of the masks are not
tested: who knows a site's seeds reads what it hides, and its vector is as uniform."""

from itertools import combinations, pairwise

import numpy as np
import scipy.stats
from jaxtyping import UInt64

from attacks.conformance.finding import Finding, of_many

BITS = 64
LEAST = 32  # numbers below which nothing is said
MOST_PAIRED = 12
"""Sites of which every two are compared; of more, each with the next one by name."""


def findings_of_masked(numbers: UInt64[np.ndarray, "k"]) -> list[Finding]:
    """Whether the numbers of a masked vector are independent and uniform.

    Args:
        numbers: as they left.
    """
    says = "its masked vector is not uniform, so that it can be read without the other sites"
    if len(numbers) < LEAST:
        return []
    uniform = (numbers.astype(np.float64) + 0.5) / 2.0**BITS
    found = [
        Finding("uniform", "values", float(scipy.stats.kstest(uniform, "uniform").pvalue), says)
    ]
    ones = np.unpackbits(np.ascontiguousarray(numbers).view(np.uint8)).reshape(len(numbers), BITS)
    counts = ones.sum(0).astype(int)
    furthest = int(counts[np.abs(2 * counts - len(numbers)).argmax()])
    p = of_many(float(scipy.stats.binomtest(furthest, len(numbers)).pvalue), BITS)
    found.append(Finding("uniform", "bits", p, says))
    same = ones[1:] == ones[:-1]
    p = float(scipy.stats.binomtest(int(same.sum()), same.size).pvalue)
    found.append(Finding("uniform", "neighbours", p, says))
    repeats = len(numbers) - len(np.unique(numbers))
    p = float(scipy.stats.poisson.sf(repeats - 1, len(numbers) ** 2 / 2.0**65)) if repeats else 1.0
    return [*found, Finding("uniform", "repeats", p, says)]


def findings_between_masked(vectors: dict[str, UInt64[np.ndarray, "k"]]) -> list[Finding]:
    """Whether masked vectors have masks in common: their differences must be uniform, too.

    Args:
        vectors: as they left, by the names of their sites.
    """
    found, names = list[Finding](), sorted(vectors)
    for one, other in combinations(names, 2) if len(names) <= MOST_PAIRED else pairwise(names):
        a, b = vectors[one], vectors[other]
        if len(a) == len(b) >= LEAST:
            of_both = [f.p for rest in (a - b, a + b) for f in findings_of_masked(rest)]
            p, says = of_many(min(of_both), len(of_both)), f"{one} and {other} share their masks"
            found.append(Finding("shared masks", f"{one}, {other}", p, says, (one, other)))
    return found
