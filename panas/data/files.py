"""Readers of data files: `.npz` archives, folders of pictures and `.csv` tables.

Each returns a `Raw`: everything that the file holds, labels mapped to 0..C-1 in sorted order, not
yet divided into public and private. Nothing is unpickled. What cannot be used is refused as a
whole, with the place named: a silently dropped row would be a silently different experiment.

Layouts: MedMNIST (`train_images`, `train_labels`, `val_*`, `test_*`), torchvision's `ImageFolder`
(one subfolder a class), comma-separated tables with a header.
"""

import array
import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from panas.runtime.errors import BadInput

PICTURES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
LABEL_COLUMNS = ("label", "class", "Class", "target", "y")
MOST_CLASSES = 1000
LARGEST_VALUE = 1e100  # the square of a table's value must not overflow


@dataclass(frozen=True)
class Raw:
    """What one file or named set holds."""

    x: np.ndarray
    """Images (n, c, h, w), uint8 0..255 or float32 in [-1, 1]; or table rows (n, f), float64."""
    y: np.ndarray
    """(n,) classes 0..C-1, int64."""
    class_names: tuple[str, ...]
    columns: tuple[str, ...] = ()
    """Names of a table's f features; empty for images."""
    from_file: bool = True
    """Whether classes are known by what the file calls them, not by a set's own numbering."""


def one_line(error: Exception) -> str:
    """The text of a foreign error, short and without line breaks."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def read_npz(path: Path) -> Raw:
    """Read images (n, h, w) or (n, h, w, c), uint8 or floats in [0, 1], and labels (n,) or (n, 1).

    The parts of a MedMNIST archive are pooled; otherwise the keys are `images`, `labels` or `x`,
    `y`.

    Raises:
        BadInput: if the archive is damaged, a key is missing, or its arrays are no labelled images.

    """
    parts = list(_parts(path).values())
    x, y = (np.concatenate(arrays) for arrays in zip(*((p.x, p.y) for p in parts), strict=True))
    return Raw(x, y, parts[0].class_names)


def read_split_npz(path: Path) -> tuple[Raw, Raw]:
    """Read the training part of a MedMNIST archive, and the rest of it: `val_*` and `test_*`.

    Raises:
        BadInput: as `read_npz`, or if one of the two is missing.

    """
    parts = _parts(path)
    train = parts.pop("train_images", None)
    if train is None or not parts:
        raise BadInput(
            f"expected train_images and test_images, with their labels, in {path}, to tell what "
            "was trained on from what was not; give the others as a file of their own"
        )
    x, y = (np.concatenate([getattr(p, name) for p in parts.values()]) for name in ("x", "y"))
    return train, Raw(x, y, train.class_names)


def read_one_part_npz(path: Path) -> Raw:
    """Read an archive that holds one part, such as `train_*` alone, or `images` and `labels`.

    Raises:
        BadInput: as `read_npz`, or if there are several parts: which was trained on?

    """
    parts = _parts(path)
    if len(parts) > 1:
        raise BadInput(
            f"expected --others with a file of training samples only, got train and test parts "
            f"({', '.join(parts)}) in {path}; leave --others out"
        )
    return next(iter(parts.values()))


def _parts(path: Path) -> dict[str, Raw]:
    """The parts of an archive by the keys of their images, with one numbering of classes."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib, header parser and memory: each has its own types
        raise BadInput(
            f"expected a readable .npz archive without pickled objects at {path}, got: "
            f"{one_line(error)}; save it again with numpy.savez"
        ) from error
    pairs = _pairs(path, arrays)
    images = [_pictures(path, key, arrays[key]) for key, _ in pairs]
    labels = [_classes(path, key, arrays[key]) for _, key in pairs]
    for (key, _), x, y in zip(pairs, images, labels, strict=True):
        if len(x) != len(y):
            raise BadInput(f"expected a label for each of {len(x)} {key} in {path}, got {len(y)}")
    if len({(x.shape[1:], x.dtype) for x in images}) > 1:
        raise BadInput(f"expected parts of one shape and type in {path}, got several")
    values = np.unique(np.concatenate(labels))
    if len(values) > MOST_CLASSES:
        raise BadInput(_too_many(path, len(values)))
    names = tuple(str(v) for v in values)
    numbered = [np.searchsorted(values, y).astype(np.int64) for y in labels]
    return {key: Raw(x, y, names) for (key, _), x, y in zip(pairs, images, numbered, strict=True)}


def _pairs(path: Path, arrays: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
    """The keys of images and labels that an archive holds."""
    medmnist = [(f"{part}_images", f"{part}_labels") for part in ("train", "val", "test")]
    pairs = [p for p in medmnist if p[0] in arrays] or [
        p for p in (("images", "labels"), ("x", "y")) if p[0] in arrays
    ][:1]
    if not pairs or any(key not in arrays for _, key in pairs):
        raise BadInput(
            "expected the keys train_images and train_labels (with val_*, test_*), images and "
            f"labels, or x and y in {path}, got {', '.join(sorted(arrays))[:200] or 'none'}"
        )
    return pairs


def _pictures(path: Path, key: str, x: np.ndarray) -> np.ndarray:
    """Images as (n, c, h, w), uint8 or float32 in [-1, 1]."""
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.shape[3] > 4 or 0 in x.shape[1:]:
        raise BadInput(
            f"expected {key} of shape (n, h, w) or (n, h, w, c), c at most 4, in {path}, "
            f"got {x.shape}; volumes and channels-first images are not read"
        )
    if x.dtype.kind == "f" and (x.size == 0 or (x.min() >= 0 and x.max() <= 1)):  # NaN: neither
        x = (2 * x - 1).astype(np.float32)
    elif x.dtype != np.uint8:
        if x.dtype.kind == "f" and not bool(np.isfinite(x).all()):
            raise BadInput(
                f"expected {key} as uint8, or floats in [0, 1], in {path}, got NaN or infinity; "
                "repair or drop those images"
            )
        raise BadInput(
            f"expected {key} as uint8, or floats in [0, 1], in {path}, got {x.dtype}"
            f"{' outside that range' * (x.dtype.kind == 'f')}; rescale them"
        )
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def _classes(path: Path, key: str, y: np.ndarray) -> np.ndarray:
    """Labels as a flat integer array."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    whole = y.dtype.kind in "iu" or (y.dtype.kind == "f" and bool(np.all(y == np.floor(y))))
    if y.ndim != 1 or not whole or (y.size > 0 and not 0 <= y.min() <= y.max() < 2**53):
        raise BadInput(
            f"expected {key} of shape (n,) or (n, 1) with whole numbers from 0 up in {path}, got "
            f"{y.dtype} of shape {y.shape}; multi-label and regression targets are not classes"
        )
    return y.astype(np.int64)


def read_folder(path: Path, image_size: int) -> Raw:
    """Read a folder with one subfolder of pictures a class, as RGB of side `image_size`.

    Raises:
        BadInput: if a class has no pictures, or a picture cannot be read.

    """
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    files = [sorted(f for f in p.rglob("*") if f.suffix.lower() in PICTURES) for p in folders]
    empty = [p.name for p, found in zip(folders, files, strict=True) if not found]
    if not folders or empty:
        raise BadInput(
            f"expected a subfolder of pictures for each class in {path}, got "
            f"{f'no picture in {empty[0]!r}' if empty else 'no subfolder'}"
        )
    names = [name for found in files for name in found]
    x = np.empty((len(names), 3, image_size, image_size), np.uint8)
    for i, name in enumerate(names):
        try:
            with Image.open(name) as image:
                x[i] = pixels(image, image_size, "RGB")
        except Exception as error:  # a decoder's error may have any type
            raise BadInput(
                f"expected a readable picture at {name}, got: {one_line(error)}; replace or delete"
            ) from error
    y = np.repeat(np.arange(len(files)), [len(found) for found in files])
    return Raw(x, y, tuple(p.name for p in folders))


def pixels(image: Image.Image, side: int, mode: str) -> np.ndarray:
    """A picture as (c, side, side) uint8; mode "L" (c = 1) or "RGB" (c = 3)."""
    small = image.convert(mode).resize((side, side), Image.Resampling.BILINEAR)
    return np.atleast_3d(np.asarray(small)).transpose(2, 0, 1)


def read_csv(path: Path, label: str | None) -> Raw:
    """Read a table: a header, one label column (`label`), every other column a finite number.

    A first column without a name is a row index and is dropped. Without `label`, the one column of
    `LABEL_COLUMNS` that is there is taken. Classes are whole numbers or texts.

    Raises:
        BadInput: if the file is no such table; the message names the row (the header is row 1).

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
    """The name of the label column."""
    found = [name for name in (LABEL_COLUMNS if label is None else (label,)) if name in header]
    if len(found) != 1:
        wanted = f"a column {label!r}" if label else f"one of {', '.join(LABEL_COLUMNS)}"
        shown = ", ".join(header)[:200] or "an empty file"
        raise BadInput(f"expected {wanted} in {path}, got {shown}; name the label column")
    return found[0]


def _table_classes(path: Path, targets: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Classes 0..C-1 of label cells, and their names in sorted order."""
    distinct = sorted(set(targets))
    if len(distinct) > MOST_CLASSES:
        raise BadInput(_too_many(path, len(distinct)))
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


def _too_many(path: Path, got: int) -> str:
    return (
        f"expected at most {MOST_CLASSES} classes in {path}, got {got} different labels; "
        "regression targets and identifiers are not classes"
    )
