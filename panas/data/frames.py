"""Rows to classify as a program holds them: mappings, or a data frame of any library.

A frame is anything with `columns` and columns by name that are arrays or have `to_numpy`, as those
of pandas and polars. Its cells are read as those of its `.csv` would be.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from panas.data.facts import Facts
from panas.data.files.cells import Cells
from panas.data.files.dialect import Style
from panas.data.files.raw import Raw
from panas.runtime.errors import BadInput

ABSENT = ("NAType", "NaTType")  # of pandas, by the names of their types


def is_frame(data: Any) -> bool:
    """Whether data are a data frame."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__") and hasattr(data, "shape")


def rows_of_mappings(rows: Sequence[Any], facts: Facts) -> Raw:
    """Rows as mappings from column to cell; BadInput if they do not fit the facts."""
    if not all(isinstance(row, Mapping) for row in rows):
        raise BadInput(
            "expected rows as mappings from column to cell, a data frame or the path of a table, "
            f"got {type(rows[0]).__name__}; convert them"
        )

    def cells(name: str) -> Iterator[Any]:
        for row in rows:
            if name not in row:
                raise BadInput(f"expected a cell of column {name!r} in each row, got none")
            yield row[name]

    return rows_of(
        [_column(cells(c.name), c.name, c.kind == "text") for c in facts.columns],
        range(len(rows)),
        "the data",
        facts,
    )


def rows_of_frame(frame: Any, facts: Facts) -> Raw:
    """Rows of a data frame; BadInput if it lacks a column of the facts, or has no row."""
    names = [str(name) for name in frame.columns]
    if missing := next((c.name for c in facts.columns if c.name not in names), None):
        raise BadInput(
            f"expected the columns that the network has learnt from in the data frame, got none "
            f"{missing!r:.80}; add it (cells may be empty)"
        )
    labels = list(frame.columns)
    columns = []
    for c in facts.columns:
        values = frame[labels[names.index(c.name)]]
        values = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
        columns.append(_column(iter(values), c.name, c.kind == "text"))
    if not frame.shape[0]:
        raise BadInput("expected rows to classify, got none; add some")
    return rows_of(columns, range(int(frame.shape[0])), "the data frame", facts)


def _column(cells: Iterator[Any], name: str, texts: bool) -> Cells:
    column = Cells(name, texts=texts, style=Style())
    for cell in cells:
        column.add(_text(cell))
    return column


def _text(cell: Any) -> str:
    """A cell as a .csv has it."""
    if cell is None or type(cell).__name__ in ABSENT:
        return ""
    if isinstance(cell, np.datetime64):
        return "" if np.isnat(cell) else str(cell.astype("datetime64[us]").item())
    if isinstance(cell, float | np.floating) and math.isnan(cell):
        return ""
    return str(cell)


def rows_of(cells: Sequence[Cells], lines: Sequence[int], called: str, facts: Facts) -> Raw:
    """Rows without labels, of their cells.

    Args:
        cells: each column of the facts, in their order, with as many cells as there are lines.
        lines: numbers of the rows, for messages.
        called: name of the table in them.
        facts: of the network's data.
    """
    kinds, texts, values = {}, {}, []
    for column in cells:
        kinds[column.name], x, known = column.column(lines, called)
        values.append(x)
        if known:
            texts[column.name] = known
    names, y = tuple(column.name for column in cells), np.zeros(len(lines), np.int64)
    return Raw(np.stack(values, axis=1), y, facts.class_names, names, kinds=kinds, texts=texts)
