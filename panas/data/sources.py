"""A data set by what the user calls it: a name of torchvision's, a file or a folder."""

import difflib
from dataclasses import dataclass, fields, replace
from pathlib import Path

from panas.data.facts import Facts
from panas.data.files.archives import NPY, read_images_npz, read_npz, read_npz_rows
from panas.data.files.declared import Form
from panas.data.files.dialect import PLAIN
from panas.data.files.picture_table import FILES as FILE_COLUMNS
from panas.data.files.picture_table import NAME
from panas.data.files.pictures import (
    PICTURES,
    USUAL,
    Shape,
    read_folder,
    read_folder_rows,
    read_pictures,
)
from panas.data.files.raw import Raw
from panas.data.files.tables import (
    ALONE,
    TABLES,
    TableColumns,
    ending_of,
    read_table,
    read_table_rows,
)
from panas.data.files.unknown import conversion_of
from panas.data.torchvision_sets import NAMES, read_named
from panas.runtime.errors import BadInput


def path_of(dataset: str) -> Path:
    """The path that a text names; ~/ is the home folder."""
    return Path(dataset).expanduser() if dataset.startswith("~/") else Path(dataset)


def identity(dataset: str) -> str | Path:
    """What tells two data sets apart: a known name or a resolved path."""
    return dataset if dataset in NAMES else path_of(dataset).resolve()


ARRAYS = (".npz", NPY)
FILES = "an .npz, .npy, .csv, .csv.gz, .tsv or .parquet file"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a data set is read."""

    data_root: str | None = None  # folder of torchvision's sets
    table: TableColumns = ALONE
    image_size: int | None = None  # pixels a side of picture files; None: see `read_folder`
    usual: int = USUAL  # the same of large ones, and of ones of several sizes
    shape: Shape | None = None  # (channels, height, width) that a federation has picture files in


def reading_of(facts: Facts, table: TableColumns = ALONE) -> Reading:
    """How data are read that are to fit a federation's facts; `table` says what is the owner's."""
    texts = tuple(column.name for column in facts.columns if column.kind == "text")
    table = replace(table, texts=tuple(dict.fromkeys((*table.texts, *texts))))
    return Reading(table=table, shape=facts.shape)


def read(dataset: str, how: Reading) -> Raw:
    """Read a data set by name or by what its path ends in.

    Where `how.table` says that there are no labels, what is read as such means nothing.
    """
    path = path_of(dataset)
    if dataset in NAMES:
        raw = read_named(dataset, how.data_root, how.image_size or how.usual)
    elif path.is_dir():
        if how.table.labelled:
            raw = read_folder(path, how.image_size, how.shape, how.table, how.usual)
        else:
            raw = read_pictures(path, how.image_size, how.shape, how.usual)
    elif (kind := ending_of(path)) in (*ARRAYS, *TABLES):
        if not path.is_file():
            raise BadInput(f"expected a file at {path}, got none; check the path")
        if kind in TABLES:
            raw = read_table(path, how.table)
        elif not how.table.labelled:
            raw = read_images_npz(path)
        else:
            raw = read_npz(path, how.table.group, needed=how.table.units_needed)
    else:
        raise _unknown(dataset, path)
    if not raw.columns and how.table.labelled:
        _check_not_asked(dataset, how.table, raw)
    if not len(raw.y):
        raise BadInput(f"expected samples in {dataset}, got none; add some, or leave it out")
    return raw


def _unknown(dataset: str, path: Path) -> BadInput:
    """The error for what is neither a data set's name nor a kind of file that is read."""
    if path.is_file() or path.suffix or len(path.parts) > 1:
        got = f"{dataset!r}, of another kind" if path.is_file() else f"{dataset!r}, which is none"
        remedy = conversion_of(path, PICTURES) if path.is_file() else "check the path"
        return BadInput(f"expected {FILES} or a folder of pictures, got {got}; {remedy}")
    close = difflib.get_close_matches(dataset.lower().replace("_", "-"), NAMES, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "give a path, or one of torchvision's names"
    return BadInput(
        f"expected a data set's name as {NAMES[0]} or {NAMES[2]}, {FILES} or a folder of pictures, "
        f"got {dataset!r}; {hint}"
    )


def read_rows(path: Path, facts: Facts, table: TableColumns = ALONE) -> Raw:
    """Read an owner's data row by row, by declared facts; classes and columns are as declared.

    What does not fit is left out or changed, and counted in `notes`, which are private; the result
    fits the facts (`panas.data.facts.fit`). BadInput is for what no row can change: no readable
    data at the path, a header or arrays of another form, images where a table is declared or the
    other way round, columns that are named for images.

    Args:
        path: a table, an archive or a folder of pictures.
        facts: declared by the owner.
        table: columns of label, group and client, where the path is a table.

    Privacy: what becomes of a row follows from this row and the facts alone. With groups, the part
    that a row is in follows from all rows of its group.
    """
    form = Form(**{f.name: getattr(facts, f.name) for f in fields(Form)})
    kind = ending_of(path)
    is_table = kind in TABLES and not path.is_dir()
    if is_table != bool(facts.columns):
        expected, got = ("a table", "images") if facts.columns else ("images", "a table")
        raise BadInput(f"expected {expected} at {path}, as declared, got {got}, or no file")
    if path.is_dir():
        raw = read_folder_rows(path, form, table)
    elif kind not in (*ARRAYS, *TABLES) or not path.is_file():
        raise BadInput(
            f"expected {FILES} or a folder of pictures at {path}, got none; check the path"
        )
    elif is_table:
        return read_table_rows(path, form, table)
    else:
        raw = read_npz_rows(path, form, table.group)
    _check_not_asked(str(path), table, raw)
    return raw


def _check_not_asked(dataset: str, columns: TableColumns, raw: Raw) -> None:
    """Refuse columns of data that are no table; an archive may have its groups as an array, and a
    folder of pictures labels and groups in a table."""
    is_listed = (path_of(dataset) / NAME).is_file()
    rest = replace(columns, units_needed=True, group=None)
    if is_listed:
        rest = replace(rest, label=None, dialect=PLAIN)
    if rest != ALONE:
        raise BadInput(
            f"expected a table for a column of labels, clients or texts, got {dataset}, which has "
            "no columns; leave the option out"
        )
    if columns.group is not None and columns.units_needed and raw.groups is None:
        raise BadInput(
            f"expected the groups of {dataset}, got none; add {NAME} to it with a row for each "
            f"file and the columns {FILE_COLUMNS[0]!r} and {columns.group!r}"
        )


def check_alike(raw: Raw, second: Raw, called: str, like: str) -> None:
    """Refuse a second set of another type, shape or columns than the first.

    Args:
        raw: the first.
        second: the other one.
        called: name of the second in the message.
        like: name of the first in it.
    """
    for what, first, other in (
        ("samples of type", str(raw.x.dtype), str(second.x.dtype)),
        ("samples of shape", raw.x.shape[1:], second.x.shape[1:]),
        ("columns", raw.columns, second.columns),
    ):
        if first != other:
            raise BadInput(
                f"expected {called} with {what} {shown(first)} as in {like}, got {shown(other)}"
            )


def shown(value: object) -> str:
    """A value in at most 200 characters."""
    return str(value)[:200]
