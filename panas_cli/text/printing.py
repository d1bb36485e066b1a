"""Where results go: stdout; and how figures are written."""

import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDTH = 100
"""Characters of a line, where nothing says how many there are."""
LABELS = 12
"""Characters before what is told under a label."""
FOLDED = 24
"""Characters of a cell in a line, where a screen is too narrow for a table."""


def print_json(record: dict[str, Any]) -> None:
    """One JSON object on stdout, and nothing else."""
    sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")


def print_text(line: str) -> None:
    """One line on stdout."""
    sys.stdout.write(line + "\n")


def print_files(folder: Path) -> None:
    """The files of a folder, a path a line."""
    for file in sorted(p for p in folder.iterdir() if not p.name.startswith(".")):
        print_text(f"  {file}")


def console() -> Console:
    """A console of at most `WIDTH` characters a line; in a pipe COLUMNS says how many."""
    screen = Console(highlight=False, markup=False)
    if screen.is_terminal:
        return screen
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else WIDTH
    return Console(highlight=False, markup=False, width=width)


def print_words(
    text: str,
    screen: Console | None = None,
    style: str | None = None,
    indent: int | None = None,
    whole: bool = False,
) -> None:
    """A line, broken between words where it is too long, with what goes on indented.

    Args:
        text: one line.
        screen: where to; None: stdout.
        style: of rich.
        indent: spaces before what goes on; None: two more than before its beginning.
        whole: whether it stays one line where the screen is no terminal, as in a log.
    """
    screen = screen or console()
    if screen.is_terminal or not whole:
        begins = len(text) - len(text.lstrip())
        text = textwrap.fill(
            text,
            min(screen.width, WIDTH),
            subsequent_indent=" " * (begins + 2 if indent is None else indent),
            break_on_hyphens=False,
            break_long_words=False,
        )
    screen.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_label(label: str, text: str) -> None:
    """Print a text under a label, in a column of its own."""
    print_words(f"  {label:<{LABELS - 2}}{text}", indent=LABELS)


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, keys: int = 1
) -> None:
    """A table: with lines on a terminal, as aligned text elsewhere.

    Args:
        headers: one a column.
        rows: of cells, one a column.
        left: columns flush left, from the first on; the others are flush right.
        keys: first columns that every part of a wide table repeats (`print_titled`).
    """
    box = SIMPLE_HEAD if console().is_terminal else None
    table = Table(box=box, padding=(0, 2, 0, 0), pad_edge=False)
    for k, header in enumerate(headers):
        table.add_column(header, justify="left" if k < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    print_titled(table, keys)


def print_titled(table: Table, keys: int = 1) -> None:
    """A table under its title; where it is too wide, as parts below each other.

    Each part begins with the first columns, `keys` of them, which say what a line is about.
    """
    screen = console()
    if isinstance(table.title, str):
        print_words(table.title, screen, "italic" if screen.is_terminal else None)
    for part in _parts(table, keys, screen):
        screen.print(part)


def _parts(table: Table, keys: int, screen: Console) -> Iterator[Table]:
    """The table, without its title; or parts of it that a line has room for."""
    whole = list(range(len(table.columns)))
    if _width(_part(table, whole), screen) <= screen.width:
        yield _part(table, whole)
        return
    picked = whole[:keys]
    for k in whole[keys:]:
        too_wide = _width(_part(table, [*picked, k], FOLDED), screen) > screen.width
        if too_wide and len(picked) > keys:
            yield _part(table, picked, FOLDED)
            picked = whole[:keys]
        picked.append(k)
    yield _part(table, picked, FOLDED)


def _part(table: Table, picked: Sequence[int], most: int | None = None) -> Table:
    part = Table(box=table.box, padding=table.padding, pad_edge=table.pad_edge)
    columns = [table.columns[k] for k in picked]
    for c in columns:
        part.add_column(
            c.header,
            justify=c.justify,
            overflow=c.overflow,
            min_width=c.min_width,
            max_width=most,
        )
    for cells in zip(*(c.cells for c in columns), strict=True):
        part.add_row(*cells)
    return part


def _width(table: Table, screen: Console) -> int:
    """Characters that no line of the table needs more of."""
    wide = screen.options.update(max_width=10_000)
    return Measurement.get(screen, wide, table).maximum


def titled(title: str, columns: Sequence[str] = (), left: Sequence[str] = ("site",)) -> Table:
    """An empty table under a title.

    Args:
        title: above the table.
        columns: their headers.
        left: headers of columns flush left; the others are flush right.
    """
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    return table


def counted(n: int, what: str, many: str | None = None) -> str:
    """A number of things: 1 round, 2 rounds.

    Args:
        n: how many.
        what: one of them.
        many: several of them; None: `what` with an s.
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {many or what + 's'}"


def figure(x: float | str | None, digits: str = ".3f") -> str:
    """A number as text; words stay, and what is not there is a dash."""
    return "-" if x is None else x if isinstance(x, str) else format(x, digits)


def size_text(n: float) -> str:
    """A number of bytes."""
    return f"{n / 1e6:,.2f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB"
