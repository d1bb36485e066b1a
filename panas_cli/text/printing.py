"""Where results go: stdout; and how figures are written."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


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
    """A console for tables: in a pipe, which has no width, wide enough for all columns."""
    screen = Console(highlight=False, markup=False)
    return screen if screen.is_terminal else Console(highlight=False, markup=False, width=140)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """A table: with lines on a terminal, as aligned text elsewhere; `left` columns flush left."""
    screen = console()
    box = SIMPLE_HEAD if screen.is_terminal else None
    table = Table(box=box, padding=(0, 2, 0, 0), pad_edge=False)
    for k, header in enumerate(headers):
        table.add_column(header, justify="left" if k < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    screen.print(table)


def titled(title: str) -> Table:
    """An empty table under a title."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))


def counted(n: int, what: str, many: str | None = None) -> str:
    """A number of things: 1 round, 2 rounds."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {many or what + 's'}"


def json_number(x: float) -> float | str:
    """A number, or "infinity", which JSON does not have."""
    return x if math.isfinite(x) else "infinity"


def figure(x: float | str | None, digits: str = ".3f") -> str:
    """A number as text; words stay, and what is not there is a dash."""
    return "-" if x is None else x if isinstance(x, str) else format(x, digits)


def size_text(n: int) -> str:
    """A number of bytes."""
    return f"{n / 1e6:.2f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB"
