"""Tables read row by row, by what their owner has declared: no row decides about another."""

import array
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from panas.data.files.cells import MISSING, DeclaredCells, is_decoded
from panas.data.files.declared import Form, Misfits
from panas.data.files.raw import Raw, one_line, row_hashes
from panas.data.files.tables import Header, TableColumns, read_header
from panas.runtime.errors import BadInput


def read_table_rows(path: Path, form: Form, named: TableColumns) -> Raw:
    """Read an owner's table row by row, by the declared columns and classes; y is as declared.

    A row with another number of cells, without a declared class, or without the group that is asked
    for is left out: as a unit of its own it could be one more unit of somebody who has others. A
    cell that misfits its column's kind is missing, and too large a number is clipped. Columns that
    are not declared are not read, and counted in `notes`.

    A row is one record of CSV: a quote that is never closed takes the lines after it into its own
    record. BadInput is for what no row can change: no readable file, a header with a name twice or
    without a declared column, or without the label, or the group that is asked for.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            header, rows = read_header(path, file, named)
            return _read_rows(path, form, header, rows)
    except (OSError, csv.Error) as error:  # of the header: those of rows are left out
        raise BadInput(f"expected a UTF-8 table at {path}, got: {one_line(error)}") from error


def _read_rows(path: Path, form: Form, header: Header, rows: Iterator[list[str]]) -> Raw:
    indices = _declared_places(path, form, header)
    commas = header.delimiter != ","
    cells = [DeclaredCells(column, commas=commas) for column in form.columns]
    misfits, classes, groups = Misfits(), array.array("q"), list[bytes]()
    label, group = header.special["label"], header.special.get("group")
    for row in _records(rows):
        misfits.rows += 1
        whole = row is not None and len(row) == len(header.names)
        number = form.class_of(row[label].strip()) if row is not None and whole else -1
        unit = row[group].strip() if row is not None and whole and group is not None else "all"
        if row is None or number < 0 or unit.lower() in MISSING or not is_decoded(unit):
            misfits.left_out += 1
            continue
        fits = [column.add(row[i]) for column, i in zip(cells, indices, strict=True)]
        misfits.changed += not all(fits)
        classes.append(number)
        groups.append(unit.encode())
    extra = len(header.names) - len(indices) - len(header.special)
    if extra:
        what = "1 column is" if extra == 1 else f"{extra:,} columns are"
        misfits.others.append(f"{what} not declared, and not read")
    return Raw(
        x=np.stack([column.values for column in cells], axis=1),
        y=np.array(classes, np.int64),
        class_names=form.class_names,
        columns=tuple(column.name for column in form.columns),
        kinds={c.name: c.kind for c in form.columns if c.kind != "number"},
        texts={c.column.name: c.texts for c in cells if c.texts},
        groups=None if group is None else row_hashes(groups).view(np.int64),
        notes=misfits.notes,
    )


def _records(rows: Iterator[list[str]]) -> Iterator[list[str] | None]:
    """Rows that are not empty; None for one that is none of CSV, such as one too long."""
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error:
            yield None
        else:
            if row:
                yield row


def _declared_places(path: Path, form: Form, header: Header) -> list[int]:
    """Where the declared columns are; BadInput if the header lacks one."""
    features = {n: i for i, n in enumerate(header.names) if i not in header.special.values()}
    for column in form.columns:
        if column.name not in features:
            raise BadInput(
                f"expected the federation's columns in {path}, got none {column.name!r:.80}; bring "
                "the tables to the same columns"
            )
    return [features[column.name] for column in form.columns]
