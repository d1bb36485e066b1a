"""What a reader needs of declared facts to judge each row by itself, and the count of what misfits.

A row that has no declared class, no privacy unit where one is asked for, or another number of cells
is left out. A value that misfits is clipped if it is a number, else missing. Neither depends on any
other row. The count is private, and for the owner alone. No row may be left.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Int64

from panas.data.files.columns import Column
from panas.data.files.raw import TRAIN


@dataclass(frozen=True, kw_only=True)
class Form:
    """What is declared of data, as far as reading one of their rows takes it."""

    class_names: tuple[str, ...]
    shape: tuple[int, int, int]  # (channels, height, width) of pictures
    dtype: str  # "uint8" for pictures of bytes, "float32" for floats and deeper pictures
    unit: bool  # whether floats of pictures go from 0 to 1; if not, from -1 to 1
    bits: int  # depth of pictures of whole numbers, 8 to 16
    columns: tuple[Column, ...]  # of a table; empty for pictures

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.class_names)}

    @cached_property
    def _are_numbers(self) -> bool:
        return any(name.isdecimal() for name in self.class_names)

    def class_of(self, label: str) -> int:
        """Number of the class that a label names; -1 if none is declared so.

        A whole number, as 1.0, names class "1". Where no class has a number as its name, it is the
        class's place.
        """
        if label in self._places:
            return self._places[label]
        try:
            number = float(label)
        except ValueError:
            return -1
        if not number.is_integer():  # nor are NaN and infinity
            return -1
        if (name := str(int(number))) in self._places:
            return self._places[name]
        is_place = not self._are_numbers and 0 <= number < len(self.class_names)
        return int(number) if is_place else -1


@dataclass
class Misfits:
    """How many rows were read, left out, or changed."""

    rows: int = 0
    left_out: int = 0
    changed: int = 0
    others: list[str] = field(default_factory=list)  # what else the owner should know

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the owner, without any value of the data; none where all fits."""
        results = list(self.others)
        if self.left_out:
            results.append(
                f"{self.left_out:,} of {self.rows:,} rows do not fit the declared facts and were "
                "left out"
            )
        if self.changed:
            results.append(
                f"{self.changed:,} of {self.rows:,} rows hold values that do not fit the declared "
                "facts; these were clipped or count as missing"
            )
        return tuple(results)


def whole_units(
    groups: Int64[np.ndarray, "n"], part: Int64[np.ndarray, "n"]
) -> tuple[Int64[np.ndarray, "n"], int]:
    """The part of each row, so that no unit is in several, and of how many rows it changed.

    All rows of a unit that is in several parts train: nothing of it may be in a test. Another
    unit's rows play no part.
    """
    units, of = np.unique(groups, return_inverse=True)
    least, most = np.full(len(units), part.max(initial=TRAIN)), np.full(len(units), TRAIN)
    np.minimum.at(least, of, part)
    np.maximum.at(most, of, part)
    moved = (least != most)[of] & (part != TRAIN)
    return np.where(moved, TRAIN, part), int(moved.sum())
