"""The cells of one column, as they are read: numbers, dates or texts.

A column holds one of them throughout, besides missing cells. Errors name the column and a row, and
never a cell.
"""

import array
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from panas.data.files.columns import Column, Kind
from panas.data.files.dialect import DATE, Style, day_of, is_grouped, number_of
from panas.runtime.errors import BadInput

MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "?", "-"))
LARGEST_VALUE = 1e100  # the square of a number must not overflow
AS_TEXTS = "data.table.texts (at a site --texts)"
AS_NUMBERS = "data.table.numbers (at a site --numbers)"
AS_DATES = "data.table.dates (at a site --dates)"


class Cells:
    """Collects a column.

    Args:
        name: of the column.
        texts: whether every cell is a text, even where it holds a number.
        style: how numbers and dates are written.
    """

    def __init__(self, name: str, *, texts: bool, style: Style) -> None:
        self.name, self._all_texts, self._style = name, texts, style
        self._values = array.array("d")  # numbers, and places of texts
        self._codes: dict[str, int] = {}
        self._is_text = bytearray()
        self._marks = set[str]()  # of numbers: % or a currency's sign, "" for none
        self._is_grouped = False  # whether a comma is taken to part thousands

    def add(self, cell: str) -> None:
        """One more cell."""
        text = cell.strip()
        number, code = math.nan, -1
        if text.lower() not in MISSING:
            try:
                if self._all_texts:
                    raise ValueError
                number, mark = number_of(text, self._style)
                number = math.inf if math.isnan(number) else number
                self._marks.add(mark)
                self._is_grouped |= "," in text and self._style.decimal == "." and is_grouped(text)
            except ValueError:
                code = self._codes.setdefault(text, len(self._codes))
        self._values.append(number if code < 0 else code)
        self._is_text.append(code >= 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the table's owner should know of how the column was read."""
        if self._is_grouped:
            return (
                f"column {self.name!r}: commas part thousands; where they part fractions, set "
                f"{AS_NUMBERS} to '1.234,5'",
            )
        if (
            self._codes
            and not self._all_texts
            and (self._are_numbers(".") or self._are_numbers(","))
        ):
            return (
                f"column {self.name!r} seems to hold numbers in another form; say which by "
                f"{AS_NUMBERS}, '1,234.5' or '1.234,5'",
            )
        return ()

    def _are_numbers(self, decimal: Literal[".", ","]) -> bool:
        """Whether all texts were numbers, if this character parted fractions."""
        style = Style(decimal=decimal)
        try:
            return all(math.isfinite(number_of(text, style)[0]) for text in self._codes)
        except ValueError:
            return False

    def column(self, lines: Sequence[int], place: str) -> tuple[Kind, np.ndarray, tuple[str, ...]]:
        """Kind, values (n,) with NaN where missing, and texts by their code.

        `lines` are the numbers of the rows of the table at `place`.
        """
        values = np.array(self._values)
        is_text = np.frombuffer(bytes(self._is_text), bool)
        texts = tuple(self._codes)
        if texts and not self._all_texts:
            if not np.all(is_text | np.isnan(values)):
                raise BadInput(
                    f"expected numbers, dates or texts in column {self.name!r} of {place}, got "
                    f"numbers and texts (row {int(lines[int(is_text.argmax())])}); mend it, drop "
                    f"it, take all as texts by {AS_TEXTS}, or say how numbers are written by "
                    f"{AS_NUMBERS}"
                )
            if any(DATE.fullmatch(text) for text in texts):
                days = np.array([self._day(text, place) for text in texts])
                values[is_text] = days[values[is_text].astype(np.int64)]
                return "date", values, ()
        if texts:
            return "text", values, texts
        if len(self._marks) > 1 and ("%" in self._marks or len(self._marks - {""}) > 1):
            raise BadInput(
                f"expected one unit in column {self.name!r} of {place}, got numbers with different "
                "signs, or some without %; convert them"
            )
        for row in np.flatnonzero(np.abs(values) >= LARGEST_VALUE)[:1]:
            raise BadInput(
                f"expected finite numbers in column {self.name!r} of {place}, got another in row "
                f"{lines[int(row)]}; mend it, or leave the cell empty"
            )
        return "number", values, ()

    def _day(self, text: str, place: str) -> float:
        try:
            return day_of(text, self._style)
        except ValueError as error:
            raise BadInput(
                f"expected dates as 2020-01-31 or 31.01.2020 in all of column {self.name!r} of "
                f"{place}, got others; set {AS_DATES} to us for 1/31/2020 or eu for 31/1/2020, or "
                f"name the column in {AS_TEXTS}"
            ) from error


class DeclaredCells:
    """Collects a column of a declared kind; what becomes of a cell follows from it alone.

    A text or a date in a column of numbers is missing, and so is a cell that is not UTF-8 (decoded
    with `surrogateescape`). Numbers are clipped to 1e100, either way.
    """

    def __init__(self, column: Column, *, style: Style) -> None:
        self.column, self._style = column, style
        self._values = array.array("d")
        self._codes: dict[str, int] = {}

    def add(self, cell: str) -> bool:
        """One more cell; whether it fits the column's kind."""
        text = cell.strip()
        value = math.nan if text.lower() in MISSING else self._value(text)
        self._values.append(math.nan if value is None else value)
        return value is not None and abs(value) != LARGEST_VALUE

    def _value(self, text: str) -> float | None:
        """A number, days since 1970, or the place of a text; None for what misfits."""
        if not is_decoded(text):
            return None
        if self.column.kind == "text":
            return float(self._codes.setdefault(text, len(self._codes)))
        try:
            if self.column.kind == "date":
                return day_of(text, self._style)
            number, _ = number_of(text, self._style)
        except (ValueError, OverflowError):
            return None
        if not math.isfinite(number):
            return None
        return min(max(number, -LARGEST_VALUE), LARGEST_VALUE)

    @property
    def values(self) -> np.ndarray:
        """Values (n,) with NaN where missing; a text is its place in `texts`."""
        return np.array(self._values)

    @property
    def texts(self) -> tuple[str, ...]:
        """Different texts, in the order of their first rows."""
        return tuple(self._codes)


def is_decoded(text: str) -> bool:
    """Whether a text was all UTF-8 where `surrogateescape` has decoded it."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
