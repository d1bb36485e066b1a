"""Polynomials over GF(2^128) for shares: values at small points, and the value at 0 from some.

A number is a polynomial over GF(2), bit i its coefficient of x^i, modulo x^128 + x^7 + x^2 + x
+ 1. Shares are values at 1, 2, ...; to multiply by such a point takes a few shifts. The value at 0
is sum_i w_i s_i with Lagrange's weights w_i, which follow from the points alone: they are computed
once for each set of points. To multiply by all w_i, and add up, is one matrix of bits.

`Crypto.Protocol.SecretSharing` computes in the same field, with the same points; tests compare.

Source: Shamir 1979.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import UInt8

BITS = 128
SIZE = BITS // 8
_MODULUS = (1 << BITS) | 0x87
_TOP = 1 << BITS
LONGEST = 1024
"""Bits of a number in between, about: to reduce it at every step would take longer."""


def values_at(coefficients: Sequence[bytes], points: Sequence[int]) -> list[bytes]:
    """A polynomial's values at points.

    Args:
        coefficients: 16 bytes each, that of x^0 first.
        points: small whole numbers above 0.
    """
    numbers = [int.from_bytes(c, "big") for c in reversed(coefficients)]
    results = []
    for point in points:
        shifts = [i for i in range(point.bit_length()) if point >> i & 1]
        value = 0  # as a polynomial that is reduced now and then
        for number in numbers:
            product = number
            for shift in shifts:
                product ^= value << shift
            value = product if product.bit_length() < LONGEST else _reduced(product)
        results.append(_reduced(value).to_bytes(SIZE, "big"))
    return results


def value_at_0(points: tuple[int, ...], values: Sequence[bytes]) -> bytes:
    """The value at 0 of the polynomial of least degree that has these values at these points.

    Args:
        points: different small whole numbers above 0.
        values: 16 bytes each.
    """
    bits = np.unpackbits(np.frombuffer(b"".join(values), np.uint8))
    # Sums of 0 and 1 are exact in float32 up to 2^24, and there are 128 of them a point.
    found = _matrix(points) @ bits.astype(np.float32)
    return np.packbits(found.astype(np.int64).astype(np.uint8) & 1).tobytes()


@lru_cache(maxsize=16)
def _matrix(points: tuple[int, ...]) -> np.ndarray:
    """What multiplies values, bit by bit, by their weights, and adds them up."""
    columns = [column for w in weights_at_0(points) for column in _multiples(w)]
    content = b"".join(c.to_bytes(SIZE, "big") for c in columns)
    bits: UInt8[np.ndarray, "columns 128"] = np.unpackbits(
        np.frombuffer(content, np.uint8).reshape(-1, SIZE), axis=1
    )
    return np.ascontiguousarray(bits.T.astype(np.float32))


def weights_at_0(points: Sequence[int]) -> list[int]:
    """Lagrange's weights: w_i = prod_j p_j / (p_j - p_i) over all j but i."""
    results = []
    for i, point in enumerate(points):
        above, below = 1, 1
        for j, other in enumerate(points):
            if i != j:
                above, below = _times_small(above, other), _times_small(below, other ^ point)
        results.append(_times(above, _inverse(below)))
    return results


def _multiples(number: int) -> list[int]:
    """x^127 times the number, and so on down to x^0 times it: bits of bytes come highest first."""
    results = [number]
    for _ in range(BITS - 1):
        number <<= 1
        results.append(number := number ^ _MODULUS if number & _TOP else number)
    return results[::-1]


def _times_small(number: int, small: int) -> int:
    """A product with a number of few bits."""
    result = 0
    while small:
        if small & 1:
            result ^= number
        number <<= 1
        small >>= 1
    return _reduced(result)


def _times(a: int, b: int) -> int:
    result = 0
    while b:
        low = b & -b
        result ^= a * low
        b ^= low
    return _reduced(result)


def _reduced(number: int) -> int:
    while high := number >> BITS:
        number = (number & (_TOP - 1)) ^ high ^ (high << 1) ^ (high << 2) ^ (high << 7)
    return number


def _inverse(number: int) -> int:
    """By Euclid's algorithm."""
    a, b, u, v = number, _MODULUS, 1, 0
    while a != 1:
        shift = a.bit_length() - b.bit_length()
        if shift < 0:
            a, b, u, v, shift = b, a, v, u, -shift
        a ^= b << shift
        u ^= v << shift
    return _reduced(u)
