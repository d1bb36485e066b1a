"""The exact interval of a probability that was seen as hits of n.

The bounds are where the binomial's tails at the hits become (1 - confidence) / 2.
Source: Clopper and Pearson 1934.
"""

from scipy.stats import beta

from panas.runtime.errors import BadInput


def clopper_pearson(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a probability that gave `hits` of n.

    Each bound by itself is wrong with a probability of at most (1 - confidence) / 2.

    Args:
        hits: in [0, n].
        n: independent trials, at least 1.
        confidence: of both bounds together, in (0, 1).

    Raises:
        BadInput: for numbers out of range.

    """
    if not (0 <= hits <= n and n >= 1 and 0 < confidence < 1):
        raise BadInput(
            f"expected 0 to n hits of n >= 1 and a confidence in (0, 1), got {hits} of {n} and "
            f"{confidence}; count again"
        )
    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.isf(tail, hits + 1, n - hits)) if hits < n else 1.0
    return low, high
