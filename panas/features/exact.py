"""Sums whose every number depends on its own row alone, bit for bit.

A sum of floating-point numbers depends on its order. Libraries pick the order by the number of
rows, so that one sample more changes the last bits of others, and a map of cancelling numbers
makes directions of those bits. Here both factors of a product become whole numbers:

| symbol | meaning |
|---|---|
| b | bits of a matrix's numbers, relative to the largest of their column |
| a | bits of a row's numbers, relative to the largest of the row: a = 53 - b - log2 f, 30 at most |

A sum of f products is then a whole number of at most 2^53 (`LARGEST`). Float64 holds all of these
exactly: every order, block, thread and fused operation gives the same bits. What else is computed
of a row takes single additions, products, divisions and square roots, which IEEE 754 rounds alike
in vectors and alone. A row that is not finite has results that are not, and changes no other.

`MapCost` is what a feature map needs in time and memory, from its sizes alone.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from panas.runtime.seeds import one_thread

BITS = 53  # of whole numbers that float64 holds
LARGEST = 2.0**BITS
MOST_ROW_BITS, FLOAT_BITS = 30, 24
SINE = [(-1) ** k * (2 * math.pi) ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(7)]
"""Terms of the series of a sine, of turns, by every second power."""
VECTOR = 32  # numbers that a loop works off at once, at most
LEAST = 1e-280  # a row whose largest number is below this is multiplied as if it were this


@dataclass(frozen=True)
class WholeMatrix:
    """A matrix as whole numbers (float64) and, for each column, how much one step is."""

    steps: Float[Tensor, "f d"]
    step: Float[Tensor, "d"]
    bits: int

    @staticmethod
    def of(matrix: Float[Tensor, "f d"], bits: int) -> "WholeMatrix":
        """A finite matrix, rounded to `bits` bits and a sign relative to each column's largest."""
        wide = matrix.detach().double()
        largest = wide.abs().amax(0) if len(wide) else wide.new_zeros(wide.shape[1])
        step = significant(largest.clamp(min=LEAST), 1, up=True) * 2.0**-bits
        return WholeMatrix((wide / step).round(), step, bits)

    @property
    def row_bits(self) -> int:
        """Bits a, of the rows that it multiplies."""
        f = max(1, len(self.steps))
        return max(1, min(MOST_ROW_BITS, BITS - self.bits - math.ceil(math.log2(f))))

    def after(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        """The product of rows and this matrix, float64; a row has its bits whatever the others."""
        wide = x.detach().double()
        if not wide.numel():
            return wide.new_zeros(len(wide), self.steps.shape[1])
        scale = 2.0**self.row_bits / wide.abs().amax(1, keepdim=True).clamp(min=LEAST)
        return ((wide * scale).round() @ self.steps) * self.step / scale

    def after_bounded(self, x: Float[Tensor, "n f"], largest: float) -> Float[Tensor, "n d"]:
        """The same, and faster, for float32 rows, which are cut to plus and minus `largest`."""
        scale = 2.0 ** (min(FLOAT_BITS, self.row_bits) - math.ceil(math.log2(largest)))
        whole = x.detach().clamp(-largest, largest).mul_(scale).round_().double()
        return (whole @ self.steps).mul_(self.step / scale)


def product(x: Float[Tensor, "n f"], matrix: Float[Tensor, "f d"]) -> Float[Tensor, "n d"]:
    """x times a finite matrix, with as many bits for the matrix as for the rows; float64."""
    bits = (BITS - math.ceil(math.log2(max(1, len(matrix))))) // 2
    return WholeMatrix.of(matrix, min(bits, MOST_ROW_BITS)).after(x)


def row_sums(x: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """The sum of each row, added pair by pair in an order that its width alone decides."""
    width = 1 << max(0, x.shape[1] - 1).bit_length()
    x = F.pad(x, (0, width - x.shape[1]))
    while width > 1:
        width //= 2
        x = x[:, :width] + x[:, width:]
    return x[:, 0]


def row_norms(x: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """The Euclidean norm of each row, float64."""
    wide = x.double()
    return row_sums(wide * wide).sqrt()


def significant(x: Tensor, bits: int, *, up: bool = False) -> Tensor:
    """Numbers rounded to so many significant bits; float64.

    Results of two machines that differ in the last bits are equal then, but by a rare accident.

    Args:
        x: finite numbers of any shape.
        bits: of the result, 1 to 53.
        up: round to no less; else to the nearest.
    """
    mantissa, exponent = torch.frexp(x.double())
    whole = mantissa * 2.0**bits
    return _ldexp((whole.ceil() if up else whole.round()) * 2.0**-bits, exponent)


def on_grid(x: Tensor, step: float) -> Tensor:
    """Numbers rounded to the nearest whole step, a power of two, in their own type."""
    return (x / step).round() * step


def _ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """x times 2^exponent, float64, in two steps: one alone may be too large or small a number."""
    half = exponent.div(2, rounding_mode="floor")
    return x * _power(half) * _power(exponent - half)


def _power(exponent: Tensor) -> Tensor:
    """2^exponent of whole numbers in -1022 to 1023, put together from its bits: exact."""
    return ((exponent.long() + 1023) << 52).view(torch.float64)


def cosines(turns: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Cosines of angles in whole turns, float32, to 3e-7.

    Libraries work off the last numbers of an array by another formula than the others, and differ
    among each other. This one is the series of -sin(2 pi (|t| - 1/4)), in single operations.
    """
    turns = turns - turns.round()
    quarter = turns.float().abs_().sub_(0.25)
    square = quarter * quarter
    series = square * SINE[-1]
    for term in SINE[-2:0:-1]:
        series.add_(term).mul_(square)
    return series.add_(SINE[0]).mul_(quarter).neg_()


def logs(x: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Natural logarithms of numbers above 0; padding keeps all in whole vectors."""
    with one_thread():
        return F.pad(x, (0, -x.shape[1] % VECTOR), value=1.0).log()[:, : x.shape[1]]


def filled(x: Shaped[Tensor, "n ..."], size: int) -> Shaped[Tensor, "size ..."]:
    """Samples, and zeros up to so many: libraries choose a kernel by the size of a batch."""
    return torch.cat([x, x.new_zeros(size - len(x), *x.shape[1:])])


CHUNK_BYTES = 8 << 20
"""Beside its input and output a map needs about so much at once, or what one row needs: more does
not stay in a processor's caches, and is slower."""


@dataclass(frozen=True, kw_only=True)
class MapCost:
    """What it takes to map rows; all of it follows from public facts."""

    macs: int  # multiply-accumulates a row
    row_bytes: int  # at once for a row, about, beside its input and output
    most_rows: int  # that are worth working off at once
    fixed_bytes: int  # of the map itself

    @property
    def chunk(self) -> int:
        """Rows at a time: no row depends on how many they are."""
        return max(1, min(self.most_rows, CHUNK_BYTES // max(1, self.row_bytes)))
