"""Whole numbers of the discrete Gaussian, exactly: P(y) in proportion to exp(-y^2 / (2 sigma^2)).

Noise that is a whole number of grid steps adds up without rounding, and leaves no gaps between
floating-point numbers to look into (Mironov 2012).

| symbol | name |
|---|---|
| sigma | `sigma`, in steps; the standard deviation, but for exp(-2 pi^2 sigma^2) |
| t | `scale` of the discrete Laplace that candidates come from |
| gamma | minus the logarithm of a chance |

Every decision is an event of chance exp(-gamma): it happens where a uniform number U is below that.
U is read bit by bit, as far as needed. With 53 bits, float64 decides where U is farther from
exp(-gamma) than all its errors together, generously bounded; that is all but one in 1e10. The rest
is decided in whole numbers, with more bits of U and more digits of exp(-gamma), so that no
approximation shapes the outcome. How long it takes depends on what is drawn: nobody who can time a
site to microseconds should be able to ask it for noise.

Source: Canonne, Kamath and Steinke 2020, algorithms 1 to 3.
"""

import os
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float64, Int64

from panas.runtime.errors import BadInput

Entropy = Callable[[int], bytes]  # as many random bytes as asked for

MOST_SIGMA = 1 << 40
BITS = 53  # of U that float64 holds exactly
SLACK = 2.0**-36  # relative, times 1 + gamma: hundreds of times the errors of exp and of gamma
TINY = 1e-290  # covers where exp(-gamma) underflows


def discrete_gaussian(
    sigma: int | Fraction, size: int, entropy: Entropy = os.urandom
) -> Int64[np.ndarray, "n"]:
    """Independent numbers of the discrete Gaussian with this sigma, exactly.

    Args:
        sigma: in (0, 2^40], a whole number or a fraction.
        size: how many.
        entropy: where random bytes come from; another source is for tests alone.

    Raises:
        BadInput: if sigma is out of range.
    """
    exact = Fraction(sigma)
    if not 0 < exact <= MOST_SIGMA:
        raise BadInput(f"expected a sigma above 0, at most 2^40 steps, got {float(exact):g}")
    scale = max(1, round(exact))
    result: list[np.ndarray] = []
    while (lacking := size - sum(map(len, result))) > 0:
        y = discrete_laplace(scale, lacking + 8, entropy)
        result.append(y[_near(y, exact, scale, entropy)])
    return np.concatenate([np.zeros(0, np.int64), *result])[:size]


def discrete_laplace(scale: int, tries: int, entropy: Entropy) -> Int64[np.ndarray, "n"]:
    """Numbers of P(y) in proportion to exp(-|y| / scale), exactly, as many as the tries give.

    Args:
        scale: at least 1, of whole numbers.
        tries: at least 1; twice as many are made, and each gives a number or none.
        entropy: draws random bytes; the operating system's, unless for a test.
    """
    low = _below(scale, 2 * tries, entropy)
    low = low[_happens(low / scale, lambda at: Fraction(int(low[at]), scale), entropy)]
    size = low + scale * _geometric(len(low), entropy)
    negative = (np.frombuffer(entropy(len(size)), dtype=np.uint8) & 1).astype(bool)
    once = ~(negative & (size == 0))  # else 0 would come twice as often
    return np.where(negative, -size, size)[once]


def _near(
    y: Int64[np.ndarray, "n"], sigma: Fraction, scale: int, entropy: Entropy
) -> Bool[np.ndarray, "n"]:
    """Which candidates stay, each by its chance exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2))."""
    middle, spread = sigma**2 / scale, 2 * sigma**2
    gamma = ((np.abs(y) - float(middle)) / float(sigma)) ** 2 / 2
    return _happens(gamma, lambda at: (abs(int(y[at])) - middle) ** 2 / spread, entropy)


def _geometric(size: int, entropy: Entropy) -> Int64[np.ndarray, "n"]:
    """How often in a row an event of chance 1 / e happens."""
    count, on = np.zeros(size, np.int64), np.arange(size)
    while len(on):
        on = on[_happens(np.ones(len(on)), lambda at: Fraction(1), entropy)]
        count[on] += 1
    return count


def _below(limit: int, size: int, entropy: Entropy) -> Int64[np.ndarray, "n"]:
    """Whole numbers, uniform on 0 to limit - 1."""
    mask = np.uint64((1 << (limit - 1).bit_length()) - 1)
    result = np.zeros(0, np.int64)
    while len(result) < size:
        words = (_words(2 * (size - len(result)), entropy) & mask).astype(np.int64)
        result = np.concatenate([result, words[words < limit]])
    return result[:size]


def _happens(
    gamma: Float64[np.ndarray, "n"], exactly: Callable[[int], Fraction], entropy: Entropy
) -> Bool[np.ndarray, "n"]:
    """Whether events of chance exp(-gamma) happen; `exactly` gives the gamma of one of them."""
    bits = _words(len(gamma), entropy) >> np.uint64(64 - BITS)
    low, chance = bits.astype(np.float64) * 2.0**-BITS, np.exp(-gamma)
    slack = chance * (1 + gamma) * SLACK + TINY
    happens = low + 2.0**-BITS <= chance - slack
    for at in np.flatnonzero(~happens & (low < chance + slack)):
        happens[at] = _decided(int(bits[at]), BITS, exactly(int(at)), entropy)
    return happens


def _decided(u: int, bits: int, gamma: Fraction, entropy: Entropy) -> bool:
    """Whether U, which begins with `u`, is below exp(-gamma); draws more bits as needed."""
    if gamma == 0:
        return True
    while True:
        least, most = _exp_bounds(gamma, bits)
        if Fraction(u + 1, 1 << bits) <= least:
            return True
        if Fraction(u, 1 << bits) >= most:
            return False
        u, bits = (u << 64) | int.from_bytes(entropy(8), "big"), bits + 64


def _exp_bounds(gamma: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Numbers around exp(-gamma), closer to it than 2^-bits; `Decimal.exp` rounds correctly."""
    digits = 10 + bits // 3
    down = Context(prec=digits, rounding=ROUND_FLOOR, Emin=-(10**15), Emax=10**15)
    up = Context(prec=digits, rounding=ROUND_CEILING, Emin=-(10**15), Emax=10**15)
    above, below = (
        around.divide(Decimal(gamma.numerator), Decimal(gamma.denominator)) for around in (up, down)
    )
    # `-above` would round by the context that happens to be set.
    least, most = down.exp(above.copy_negate()), up.exp(below.copy_negate())
    # Exact decimal next to a rounding to the nearest.
    return Fraction(down.next_minus(least)), Fraction(up.next_plus(most))


def _words(size: int, entropy: Entropy) -> np.ndarray:
    """Random numbers of 64 bits, uint64."""
    return np.frombuffer(entropy(8 * size), dtype=np.uint64)
