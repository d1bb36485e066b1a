"""Comma-separated tables with a header, read as classes and numbers."""

import array
import csv
import math
from pathlib import Path

import numpy as np

from panas.data.files.raw import Raw, check_class_count, one_line
from panas.runtime.errors import BadInput

LABEL_COLUMNS = ("label", "class", "Class", "target", "y")
LARGEST_VALUE = 1e100  # the square of a table's value must not overflow


def read_csv(path: Path, label: str | None) -> Raw:
    """Read a table: a header, one label column (`label`), every other column a finite number.

    A first column without a name is a row index and is dropped. Without `label`, the one column of
    `LABEL_COLUMNS` that is there is taken. Classes are whole numbers or texts. Errors count the
    header as row 1.
    """
    features, lines = array.array("d"), array.array("q")
    targets: list[str] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = [name.strip() for name in next(rows, [])]
            at = header.index(_label_column(path, header, label))
            kept = [i for i, name in enumerate(header) if i != at and (i or name)]
            if not kept or len(set(header)) < len(header):
                raise BadInput(f"expected distinct columns and a feature in {path}, got {header}")
            for row in filter(None, rows):
                if len(row) != len(header):
                    raise BadInput(
                        f"expected {len(header)} cells in row {rows.line_num} of {path}, "
                        f"got {len(row)}; repair the row"
                    )
                features.extend([_number(row[i]) for i in kept])
                targets.append(row[at].strip())
                lines.append(rows.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"expected a UTF-8 table at {path}, got: {one_line(error)}") from error
    x = np.array(features).reshape(len(targets), len(kept))
    for i, j in np.argwhere(~(np.abs(x) < LARGEST_VALUE))[:1]:
        raise BadInput(
            f"expected a finite number in column {header[kept[j]]!r}, row {lines[i]} of {path}, "
            "got none; fill it in, or drop the row or the column"
        )
    missing = [at for at, t in zip(lines, targets, strict=True) if t.lower() in ("", "nan")]
    if missing:
        raise BadInput(f"expected a class in row {missing[0]} of {path}, got none; drop the row")
    y, names = _table_classes(path, targets)
    return Raw(x, y, names, columns=tuple(header[i] for i in kept))


def _number(cell: str) -> float:
    """The number in a cell; NaN for anything else."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _label_column(path: Path, header: list[str], label: str | None) -> str:
    found = [name for name in (LABEL_COLUMNS if label is None else (label,)) if name in header]
    if len(found) != 1:
        wanted = f"a column {label!r}" if label else f"one of {', '.join(LABEL_COLUMNS)}"
        shown = ", ".join(header)[:200] or "an empty file"
        raise BadInput(f"expected {wanted} in {path}, got {shown}; name the label column")
    return found[0]


def _table_classes(path: Path, targets: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    distinct = sorted(set(targets))
    check_class_count(path, len(distinct))
    numbers = {t: _number(t) for t in distinct}
    key: dict[str, int | str]
    if any(math.isnan(number) for number in numbers.values()):
        key = {t: t for t in distinct}  # not all are numbers: all are texts
    elif all(number.is_integer() for number in numbers.values()):
        key = {t: int(number) for t, number in numbers.items()}
    else:
        raise BadInput(
            f"expected classes as labels in {path}, got fractions; regression targets are not "
            "classes"
        )
    values, y = np.unique([key[t] for t in targets], return_inverse=True)
    return y.astype(np.int64), tuple(str(v) for v in values)
