"""Where results go: stdout."""

import json
import sys
from typing import Any

from rich.console import Console


def print_json(record: dict[str, Any]) -> None:
    """One JSON object on stdout, and nothing else."""
    sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")


def print_text(line: str) -> None:
    """One line on stdout."""
    sys.stdout.write(line + "\n")


def console() -> Console:
    """A console for tables: in a pipe, which has no width, wide enough for all columns."""
    screen = Console(highlight=False, markup=False)
    return screen if screen.is_terminal else Console(highlight=False, markup=False, width=140)
