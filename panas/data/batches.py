"""New samples to classify, read in batches: memory does not grow with a folder or a table.

| path | samples | names |
|---|---|---|
| .npz | images of all its parts (`train_images`, ...), `images`, or `x` | numbers of rows |
| .csv, .tsv, .parquet | rows; only columns of the facts, and so no label | numbers of rows |
| a folder | all pictures under it | paths in the folder |
| a picture | itself | its file name |

Rows count from 1, without a table's header. What cannot be read is refused, with its place named.
"""

import array
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from panas.data.facts import Facts, fit
from panas.data.files.archives import image_arrays
from panas.data.files.cells import Cells
from panas.data.files.dialect import PLAIN, Dialect
from panas.data.files.pictures import DEEP, GREY, PICTURES, open_picture, pictures_under, unreadable
from panas.data.files.raw import Raw
from panas.data.files.tables import (
    LABEL_COLUMNS,
    TABLES,
    Header,
    TableColumns,
    ending_of,
    open_table,
)
from panas.data.frames import rows_of
from panas.data.load import unlabelled
from panas.data.sources import path_of
from panas.runtime.errors import BadInput

MOST_SAMPLES, MOST_VALUES = 512, 1 << 24  # of a batch
READ = f".npz, {', '.join(TABLES)}, a folder of pictures or a picture ({', '.join(PICTURES)})"


@dataclass(frozen=True)
class Batch:
    """Some samples in their order."""

    names: list[str]  # n of them
    inputs: Float[Tensor, "n c h w"]  # network inputs in [-1, 1]


def are_files(data: str) -> bool:
    """Whether the samples of a path are named by files, and not by the numbers of rows."""
    path = path_of(data)
    return path.is_dir() or path.suffix.lower() in PICTURES


def is_picture(data: str | Path) -> bool:
    """Whether a path is that of one picture, by what it ends in."""
    path = path_of(str(data))
    return path.suffix.lower() in PICTURES and not path.is_dir()


def batches_of(
    data: str, facts: Facts, size: int | None = None, dialect: Dialect = PLAIN
) -> Iterator[Batch]:
    """The samples at a path, as the facts of a network's data describe them; at least one.

    BadInput where they do not fit; a mistake in the path is found at the first batch.

    Args:
        data: a path, as in the table above.
        facts: of the network's data: shape, columns and scale.
        size: samples of a batch, at most, from 1 up; None: 512, or fewer large ones.
        dialect: how a table is written. Without a header, columns are the facts' in their order
            where there are as many, else those of the facts' numbers.
    """
    path, none = path_of(data), True
    usual = max(1, min(MOST_SAMPLES, MOST_VALUES // math.prod(facts.shape)))
    for batch in _read(path, facts, size or usual, dialect):
        none = False
        yield batch
    if none:
        raise BadInput(f"expected samples in {path}, got none; add some")


def _read(path: Path, facts: Facts, size: int, dialect: Dialect) -> Iterator[Batch]:
    kind = ending_of(path)
    is_table, is_folder = kind in TABLES and not path.is_dir(), path.is_dir()
    if not is_folder and not (path.is_file() and kind in (".npz", *TABLES, *PICTURES)):
        wrong = f"{path}, of another type" if path.is_file() else f"none at {path}"
        raise BadInput(f"expected {READ}, got {wrong}; convert it, or check the path")
    if is_table != bool(facts.columns):
        expected, got = ("a table", "images") if facts.columns else ("images", "a table")
        raise BadInput(
            f"expected {expected}, as the network has learnt from, got {got} at {path}; give "
            f"{'a table' if facts.columns else 'an .npz or pictures'}"
        )
    if is_table:
        return _of_table(path, facts, size, dialect)
    if is_folder or kind in PICTURES:
        return _of_pictures(path, facts, size)
    return _of_archive(path, facts, size)


def _of_archive(path: Path, facts: Facts, size: int) -> Iterator[Batch]:
    row = 0
    for key, images in image_arrays(path).items():
        x = images[..., None] if images.ndim == 3 else images
        if x.ndim != 4:
            raise BadInput(
                f"expected {key} of shape (n, h, w), (n, h, w, c) or (n, c, h, w) in {path}, got "
                f"{images.shape}; reshape it"
            )
        for start in range(0, len(x), size):
            part = fit(unlabelled(x[start : start + size], facts), facts, str(path)).inputs()
            yield Batch(_numbers(row, len(part)), part)
            row += len(part)


def _of_table(path: Path, facts: Facts, size: int, dialect: Dialect) -> Iterator[Batch]:
    # No column is a label, whatever it is called: what the facts do not name is not read.
    names = (*LABEL_COLUMNS, *(column.name for column in facts.columns))
    named = TableColumns(labelled=False, features=names, dialect=dialect)
    row = 0
    with open_table(path, named) as (header, rows):
        if not dialect.header and len(header.names) == len(facts.columns):
            header = replace(header, names=[column.name for column in facts.columns])
        while len((part := _next_rows(path, header, rows, facts, size)).y):
            yield Batch(_numbers(row, len(part.y)), fit(part, facts, str(path)).inputs())
            row += len(part.y)


def _next_rows(
    path: Path, header: Header, rows: Iterator[list[str]], facts: Facts, size: int
) -> Raw:
    """The next rows of a table, at most `size`; none at its end."""
    missing = [column.name for column in facts.columns if column.name not in header.names]
    if missing:
        raise BadInput(
            f"expected the columns that the network has learnt from in {path}, got none "
            f"{missing[0]!r:.80}; add it (cells may be empty)"
        )
    positions = [header.names.index(column.name) for column in facts.columns]
    cells = [Cells(c.name, texts=c.kind == "text", style=header.style) for c in facts.columns]
    lines = array.array("q")
    for row in islice(filter(None, rows), size):
        lines.append(getattr(rows, "line_num", 0))
        if len(row) != len(header.names):
            raise BadInput(
                f"expected {len(header.names)} cells in row {lines[-1]} of {path}, got "
                f"{len(row)}; repair it"
            )
        for column, position in zip(cells, positions, strict=True):
            column.add(row[position])
    return rows_of(cells, lines, str(path), facts)


def _of_pictures(path: Path, facts: Facts, size: int) -> Iterator[Batch]:
    folder = path if path.is_dir() else path.parent
    files = iter(pictures_under(path) if path.is_dir() else [path])
    while part := list(islice(files, size)):
        names = [file.relative_to(folder).as_posix() for file in part]
        yield Batch(names, torch.cat([_picture(file, facts) for file in part]))


def _picture(file: Path, facts: Facts) -> Float[Tensor, "1 c h w"]:
    """A picture as a network's input; BadInput for one of more colours or bits than the facts'."""
    try:
        with open_picture(file) as image:
            if facts.shape[0] == 1 and image.mode not in GREY:
                raise BadInput(f"expected a grey picture at {file}, got colour; convert it")
            if image.mode in DEEP and (facts.dtype == "uint8" or facts.shape[0] > 1):
                raise BadInput(f"expected a picture of 8 bits at {file}, got deeper; convert it")
            return fit(unlabelled(image, facts), facts, str(file)).inputs()
    except BadInput:
        raise
    except Exception as error:  # a decoder's error may have any type
        raise unreadable(file, error) from error


def _numbers(before: int, many: int) -> list[str]:
    return [str(number) for number in range(before + 1, before + many + 1)]
