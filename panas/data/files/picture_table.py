"""The table of a folder of pictures: `metadata.csv`, with a row for each file.

| column | what it is |
|---|---|
| `file_name` or `file` | a picture's path in the folder |
| a label column | the picture's class, in place of its folder's name |
| the group column that is asked for | whose the picture is, as a patient |

Other columns are not read. Errors name rows, and no cell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from panas.data.files.cells import MISSING, is_decoded
from panas.data.files.raw import row_hashes
from panas.data.files.tables import TableColumns, open_table, records
from panas.runtime.errors import BadInput

NAME = "metadata.csv"
FILES = ("file_name", "file")
TOLD = f"classes are those of {NAME}"


@dataclass(frozen=True)
class Row:
    """What a table says of one picture."""

    number: int  # of the row
    label: str | None  # None: the table has no labels
    group: str | None  # None: no groups are asked for

    @property
    def is_whole(self) -> bool:
        """Whether no cell that is read is missing, or of another encoding."""
        cells = [cell for cell in (self.label, self.group) if cell is not None]
        return all(cell.lower() not in MISSING and is_decoded(cell) for cell in cells)


@dataclass(frozen=True)
class PictureTable:
    """Rows by the path of their picture; none for a picture that several rows name."""

    rows: Mapping[str, Row]
    repeated: frozenset[str]
    has_labels: bool
    has_groups: bool

    def row_of(self, folder: Path, file: Path) -> Row | None:
        """The row of a picture; None where there is not exactly one, or it lacks a cell."""
        row = self.rows.get(file.relative_to(folder).as_posix())
        return row if row is not None and row.is_whole else None

    def checked(self, folder: Path, files: Sequence[Path]) -> list[Row]:
        """The row of each picture; BadInput if there is not exactly one."""
        names = {file.relative_to(folder).as_posix() for file in files}
        if self.repeated:
            raise _wrong(folder, "several rows of one file; keep one")
        if strange := next((row for name, row in self.rows.items() if name not in names), None):
            raise _wrong(folder, f"none of row {strange.number}; drop the row, or add the file")
        if partial := next((row for row in self.rows.values() if not row.is_whole), None):
            raise _wrong(folder, f"an empty cell in row {partial.number}; fill it")
        results = [self.row_of(folder, file) for file in files]
        missing = next((f for f, row in zip(files, results, strict=True) if row is None), None)
        if missing is not None:
            raise _wrong(folder, f"no row of {missing.relative_to(folder)}; add it")
        return [row for row in results if row is not None]


def _wrong(folder: Path, got: str) -> BadInput:
    return BadInput(f"expected a row of {folder / NAME} for each picture, got {got}")


def units_of(rows: Sequence[Row]) -> np.ndarray:
    """A fixed hash of each row's group (n,), int64, the same as that of a table's."""
    return row_hashes((row.group or "").encode() for row in rows).view(np.int64)


def read_picture_table(
    folder: Path, named: TableColumns, errors: str = "strict"
) -> PictureTable | None:
    """The table of a folder; None where there is none, or it says neither class nor group.

    BadInput where a column is named that it lacks.

    Args:
        folder: of pictures.
        named: columns of label and group; None of a label looks for the usual names.
        errors: what becomes of a cell that is not UTF-8, as `bytes.decode` takes it.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    # Rows are read where nothing is asked for: the usual names of labels may be there.
    wanted = replace(named, labelled=named.label is not None, client=None, texts=())
    with open_table(path, wanted, errors) as (header, rows):
        at = next((header.names.index(name) for name in FILES if name in header.names), None)
        label, group = header.special.get("label"), header.special.get("group")
        if at is None or (label is None and group is None):
            if named.label or (named.group and named.units_needed):
                raise BadInput(f"expected a column {FILES[0]!r} in {path}, got none; add it")
            return None
        results, repeated = dict[str, Row](), set[str]()
        for number, row in enumerate(records(rows), start=2):
            if row is None or len(row) != len(header.names):
                if errors == "strict":
                    raise BadInput(
                        f"expected {len(header.names)} cells in row {number} of {path}, got "
                        "others; repair it"
                    )
                continue
            name = row[at].strip().replace("\\", "/").removeprefix("./")
            repeated |= {name} if name in results else set()
            results[name] = Row(
                number,
                None if label is None else row[label].strip(),
                None if group is None else row[group].strip(),
            )
    rest = {name: row for name, row in results.items() if name not in repeated}
    return PictureTable(rest, frozenset(repeated), label is not None, group is not None)
