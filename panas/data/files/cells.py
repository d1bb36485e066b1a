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

from panas.data.files.columns import Kind
from panas.runtime.errors import BadInput

MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "?", "-"))
LARGEST_VALUE = 1e100  # the square of a number must not overflow
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{4}")
SECONDS = 86_400.0  # of a day


class Cells:
    """Collects a column; `commas` says that a comma may stand for a decimal point in it."""

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
                raise self._mixed("numbers and texts", int(lines[int(is_text.argmax())]), place)
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

    def _mixed(self, what: str, line: int, place: str) -> BadInput:
        return BadInput(
            f"expected numbers, dates or texts in column {self.name!r} of {place}, got {what} "
            f"(row {line}); mend it, drop it, or name it in data.texts to take all as texts"
        )

    def _day(self, text: str, place: str) -> float:
        """Days since 1970."""
        day_first = DAY_FIRST.fullmatch(text)
        if day_first:
            text = "-".join(part.zfill(2) for part in reversed(day_first.groups()))
        try:
            date = datetime.fromisoformat(text.replace("/", "-"))
        except ValueError as error:
            raise BadInput(
                f"expected dates as 2020-01-31 or 31.01.2020 in all of column {self.name!r} of "
                f"{place}, got others; convert them, or name it in data.texts"
            ) from error
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return date.timestamp() / SECONDS
