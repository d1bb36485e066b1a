"""The macro `table`: a benchmark's table, kept as data in `results/`, as Markdown on a page.

A file `results/NAME.toml` has `command` (what makes the table again), `columns`, `rows` (lists of
texts and numbers, as they are shown), and may have `made` (when and where) and `note`.
"""

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "results"
KEYS = {"command", "columns", "rows", "made", "note"}


def define_env(env: Any) -> None:
    """Give the macros to the pages (mkdocs-macros-plugin)."""
    env.macro(table)


def table(name: str) -> str:
    """The table of `results/NAME.toml`, below it how it was made.

    Raises:
        ValueError: for an unknown key, or a row that is longer or shorter than the columns.

    """
    path = FOLDER / f"{name}.toml"
    content = tomllib.loads(path.read_text())
    columns, rows = content["columns"], content["rows"]
    if unknown := set(content) - KEYS:
        raise ValueError(f"{path}: expected the keys {sorted(KEYS)}, got {sorted(unknown)}")
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"{path}: expected {len(columns)} values a row, got {row}")
    lines = [_line(columns), _line(["---"] * len(columns)), *map(_line, rows)]
    about = [f"`{content['command']}`", *(content[k] for k in ("made", "note") if k in content)]
    return "\n".join([*lines, "", "Made by " + "; ".join(about) + "."])


def _line(values: list[Any]) -> str:
    return "| " + " | ".join(str(v).replace("|", "\\|") for v in values) + " |"
