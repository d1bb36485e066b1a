"""The cells of one column, as they are read: numbers, dates or texts.

A column holds one of them throughout, besides missing cells. Errors name the column and a row, and
never a cell.
"""

import array
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from panas.data.files.columns import Column, Kind
from panas.runtime.errors import BadInput

MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "?", "-"))
LARGEST_VALUE = 1e100  # the square of a number must not overflow
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{4}")
SECONDS = 86_400.0  # of a day


class Cells:
    """Collects a column.

    Args:
        name: of the column.
        texts: whether every cell is a text, even where it holds a number.
        commas: whether numbers may have decimal commas.
    """

    def __init__(self, name: str, *, texts: bool, commas: bool) -> None:
        self.name, self._all_texts, self._commas = name, texts, commas
        self._values = array.array("d")  # numbers, and places of texts
        self._codes: dict[str, int] = {}
        self._is_text = bytearray()

    def add(self, cell: str) -> None:
        """One more cell."""
        text = cell.strip()
        number, code = math.nan, -1
        if text.lower() not in MISSING:
            try:
                if self._all_texts:
                    raise ValueError
                number = float(text)
                number = math.inf if math.isnan(number) else number
            except ValueError:
                code = self._codes.setdefault(text, len(self._codes))
        self._values.append(number if code < 0 else code)
        self._is_text.append(code >= 0)

    def column(self, lines: Sequence[int], place: str) -> tuple[Kind, np.ndarray, tuple[str, ...]]:
        """Kind, values (n,) with NaN where missing, and texts by their code.

        `lines` are the numbers of the rows of the table at `place`.
        """
        values = np.array(self._values)
        is_text = np.frombuffer(bytes(self._is_text), bool)
        texts = tuple(self._codes)
        if texts and not self._all_texts:
            if self._commas and all(DECIMAL_COMMA.fullmatch(text) for text in texts):
                numbers = np.array([float(text.replace(",", ".")) for text in texts])
                values[is_text] = numbers[values[is_text].astype(np.int64)]
                texts = ()
            elif not np.all(is_text | np.isnan(values)):
                raise BadInput(
                    f"expected numbers, dates or texts in column {self.name!r} of {place}, got "
                    f"numbers and texts (row {int(lines[int(is_text.argmax())])}); mend it, drop "
                    "it, or name it in data.texts to take all as texts"
                )
            elif any(DATE.fullmatch(text) for text in texts):
                days = np.array([self._day(text, place) for text in texts])
                values[is_text] = days[values[is_text].astype(np.int64)]
                return "date", values, ()
        if texts:
            return "text", values, texts
        for row in np.flatnonzero(np.abs(values) >= LARGEST_VALUE)[:1]:
            raise BadInput(
                f"expected finite numbers in column {self.name!r} of {place}, got another in row "
                f"{lines[int(row)]}; mend it, or leave the cell empty"
            )
        return "number", values, ()

    def _day(self, text: str, place: str) -> float:
        try:
            return _day(text)
        except ValueError as error:
            raise BadInput(
                f"expected dates as 2020-01-31 or 31.01.2020 in all of column {self.name!r} of "
                f"{place}, got others; convert them, or name it in data.texts"
            ) from error


class DeclaredCells:
    """Collects a column of a declared kind; what becomes of a cell follows from it alone.

    A text or a date in a column of numbers is missing, and so is a cell that is not UTF-8 (decoded
    with `surrogateescape`). Numbers are clipped to 1e100, either way.
    """

    def __init__(self, column: Column, *, commas: bool) -> None:
        self.column, self._commas = column, commas
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
                return _day(text)
            comma = self._commas and DECIMAL_COMMA.fullmatch(text)
            number = float(text.replace(",", ".") if comma else text)
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


def _day(text: str) -> float:
    """Days since 1970 of a date; ValueError for any other text."""
    day_first = DAY_FIRST.fullmatch(text)
    if day_first:
        text = "-".join(part.zfill(2) for part in reversed(day_first.groups()))
    date = datetime.fromisoformat(text.replace("/", "-"))
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return date.timestamp() / SECONDS
