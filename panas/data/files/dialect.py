"""How a table writes numbers and dates, and whether it has a header; its owner declares it.

| `numbers` | read as a thousand and a half |
|---|---|
| None, columns parted by commas | `1,000.5` |
| None, parted by other characters | `1000.5` and `1000,5` |
| `1,234.5` | `1,000.5` |
| `1.234,5` | `1.000,5` |

Spaces and apostrophes part thousands everywhere. A percent sign or a currency's is left out.

| `dates` | read as the last day of January |
|---|---|
| `iso` | `2020-01-31` and `31.01.2020` |
| `us` | these and `1/31/2020` |
| `eu` | these and `31/1/2020` |

How a cell is read follows from the cell and its table's dialect alone.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Literal, get_args

from panas.runtime.errors import BadInput

Dates = Literal["iso", "us", "eu"]
Numbers = Literal["1,234.5", "1.234,5"]
Delimiter = Literal[",", ";", "\t", "|"]
KEYS = ("dates", "numbers", "header", "delimiter", "texts")
SECONDS = 86_400.0  # of a day

CURRENCIES = "$€£¥₹"
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
THOUSANDS = {
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?"),
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?"),
}
SPACED = re.compile(r"[+-]?[1-9]\d{0,2}([ '\u2019\u00a0\u202f]\d{3})+([.,]\d*)?")
SPACES = re.compile(r"[ '\u2019\u00a0\u202f]")

TIME = r"( \d{1,2}:\d{2}(:\d{2})?( ?[AaPp][Mm])?)?"
DATE = re.compile(
    rf"\d{{4}}[-/]\d{{1,2}}[-/]\d{{1,2}}([T ].*)?|\d{{1,2}}[./]\d{{1,2}}[./]\d{{4}}{TIME}"
)
DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
WITH_SLASHES = re.compile(rf"(\d{{1,2}})/(\d{{1,2}})/(\d{{4}}){TIME}")
TIMES = ("%H:%M", "%H:%M:%S", "%I:%M%p", "%I:%M:%S%p")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a table is written."""

    dates: Dates = "iso"
    numbers: Numbers | None = None  # None: as the delimiter suggests
    header: bool = True  # else columns are named by their numbers, from 1
    delimiter: Delimiter | None = None
    """None: as the header suggests; without a header a comma, in .tsv files a tab."""

    def __post_init__(self) -> None:
        for what, value, choices in (
            ("dates of a table", self.dates, get_args(Dates)),
            ("numbers of a table", self.numbers, (None, *get_args(Numbers))),
            ("columns of a table", self.delimiter, (None, *get_args(Delimiter))),
        ):
            if value not in choices:
                named = " or ".join(repr(choice) for choice in choices if choice)
                raise BadInput(f"expected {what} with {named}, got {value!r:.80}; change it")


PLAIN = Dialect()
"""Of a table of which nothing is said."""


@dataclass(frozen=True)
class Style:
    """How the cells of one table are written."""

    dates: Dates = "iso"
    decimal: Literal[".", ",", ".,"] = "."
    """What parts fractions; the other one parts thousands. Of both, neither does."""


def style_of(dialect: Dialect, delimiter: str) -> Style:
    """The style of cells between such delimiters."""
    if dialect.numbers is not None:
        return Style(dialect.dates, "." if dialect.numbers == "1,234.5" else ",")
    return Style(dialect.dates, "." if delimiter == "," else ".,")


def dialect_of(given: Mapping[str, str | Sequence[str]]) -> tuple[Dialect, tuple[str, ...]]:
    """A dialect and columns to read as texts, from the words of a user.

    Args:
        given: values of `KEYS`; `header` is yes or no.
    """
    if unknown := sorted(set(given) - set(KEYS)):
        raise BadInput(f"expected {', '.join(KEYS)} of a table, got {unknown[0]!r:.80}; drop it")
    words = {key: value for key, value in given.items() if key != "texts"}
    if wrong := next((key for key, value in words.items() if not isinstance(value, str)), None):
        raise BadInput(f"expected one word as {wrong} of a table, got several; keep one")
    if words.get("header", "yes") not in ("yes", "no"):
        raise BadInput(f"expected header yes or no, got {words['header']!r:.80}; change it")
    words["header"] = words.get("header", "yes") == "yes"  # type: ignore[assignment]
    texts = given.get("texts", ())
    names = (texts,) if isinstance(texts, str) else tuple(texts)
    return Dialect(**words), names  # type: ignore[arg-type]


def number_of(text: str, style: Style) -> tuple[float, str]:
    """A number and its sign of a unit, % or a currency's, or ""; ValueError for any other text."""
    if style.decimal != ",":
        with suppress(ValueError):
            return float(text), ""
    mark, bare = _unmarked(text)
    return _plain(bare, style), mark


def _unmarked(text: str) -> tuple[str, str]:
    sign, bare = ("-" if text[0] == "-" else "", text[1:]) if text[:1] in ("+", "-") else ("", text)
    bare = bare.strip()
    if bare[:1] and bare[0] in CURRENCIES:
        mark, bare = bare[0], bare[1:].strip()
    elif bare[-1:] and bare[-1] in f"{CURRENCIES}%":
        mark, bare = bare[-1], bare[:-1].strip()
    else:
        return "", text
    if sign and bare[:1] in ("+", "-"):
        raise ValueError("two signs")
    return mark, sign + bare


def _plain(text: str, style: Style) -> float:
    core = SPACES.sub("", text) if SPACED.fullmatch(text) else text
    if style.decimal == ".":
        return float(core.replace(",", "") if THOUSANDS[","].fullmatch(core) else core)
    if style.decimal == "," and "." in core:
        if not THOUSANDS["."].fullmatch(core):
            raise ValueError("no thousands")
        core = core.replace(".", "")
    return float(core.replace(",", ".") if DECIMAL_COMMA.fullmatch(core) else core)


def is_grouped(text: str) -> bool:
    """Whether a number has commas that part thousands, and nothing else that says so."""
    return bool(re.fullmatch(r"[1-9]\d{0,2},\d{3}", _unmarked(text)[1].lstrip("+-")))


def day_of(text: str, style: Style) -> float:
    """Days since 1970 of a date; ValueError for any other text."""
    day_first = DAY_FIRST.fullmatch(text)
    slashes = WITH_SLASHES.fullmatch(text) if style.dates != "iso" else None
    if day_first:
        text = "-".join(part.zfill(2) for part in reversed(day_first.groups()))
    if slashes:
        first, second, year = (int(part) for part in slashes.groups()[:3])
        month, day = (first, second) if style.dates == "us" else (second, first)
        date = datetime.combine(datetime(year, month, day), _time(slashes[4] or ""))
    else:
        date = datetime.fromisoformat(text.replace("/", "-"))
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return date.timestamp() / SECONDS


def _time(text: str) -> time:
    """A time of a day, as 13:05 or 1:05 PM; midnight for none."""
    bare = text.replace(" ", "").upper()
    for form in TIMES if bare else ():
        try:
            return datetime.strptime(bare, form).time()
        except ValueError:
            continue
    if bare:
        raise ValueError("no time")
    return time()
