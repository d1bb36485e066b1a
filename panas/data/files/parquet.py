"""Parquet tables as rows of texts: what a .csv of the same table holds, cell by cell.

So whatever is said of a table's columns holds for both kinds of file. A null or NaN is an empty
cell, a truth value is `True` or `False`, a date or a time is in ISO format, and with a time zone in
UTC. The row index that pandas adds has no name, as in its .csv.

Rows count from 1. pyarrow, of the extra `parquet`, is loaded when a file is opened.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panas.data.files.raw import one_line
from panas.runtime.errors import INSTALL_PARQUET, BadInput

if TYPE_CHECKING:
    import pyarrow

PARQUET = ".parquet"
ROWS = 4096  # that are decoded at a time
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
EPOCH = datetime(1970, 1, 1)
MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
BEYOND = "beyond"  # stands for a time that no calendar has


class Rows(Iterator[list[str]]):
    """Rows of cells, in their order; `line_num` is the number of the last one.

    Args:
        batches: of columns, each as its cells.
    """

    def __init__(self, batches: Iterator[list[list[str]]]) -> None:
        self._rows = (list(row) for columns in batches for row in zip(*columns, strict=True))
        self.line_num = 0

    def __next__(self) -> list[str]:
        """The next row."""
        row = next(self._rows)
        self.line_num += 1
        return row


@contextmanager
def parquet_rows(
    path: Path, errors: str = "strict"
) -> Iterator[tuple[list[str], Rows, tuple[str, ...]]]:
    """Names of the columns of a Parquet file, its rows, and the names of those that pandas made its
    rows' index.

    BadInput, in one line, for a file that is none, a column of lists or bytes, and without pyarrow.

    Args:
        path: of the file.
        errors: what becomes of a text that is not UTF-8, as `bytes.decode` takes it.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput(
            f"expected the library pyarrow to read {path}, got none; {INSTALL_PARQUET}, or save it "
            "as .csv"
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
            fields = list(file.schema_arrow)
            kept = [i for i, field in enumerate(fields) if not PANDAS_INDEX.fullmatch(field.name)]
            cells = [_cells_of(fields[i], path, errors) for i in kept]
            is_indexed = len(kept) < len(fields)

            def columns(batch: "pyarrow.RecordBatch") -> list[list[str]]:
                results = [read(batch.column(i)) for i, read in zip(kept, cells, strict=True)]
                return [[""] * len(batch), *results] if is_indexed else results

            batches = (columns(b) for b in file.iter_batches(ROWS, use_threads=False))
            names = [fields[i].name.strip() for i in kept]
            yield [""] * is_indexed + names, Rows(batches), _index(file.schema_arrow)
    except UnicodeDecodeError as error:
        raise BadInput(f"expected UTF-8 texts in {path}, got others; save it so") from error
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(
            f"expected a Parquet table at {path}, got: {one_line(error)}; save it again, or as .csv"
        ) from error


def _index(schema: "pyarrow.Schema") -> tuple[str, ...]:
    """Columns that pandas notes as the index; a range has none."""
    try:
        noted = (schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError:  # notes that do not parse say nothing
        return ()
    return tuple(name.strip() for name in noted if isinstance(name, str))


def _cells_of(
    field: "pyarrow.Field", path: Path, errors: str
) -> Callable[["pyarrow.Array"], list[str]]:
    """What makes cells of a column."""
    import pyarrow
    from pyarrow import types

    kind = field.type
    if types.is_dictionary(kind):
        cells = _cells_of(pyarrow.field(field.name, kind.value_type), path, errors)
        return lambda column: cells(column.dictionary_decode())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        as_bytes = pyarrow.large_binary()
        large = pyarrow.large_string()
        return lambda column: _each(
            column.cast(large).cast(as_bytes), lambda value: value.decode("utf-8", errors)
        )
    if types.is_floating(kind):
        return _numbers
    if types.is_temporal(kind) and not types.is_duration(kind) and not types.is_interval(kind):
        return _times
    if any(is_a(kind) for is_a in (types.is_integer, types.is_boolean, types.is_decimal)):
        return lambda column: _each(column, str)
    if types.is_null(kind):
        return lambda column: [""] * len(column)
    raise BadInput(
        f"expected numbers, truth values, texts or dates in column {field.name!r:.80} of {path}, "
        f"got {str(kind)[:80]}; leave the column out, or convert it"
    )


def _each(column: "pyarrow.Array", text: Callable[[Any], str]) -> list[str]:
    return ["" if value is None else text(value) for value in column.to_pylist()]


def _numbers(column: "pyarrow.Array") -> list[str]:
    """Fewest digits that tell a number from others of its precision."""
    values = column.to_numpy(zero_copy_only=False)
    return ["" if missing else str(x) for x, missing in zip(values, np.isnan(values), strict=True)]


def _times(column: "pyarrow.Array") -> list[str]:
    """Dates and times, to the microsecond, by their counts: a calendar has its ends."""
    import pyarrow
    from pyarrow import types

    kind = column.type
    if types.is_date(kind):
        days = 1 if types.is_date32(kind) else 86_400_000
        whole = column.cast(pyarrow.int32() if days == 1 else pyarrow.int64())
        return _each(whole, lambda n: _instant(n // days * 86_400 * MICROSECONDS["s"])[:10])
    is_time, zone = types.is_time(kind), getattr(kind, "tz", None) and "+00:00"

    def text(count: int) -> str:
        us = count // 1000 if kind.unit == "ns" else count * MICROSECONDS[kind.unit]
        return _instant(us)[11:] if is_time else _instant(us) + (zone or "")

    return _each(column.cast(pyarrow.int32() if types.is_time32(kind) else pyarrow.int64()), text)


def _instant(microseconds: int) -> str:
    """So many microseconds after 1970 began."""
    try:
        return (EPOCH + timedelta(microseconds=microseconds)).isoformat(" ")
    except OverflowError:
        return BEYOND
