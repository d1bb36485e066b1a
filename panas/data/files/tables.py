"""Tables with a header and one label column: numbers, dates and texts, and missing cells.

Errors name a column or a row, which counts the header as row 1, and never show a cell; the first
row is shown only where it holds names that somebody gave, and so is a header.

A site's table is read row by row, by what its owner has declared: no row decides about another. A
.parquet file is read as a .csv of the same table would be.
"""

import array
import csv
import gzip
import textwrap
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from panas.data.files.cells import MISSING, Cells, DeclaredCells, is_decoded
from panas.data.files.columns import Kind
from panas.data.files.declared import Form, Misfits
from panas.data.files.dialect import PLAIN, Dialect, Style, style_of
from panas.data.files.labels import classes_of, is_number
from panas.data.files.parquet import PARQUET, parquet_rows
from panas.data.files.raw import Raw, one_line, row_hashes
from panas.runtime.errors import BadInput

LABEL_COLUMNS = ("label", "class", "Class", "target", "y")
DELIMITERS = ",;\t|"
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", PARQUET)
PACKED = ".gz"


def ending_of(path: Path) -> str:
    """What a file's name ends in, in lower case: `.csv`, or `.csv.gz`."""
    *_, before, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    return before + last if last == PACKED and before + last in TABLES else last


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """What some columns of a table are."""

    label: str | None = None  # None: the one of `usual` that is there
    usual: tuple[str, ...] = LABEL_COLUMNS
    group: str | None = None  # names the privacy unit that a row belongs to, as a patient
    client: str | None = None  # names the client that a row belongs to, as a hospital
    texts: tuple[str, ...] = ()  # are read as texts, though they may hold numbers
    units_needed: bool = True  # whether a table without the group or client column is refused
    labelled: bool = True  # if not, no label, group or client is read, and none is needed
    features: tuple[str, ...] = ()  # are no labels, whatever they are called
    dialect: Dialect = PLAIN  # how header and cells are written
    width: int | None = None  # columns of a table without a header; None: as its first row has


ALONE = TableColumns()
"""A table of which nothing is said."""


def read_table(path: Path, named: TableColumns | None = None) -> Raw:
    """Read a table; its columns are parted by commas, semicolons, tabs or bars, as its header is.

    A first column without a name is dropped, and so is the index that a .parquet file names. What
    is in a column drops none. Classes are whole numbers or texts; where none are read, all rows are
    of class 0 of no classes.
    """
    with open_table(path, named or TableColumns()) as (header, rows):
        return _read(path, header, rows)


@contextmanager
def open_table(
    path: Path, named: TableColumns, errors: str = "strict"
) -> Iterator[tuple["Header", Iterator[list[str]]]]:
    """What a table's header says, and the rows after it; BadInput if it lacks what is asked for.

    Args:
        path: of the file: .parquet, or a text.
        named: columns that a user names.
        errors: what becomes of a cell that is not UTF-8, as `bytes.decode` takes it.
    """
    if path.suffix.lower() == PARQUET:
        with parquet_rows(path, errors) as (names, rows, index):
            special = _special(path, names, named, lambda: f"got {', '.join(names)[:200]}")
            _check_names(path, names)
            yield Header(names, special, ",", named, index), rows
        return
    is_packed = path.suffix.lower() == PACKED
    try:
        with (
            gzip.open(path, "rt", newline="", encoding="utf-8-sig", errors=errors)
            if is_packed
            else path.open(newline="", encoding="utf-8-sig", errors=errors)
        ) as file:
            yield _read_header(path, file, named)
    except UnicodeDecodeError as error:
        raise BadInput(f"expected a UTF-8 table at {path}, got another; save it so") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise BadInput(f"expected a UTF-8 table at {path}, got: {one_line(error)}") from error


def _read_header(
    path: Path, file: TextIO, named: TableColumns
) -> tuple["Header", Iterator[list[str]]]:
    start, dialect = [line for line, _ in zip(file, range(1), strict=False)], named.dialect
    file.seek(0)
    if dialect.header:
        delimiter = dialect.delimiter or _delimiter(start, named.label)
        rows = csv.reader(file, delimiter=delimiter)
        header = [name.strip() for name in next(rows, [])]
        special = _special(path, header, named, lambda: _got(header, named))
    else:  # no row says how another is read
        delimiter = dialect.delimiter or ("\t" if ".tsv" in ending_of(path) else ",")
        rows = csv.reader(file, delimiter=delimiter)
        width = named.width or len(next(csv.reader(start, delimiter=delimiter), []))
        header = [str(number) for number in range(1, width + 1)]
        special = _special(path, header, named, lambda: f"got columns 1 to {width}")
    _check_names(path, header)
    return Header(header, special, delimiter, named), rows


@dataclass(frozen=True)
class Header:
    """The first line of a table, and what it says."""

    names: list[str]
    special: dict[str, int]  # places of the columns that hold "label", "group" and "client"
    delimiter: str
    columns: TableColumns
    index: tuple[str, ...] = ()  # columns that the file itself calls its rows' index

    @property
    def style(self) -> Style:
        """How cells are written."""
        return style_of(self.columns.dialect, self.delimiter)

    def dropped(self) -> dict[int, str]:
        """Places of columns that only name the rows, by what the file says, and why."""
        results = {
            i: f"column {name!r} is the rows' index and was dropped"
            for i, name in enumerate(self.names)
            if name in self.index
        }
        if self.names and not self.names[0]:
            results[0] = "its first column has no name and was dropped"
        return {i: why for i, why in results.items() if i not in self.special.values()}


def _read(path: Path, header: Header, rows: Iterator[list[str]]) -> Raw:
    names, special = header.names, header.special
    dropped = header.dropped()
    kept = [i for i in range(len(names)) if i not in special.values() and i not in dropped]
    if not kept:
        raise BadInput(f"expected a feature beside the named columns of {path}, got none; add one")
    texts_of, style = header.columns.texts, header.style
    cells = [Cells(names[i], texts=names[i] in texts_of, style=style) for i in kept]
    roles = special if header.columns.labelled else {}
    texts: dict[str, list[str]] = {role: [] for role in roles}
    lines = array.array("q")
    for row in filter(None, rows):
        line = getattr(rows, "line_num", 0)
        if len(row) != len(names):
            raise BadInput(
                f"expected {len(names)} cells in row {line} of {path}, got {len(row)}; repair it"
            )
        for column, i in zip(cells, kept, strict=True):
            column.add(row[i])
        for role, i in roles.items():
            texts[role].append(row[i].strip())
            if texts[role][-1].lower() in MISSING:
                expected = "class" if role == "label" else role
                raise BadInput(f"expected a {expected} in row {line} of {path}, got none; drop it")
        lines.append(line)
    y, class_names = np.zeros(len(lines), np.int64), tuple[str, ...]()
    if header.columns.labelled:
        y, class_names = classes_of(path, texts["label"])
    units, clients = texts.get("group"), texts.get("client")
    groups = None if units is None else row_hashes(unit.encode() for unit in units).view(np.int64)
    return _raw(
        [(column.name, *column.column(lines, str(path))) for column in cells],
        Raw(
            np.empty((len(y), 0)),
            y,
            class_names,
            groups=groups,
            clients=None if clients is None else np.array(clients),
            notes=(*dropped.values(), *(note for column in cells for note in column.notes)),
        ),
    )


def _check_names(path: Path, names: list[str]) -> None:
    if twice := next((i for i, name in enumerate(names) if name in names[:i]), None):
        raise BadInput(
            f"expected columns of different names in {path}, got columns "
            f"{names.index(names[twice]) + 1} and {twice + 1} of the same; rename one"
        )


def _raw(columns: Sequence[tuple[str, Kind, np.ndarray, tuple[str, ...]]], rest: Raw) -> Raw:
    """A table of its columns; `rest` has all but these."""
    notes = list(rest.notes)
    for kind, how in (("text", "texts"), ("date", "dates")):
        if results := [repr(name) for name, of, *_ in columns if of == kind]:
            notes.append(f"read as {how}: {', '.join(results)[:200]}")
    return replace(
        rest,
        x=np.stack([x for _, _, x, _ in columns], axis=1),
        columns=tuple(name for name, *_ in columns),
        kinds={name: kind for name, kind, _, _ in columns if kind != "number"},
        texts={name: texts for name, _, _, texts in columns if texts},
        notes=tuple(notes),
    )


def _delimiter(header: list[str], label: str | None) -> str:
    """The delimiter that parts the header into most names; among them the label's, if any does."""
    results = {
        d: [n.strip() for n in next(csv.reader(header, delimiter=d), [])] for d in DELIMITERS
    }
    return max(DELIMITERS, key=lambda d: (label in results[d], len(results[d])))


def _special(
    path: Path, header: list[str], named: TableColumns, got: Callable[[], str]
) -> dict[str, int]:
    """Places of the columns that hold label, group and client; `got` says what the header is."""
    indices = {}
    for role, name in (("label", named.label), ("group", named.group), ("client", named.client)):
        if role != "label" and name is None:
            continue
        called = (name,) if name else named.usual
        matches = [n for n in called if n in header and n not in named.features]
        if not matches and not (named.labelled if role == "label" else named.units_needed):
            continue
        if len(matches) != 1:
            expected = f"a column {name!r}" if name else f"one of {', '.join(named.usual)}"
            option = "client-column" if role == "client" else role
            raise BadInput(
                f"expected {expected} in {path}, {got()}; name the {role} column (--{option})"
            )
        indices[role] = header.index(matches[0])
    if missing := next((name for name in named.texts if name not in header), None):
        raise BadInput(
            f"expected a column {missing!r:.80} of texts in {path}, {got()}; add it, or leave it "
            "out of --texts"
        )
    if len(set(indices.values())) < len(indices):
        raise BadInput(f"expected different columns for label, group and client of {path}, got one")
    return indices


def _got(header: list[str], named: TableColumns) -> str:
    """What the header is, in words.

    It is shown only where it holds a name that somebody gave, or two usual ones: the first row of a
    table without a header is a person's.
    """
    if not header:
        return "got an empty file"
    if sum(map(is_number, header)) * 2 >= len(header):
        return (
            "got a first row of numbers, which is no header; add a row of names, or give "
            "--no-header, and the column's number"
        )
    given = {named.label, named.group, named.client, *named.texts, *named.features}
    if given & {*header} or len({*named.usual} & {*header}) > 1:
        return f"got {textwrap.shorten(', '.join(header), 200, placeholder=' ...')}"
    return f"got {len(header)} columns, none so called in the first row, if that is a header"


def read_table_rows(path: Path, form: Form, named: TableColumns) -> Raw:
    """Read an owner's table row by row, by the declared columns and classes; y is as declared.

    A row with another number of cells, without a declared class, or without the group that is asked
    for is left out: as a unit of its own it could be one more unit of somebody who has others. A
    cell that misfits its column's kind is missing, and too large a number is clipped. Columns that
    are not declared are not read, and counted in `notes`.

    A row is one record of CSV: a quote that is never closed takes the lines after it into its own
    record. BadInput is for what no row can change: no readable file, a header with a name twice or
    without a declared column, or without the label, or the group that is asked for.

    Args:
        path: of the table.
        form: columns and classes that the owner declares.
        named: columns of label, group and client.
    """
    if not named.dialect.header:
        every = (*(column.name for column in form.columns), named.label, named.group)
        width = max((int(name) for name in every if name and name.isdecimal()), default=0)
        named = replace(named, width=width)
    named = replace(named, texts=())  # the declared columns say which are texts
    # An error of CSV is one of the header: those of rows are left out.
    with open_table(path, named, errors="surrogateescape") as (header, rows):
        return _read_rows(path, form, header, rows)


def _read_rows(path: Path, form: Form, header: Header, rows: Iterator[list[str]]) -> Raw:
    indices = _declared_places(path, form, header)
    cells = [DeclaredCells(column, style=header.style) for column in form.columns]
    misfits, classes, groups = Misfits(), array.array("q"), list[bytes]()
    label, group = header.special["label"], header.special.get("group")
    for row in records(rows):
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


def records(rows: Iterator[list[str]]) -> Iterator[list[str] | None]:
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
