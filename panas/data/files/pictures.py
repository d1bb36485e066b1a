"""Reading a folder with one subfolder of pictures a class, as torchvision's `ImageFolder`.

Folders `train/`, `test/` and perhaps `val/` over the classes are official splits. Grey pictures
stay grey. Those of more than 8 bits a value become uint16, as they are in the file. A picture is
turned as its EXIF orientation says; of an animation, the first frame is read.

Hidden files and what archives of macOS add (`._*`, `__MACOSX`) are passed over. Pictures beside the
folders of classes are left out, and counted in `notes`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from panas.data.files.declared import Form, Misfits, whole_units
from panas.data.files.dicom import DICOM, open_dicom
from panas.data.files.labels import classes_of
from panas.data.files.picture_table import (
    TOLD,
    PictureTable,
    Row,
    read_picture_table,
    units_of,
)
from panas.data.files.raw import TEST, TRAIN, VALIDATION, Raw, check_whole, one_line
from panas.data.files.tables import ALONE, TableColumns
from panas.runtime.errors import BadInput

PICTURES = (
    *(".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif"),
    *DICOM,
)
OF_ARCHIVES = "__MACOSX"
ORIENTATION = 0x0112  # of EXIF
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings a picture upright, by its orientation."""
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}  # by the names of their folders
GREY = ("1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I")
DEEP = ("I;16", "I;16B", "I;16L", "I")
LARGEST = 64  # pixels a side; larger pictures are made `USUAL` unless a size is asked for
USUAL = 32
FINE = 64  # the same where networks may begin with an encoder's first layers, which see more

Shape = tuple[int, int, int]


def read_folder(
    path: Path,
    size: int | None = None,
    shape: Shape | None = None,
    named: TableColumns = ALONE,
    usual: int = USUAL,
) -> Raw:
    """Read a folder's pictures, one class a subfolder, or as its `metadata.csv` says.

    Without a shape: with one channel if all are grey, else three.

    Args:
        path: a folder of folders.
        size: side of the squares, in pixels; None: their own size if it is the same for all and at
            most 64 x 64, else `usual`.
        shape: (channels, height, width) to which each is brought; None: as said above.
        named: columns of `metadata.csv` (`panas.data.files.picture_table`).
        usual: see size.
    """
    table = read_picture_table(path, named)
    if table is not None and table.has_labels:
        parts = _named_parts(_folders(path))
        files = pictures_under(path)
        part = [_part_of(path, file, parts) for file in files]
    else:
        parts = _parts(path)
        part, classes, files = map(list, zip(*_listed(path), strict=True))
    rows = [] if table is None else table.checked(path, files)
    x, notes = _read(path, files, shape, size, usual)
    if table is not None and table.has_labels:
        y, names = classes_of(path, [row.label or "" for row in rows])
        notes = (TOLD, *notes)
    else:
        names = tuple(sorted(set(classes)))
        y = np.array([names.index(name) for name in classes], np.int64)
        notes = (*notes, *_beside(path, files))
    official = tuple(sorted({*parts.values()} - {TRAIN}))
    apart = np.array(part, np.int64) if official else None
    groups = units_of(rows) if table is not None and table.has_groups else None
    if groups is not None and apart is not None:
        check_whole(groups, apart, str(path))
    found = _resolved(files)
    return Raw(x, y, names, part=apart, official=official, groups=groups, files=found, notes=notes)


def _resolved(files: Sequence[Path]) -> np.ndarray:
    """Paths from anywhere."""
    return np.array([str(file.resolve()) for file in files], np.str_)


def _part_of(path: Path, file: Path, parts: Mapping[Path, int]) -> int:
    """The part of a picture, by the folder under `path` that it lies in."""
    return parts.get(path / file.relative_to(path).parts[0], TRAIN)


def read_folder_rows(path: Path, form: Form, named: TableColumns = ALONE) -> Raw:
    """Read an owner's folder as `read_folder` does, but file by file, by what is declared.

    A file that does not decode, is in colour or deeper than declared, of no declared class, or
    without exactly one whole row of a `metadata.csv` that is read, is left out, and counted in
    `notes`.

    Folders `train/`, `test/` and `val/` are official splits where no folder beside them has the
    name of a declared class. BadInput if there is no folder at all, or no column that is named.

    Args:
        path: a folder.
        form: what the owner declares of images and classes.
        named: columns of `metadata.csv`.
    """
    table = read_picture_table(path, named, "surrogateescape")
    listed, official = _rows_listed(path, form, table)
    misfits, kept, rows = Misfits(), list[tuple[np.ndarray, int, int, Path]](), list[Row]()
    misfits.others += _beside(path, [file for *_, file in listed])
    for part, label, file in listed:
        misfits.rows += 1
        row = None if table is None else table.row_of(path, file)
        if row is not None and row.label is not None:
            label = row.label
        number = form.class_of(label) if table is None or row is not None else -1
        image = _fitted(file, form) if number >= 0 else None
        if image is None:
            misfits.left_out += 1
            continue
        kept.append((image, number, part, file))
        rows += [] if row is None else [row]
    x, y, of_part, files = map(list, zip(*kept, strict=True)) if kept else ([], [], [], [])
    parts, groups = np.array(of_part, np.int64), None
    if table is not None and table.has_groups:
        groups = units_of(rows)
        parts, moved = whole_units(groups, parts)
        if moved:
            misfits.others.append(f"{moved:,} rows train, since their groups are in several parts")
    values = np.uint8 if form.dtype == "uint8" else np.uint16
    return Raw(
        np.stack(x) if x else np.zeros((0, *form.shape), values),
        np.array(y, np.int64),
        form.class_names,
        part=parts if official else None,
        official=official,
        groups=groups,
        files=_resolved(files),
        notes=misfits.notes,
    )


def _rows_listed(
    path: Path, form: Form, table: PictureTable | None
) -> tuple[list[tuple[int, str, Path]], tuple[int, ...]]:
    """Part, label by its folder, and file of each picture, and the official parts."""
    below = _folders(path)
    parts = _named_parts(below)
    if table is not None and table.has_labels:
        listed = [(_part_of(path, file, parts), "", file) for file in _pictures(path)]
        return listed, tuple(sorted({*parts.values()} - {TRAIN}))
    if not below:
        raise BadInput(f"expected a subfolder of pictures for each class in {path}, got none")
    if parts and all(form.class_of(p.name) < 0 for p in below):
        folders = [(part, f) for folder, part in parts.items() for f in _folders(folder)]
        folders += [(TRAIN, folder) for folder in below if folder not in parts]  # of no class
    else:
        folders, parts = [(TRAIN, folder) for folder in below], {}
    listed = [(part, folder.name, file) for part, folder in folders for file in _pictures(folder)]
    return listed, tuple(sorted({*parts.values()} - {TRAIN}))


def _fitted(file: Path, form: Form) -> np.ndarray | None:
    """A file as (channels, height, width) of the declared shape and depth; None for
    any other file."""
    deep = form.dtype != "uint8"
    try:
        with open_picture(file) as image:
            is_coloured = form.shape[0] == 1 and image.mode not in GREY
            if is_coloured or (image.mode in DEEP and not deep):
                return None
            picture = read_picture(image, form.shape, deep)
    except Exception:  # a decoder's error may have any type
        return None
    return np.minimum(picture, 2**form.bits - 1).astype(np.uint16) if deep else picture


def read_pictures(
    path: Path, size: int | None = None, shape: Shape | None = None, usual: int = USUAL
) -> Raw:
    """Read all pictures under a folder as `read_folder` does, whatever folders they lie in.

    All are of class 0 of no classes.

    Args:
        path: a folder.
        size: as for `read_folder`.
        shape: as for `read_folder`.
        usual: as for `read_folder`.
    """
    files = pictures_under(path)
    x, notes = _read(path, files, shape, size, usual)
    paths = np.array([str(file.resolve()) for file in files])
    return Raw(x, np.zeros(len(x), np.int64), (), files=paths, notes=notes)


def pictures_under(path: Path) -> list[Path]:
    """All pictures under a folder, in the order of their paths; none that is hidden."""
    files = _pictures(path)
    if not files:
        raise BadInput(f"expected pictures in {path}, got none; check the path")
    return files


def _pictures(path: Path) -> list[Path]:
    every = (f for f in path.rglob("*") if f.suffix.lower() in PICTURES)
    return sorted(f for f in every if not any(map(_is_passed, f.relative_to(path).parts)))


def _beside(path: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """A note of how many pictures under `path` are not among the files of classes, if any."""
    count = len({*_pictures(path)} - {*files})
    lie = "1 picture lies" if count == 1 else f"{count:,} pictures lie"
    is_left = "is" if count == 1 else "are"
    note = f"{lie} beside the folders of classes and {is_left} left out"
    return (note,) if count else ()


def _is_passed(name: str) -> bool:
    """Whether a file or folder of such a name is no picture of the owner's."""
    return name.startswith(".") or name == OF_ARCHIVES


def _read(
    path: Path, files: Sequence[Path], shape: Shape | None, size: int | None, usual: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The files of a folder as images (n, c, h, w), and what was done that its owner should know.

    `read_folder` says of what shape they are.
    """
    modes, sizes = zip(*(_header(file) for file in files), strict=True)
    if shape is None:
        same = len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST
        width, height = sizes[0] if same and size is None else (size or usual, size or usual)
        shape = (1 if all(mode in GREY for mode in modes) else 3, height, width)
    elif shape[0] == 1 and not all(mode in GREY for mode in modes):
        raise BadInput(f"expected grey pictures in {path}, got colour; convert them")
    deep = any(mode in DEEP for mode in modes)
    if deep and shape[0] == 3:
        raise BadInput(f"expected pictures of 8 bits a colour in {path}, got deeper; convert them")
    x = np.empty((len(files), *shape), np.uint16 if deep else np.uint8)
    for i, file in enumerate(files):
        try:
            with open_picture(file) as image:
                x[i] = read_picture(image, shape, deep)
        except Exception as error:  # a decoder's error may have any type
            raise unreadable(file, error) from error
    note = f"pictures of other sizes were made {shape[2]} x {shape[1]} pixels"
    return x, (note,) if set(sizes) != {(shape[2], shape[1])} else ()


def _listed(path: Path) -> list[tuple[int, str, Path]]:
    """Part, class and file of each picture, in an order of names alone."""
    below, parts = _folders(path), _parts(path)
    if not parts:
        return [(TRAIN, name, file) for name, file in _classes(path, below)]
    if len(parts) < len(below) or TRAIN not in parts.values():
        raise BadInput(
            f"expected folders of classes, or train/ and test/ with a folder a class each, in "
            f"{path}, got both kinds or no train/; keep one"
        )
    return [
        (part, name, file)
        for folder, part in parts.items()
        for name, file in _classes(folder, _folders(folder))
    ]


def _parts(path: Path) -> dict[Path, int]:
    """The folders of official parts; none where their names are those of classes."""
    below = _folders(path)
    parts = _named_parts(below)
    classes = len(parts) < len(below) and not any(_folders(p) for p in parts)
    return {} if classes else parts


def _named_parts(folders: Sequence[Path]) -> dict[Path, int]:
    return {p: PARTS[p.name.lower()] for p in folders if p.name.lower() in PARTS}


def _folders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not _is_passed(p.name))


def _classes(path: Path, folders: list[Path]) -> list[tuple[str, Path]]:
    """Class and file of each picture under `path`, which has a folder a class."""
    files = [_pictures(p) for p in folders]
    empty = [p.name for p, result in zip(folders, files, strict=True) if not result]
    if not folders or empty:
        raise BadInput(
            f"expected a subfolder of pictures for each class in {path}, got "
            f"{f'no picture in {empty[0]!r}' if empty else 'no subfolder'}; pictures are "
            f"{', '.join(PICTURES)}"
        )
    return [(p.name, f) for p, result in zip(folders, files, strict=True) for f in result]


def _header(file: Path) -> tuple[str, tuple[int, int]]:
    """Mode and (width, height) of a picture, without its pixels."""
    try:
        with open_picture(file) as image:
            width, height = image.size
            turned = width != height and _orientation(image) > 4
            return image.mode, (height, width) if turned else (width, height)
    except Exception as error:  # a decoder's error may have any type
        raise unreadable(file, error) from error


def unreadable(file: Path, error: Exception) -> BadInput:
    """The error for a file that does not decode."""
    if isinstance(error, BadInput):
        return error
    return BadInput(
        f"expected a readable picture at {file}, got: {one_line(error)}; replace or delete it"
    )


def open_picture(file: Path) -> Image.Image:
    """A file's picture, to be closed; its pixels may not be decoded yet."""
    return open_dicom(file) if file.suffix.lower() in DICOM else Image.open(file)


def upright(image: Image.Image) -> Image.Image:
    """A picture turned as its EXIF orientation says; without one, as it is."""
    turn = TURNS.get(_orientation(image))
    return image if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> int:
    """1 to 8, as of EXIF; 1 where there is none, or where it does not parse."""
    image.load()  # errors of pixels are raised here, those of notes are not
    try:
        number = image.getexif().get(ORIENTATION, 1)
    except Exception:  # a damaged note says nothing of the pixels
        return 1
    return number if isinstance(number, int) else 1


def read_picture(image: Image.Image, shape: Shape, deep: bool) -> np.ndarray:
    """A picture as (channels, height, width).

    Args:
        image: of any mode and size.
        shape: to which it is brought.
        deep: uint16, else uint8.
    """
    c, h, w = shape
    image = upright(image)
    if image.mode == "F":
        raise ValueError("numbers with fractions, of no known range")
    if not deep:
        return pixels(image, (h, w), "L" if c == 1 else "RGB")
    if image.mode not in DEEP:  # 8 bits among deeper ones: the same share of the range
        return pixels(image, (h, w), "L").astype(np.uint16) * 257
    small = image.convert("F").resize((w, h), Image.Resampling.BILINEAR)
    values = np.round(np.asarray(small))
    if values.min() < 0 or values.max() > np.iinfo(np.uint16).max:
        raise ValueError("values of more than 16 bits")
    return values.astype(np.uint16)[None]


def pixels(image: Image.Image, size: tuple[int, int], mode: str) -> np.ndarray:
    """A picture as (c, height, width) uint8.

    Args:
        image: of any mode and size.
        size: (height, width) to which it is brought, in pixels.
        mode: "L" (c = 1) or "RGB" (c = 3).
    """
    small = image.convert(mode).resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.atleast_3d(np.asarray(small)).transpose(2, 0, 1)
