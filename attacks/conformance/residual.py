"""What is left of a release when the auditor, who holds the truth, subtracts the exact statistic.

If the claim is true, the rest over its claimed standard deviation is independent standard normal
noise: in every array, at every place, for every site and round. `attacks.conformance.noise` asks
that of one release, `attacks.conformance.company` of several.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attacks.epsilon.release import ReleaseClaim
from panas.privacy.noise import SystemNoise
from panas.privacy.release.compression import rounding
from panas.privacy.release.rows import clip_rows
from panas.privacy.unit import number_units

FINE = 0.01
"""Standard deviations of noise that rounding may come to where the shape of noise is tested."""
MOST_UNITS = 500
"""Units whose own directions are tested, at most; the first ones."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Noise in claimed standard deviations, by array and in float64."""

    arrays: Mapping[str, Float[Tensor, "..."]]
    sent: Mapping[str, Float[Tensor, "..."]]  # the numbers as they left, float32
    scales: Mapping[str, Float[Tensor, "..."]]  # the claimed standard deviations
    fine: Mapping[str, Bool[Tensor, "..."]]  # whether rounding is far below the noise
    units: Float[Tensor, "units numbers"]
    """What each unit adds to all arrays, flat, in standard deviations; no row of one of no norm."""
    rows: Float[Tensor, "rows d"]  # representations as the mechanism clips them, none of zeros
    compressed: bool = False  # whether the last bits of `sent` are zeros of its compression

    @classmethod
    def of_noise(cls, arrays: Mapping[str, Float[Tensor, "..."]]) -> "Residual":
        """Noise that is known alone: how it was rounded, and of which samples, is not."""
        nothing = torch.zeros(0, 0, dtype=torch.float64)
        fine = {name: torch.ones_like(z, dtype=torch.bool) for name, z in arrays.items()}
        return cls(arrays=arrays, sent={}, scales={}, fine=fine, units=nothing, rows=nothing)

    @cached_property
    def directions(self) -> Float[Tensor, "rows d"]:
        """The rows at norm 1."""
        return self.rows / self.rows.norm(dim=1, keepdim=True)

    @cached_property
    def flat(self) -> Float[Tensor, "numbers"]:
        """All arrays in one row, by the order of their names."""
        return torch.cat([self.arrays[name].flatten() for name in sorted(self.arrays)])

    @cached_property
    def all_fine(self) -> Bool[Tensor, "numbers"]:
        """`fine` of the numbers of `flat`."""
        return torch.cat([self.fine[name].flatten() for name in sorted(self.fine)])


def residual_of(claim: ReleaseClaim) -> Residual:
    """The noise that a release turned out to have."""
    exact, s = claim.again(claim.truth, 0.0, SystemNoise()), claim.scale
    arrays, fine, sent, scales = {}, {}, {}, {}
    for name, spread in claim.spread.items():
        sent[name], of_each = claim.arrays[name], s * spread
        scales[name] = of_each
        arrays[name] = (sent[name].double() - exact[name].double()) / of_each
        moved = sent[name].double().abs() * 2.0**-23
        if claim.compression != "none":
            moved = moved + rounding(sent[name], claim.compression)
        fine[name] = moved / of_each < FINE
    rows = clip_rows(claim.truth.z[:MOST_UNITS].double())
    return Residual(
        arrays=arrays,
        sent=sent,
        scales=scales,
        fine=fine,
        units=units_of(claim),
        rows=rows[rows.norm(dim=1) > 0],
        compressed=claim.compression != "none",
    )


def units_of(claim: ReleaseClaim) -> Float[Tensor, "units numbers"]:
    """What each of the first `MOST_UNITS` units adds, in standard deviations of the noise.

    A unit of several rows is weighed as a whole: its direction is that of its rows' sum.
    """
    rows, spread = claim.truth, claim.spread
    units = torch.arange(len(rows.z)) if rows.groups is None else number_units(rows.groups)
    some = units < MOST_UNITS
    u, y, unit = clip_rows(rows.z[some].double()), rows.y[some], units[some]
    parts = []
    for name in sorted(spread):
        each = _added(name, u, y, claim.classes) / (claim.scale * spread[name]).flatten()
        total = torch.zeros(int(unit.max()) + 1, each.shape[1], dtype=each.dtype)
        parts.append(total.index_add_(0, unit, each))
    every = torch.cat(parts, dim=1)
    return every[every.norm(dim=1) > 0]


def _added(
    name: str, u: Float[Tensor, "n d"], y: Int[Tensor, "n"], classes: int
) -> Float[Tensor, "n k"]:
    """What each row adds to an array of a noised release: products A, counts, or sums by class."""
    n, d = u.shape
    of_class = F.one_hot(y, classes).double()
    if name == "A":
        row, column = torch.triu_indices(d, d)
        return u[:, row] * u[:, column]
    if name == "counts":
        return of_class
    return (of_class[:, :, None] * u[:, None, :]).reshape(n, -1)
