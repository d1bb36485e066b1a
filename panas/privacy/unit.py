"""The privacy unit: what neighbouring data sets differ in, with all the samples it has.

One sample, or one group of them, say a patient's. Sampling, clipping and releases see units, so
that what is promised holds for a whole one, however many samples it has.
"""

import torch
from jaxtyping import Int, Int64
from torch import Tensor

from panas.runtime.errors import BadInput


def unit_name(column: str | None = None) -> str:
    """What one unit is, in words; `column` names the group column, None is for no groups."""
    return "one training sample" if column is None else f"one group: {column}"


def check_unit(unit: str, groups: Int64[Tensor, "n"] | None) -> None:
    """Refuse to read samples without their groups where an account promises to protect groups."""
    if unit != unit_name() and groups is None:
        raise BadInput(
            f"expected the groups of the samples, as the ledger's unit is {unit!r}, got none; name "
            "the group column of the data"
        )


def planned_units(noised: float, deviation: float) -> int:
    """A number of units to plan with, from a noised one with noise of this standard deviation.

    At least that deviation, and 1: batches and rates are set by it, and noise alone may not ask for
    steps of many times their size. Two digits of it count.
    """
    number = max(1, round(max(noised, deviation)))
    coarse = 10 ** max(0, len(str(number)) - 2)
    return round(number / coarse) * coarse


def number_units(groups: Int64[Tensor, "n"]) -> Int64[Tensor, "n"]:
    """Each sample's unit as 0, 1, ..., in the order in which the units first appear."""
    _, result = groups.unique(return_inverse=True)
    first = torch.full((len(groups),), len(groups)).scatter_reduce(
        0, result, torch.arange(len(groups)), reduce="amin"
    )
    return first.argsort().argsort()[result]


def rows_of(units: Int64[Tensor, "n"], drawn: Int[Tensor, "k"]) -> Int64[Tensor, "b"]:
    """The positions of all samples of the drawn units, in the samples' order."""
    return torch.isin(units, drawn).nonzero().flatten()


def members(groups: Int64[Tensor, "n"] | None) -> list[Int64[Tensor, "m"]]:
    """The positions of each unit's samples, for the units of two samples or more."""
    if groups is None:
        return []
    units = number_units(groups)
    order, sizes = units.argsort(stable=True), torch.bincount(units).tolist()
    return [rows for rows in order.split(sizes) if len(rows) > 1]
