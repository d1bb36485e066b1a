"""What templates show besides text: tables and pictures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from markupsafe import Markup

from panas_cli.text.ending import odds_text


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; the first cell of a row is its header."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1  # columns flush left: those of words
    strong_last: bool = False  # whether the last row is a mean of the others
    prose: bool = False  # whether cells hold sentences
    about: str = ""  # of which site or part, where several have such a table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture with its caption."""

    picture: Markup
    caption: str


def share(value: float | None) -> str:
    """An accuracy, or another figure in [0, 1]."""
    return "-" if value is None or math.isnan(value) else f"{value:.3f}"


def odds_words(epsilon: float) -> str:
    """e^epsilon, rounded up: 55, 3,000, 9 million."""
    odds = math.exp(min(epsilon, 300))
    for power, word in ((9, "billion"), (6, "million")):
        if odds >= 10**power:
            many = math.ceil(odds / 10**power)
            return f"{many:,} {word}" if many < 1000 or power == 6 else f"over 1,000 {word}"
    return odds_text(odds)


def epsilon_text(value: float) -> str:
    """An epsilon to two digits after the point."""
    return "infinity" if math.isinf(value) else f"{value:.2f}"


def names_text(names: Sequence[str], most: int = 3) -> str:
    """Names between commas, of many the first ones and their number."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def without_folders(name: str) -> str:
    """A data set's name; of a path its last part, since the rest tells of a machine."""
    return PurePath(name).name if "/" in name or "\\" in name else name
