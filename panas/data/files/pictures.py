"""Reading a folder with one subfolder of pictures a class, as torchvision's `ImageFolder`.

Folders `train/`, `test/` and perhaps `val/` over the classes are official splits. Grey pictures
stay grey. Those of more than 8 bits a value become uint16, as they are in the file.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from panas.data.files.declared import Form, Misfits
from panas.data.files.raw import TEST, TRAIN, VALIDATION, Raw, one_line
from panas.runtime.errors import BadInput

PICTURES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}  # by the names of their folders
GREY = ("1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I")
DEEP = ("I;16", "I;16B", "I;16L", "I")
LARGEST = 64  # pixels a side; larger pictures are made `USUAL` unless a size is asked for
USUAL = 32

Shape = tuple[int, int, int]


def read_folder(path: Path, size: int | None = None, shape: Shape | None = None) -> Raw:
    """Read a folder's pictures, one class a subfolder.

    Without a shape: with one channel if all are grey, else three.

    Args:
        path: a folder of folders.
        size: side of the squares, in pixels; None: their own size if it is the same for all and at
            most 64 x 64, else 32.
        shape: (channels, height, width) to which each is brought; None: as said above.
    """
    part, classes, files = zip(*_listed(path), strict=True)
    x, notes = _read(path, files, size, shape)
    names = sorted(set(classes))
    y, parts = np.array([names.index(name) for name in classes], np.int64), np.array(part, np.int64)
    official = tuple(sorted({*_parts(path).values()} - {TRAIN}))
    apart = parts if official else None
    paths = np.array([str(file.resolve()) for file in files])
    return Raw(x, y, tuple(names), part=apart, official=official, files=paths, notes=notes)


def read_folder_rows(path: Path, form: Form) -> Raw:
    """Read an owner's folder as `read_folder` does, but file by file, by what is declared.

    A file that does not decode, is in colour or deeper than declared, or lies in the folder of no
    declared class is left out, and counted in `notes`.

    Folders `train/`, `test/` and `val/` are official splits where no folder beside them has the
    name of a declared class. BadInput if there is no folder at all.
    """
    below = _folders(path)
    if not below:
        raise BadInput(f"expected a subfolder of pictures for each class in {path}, got none")
    parts = _named_parts(below)
    official = bool(parts) and all(form.class_of(p.name) < 0 for p in below)
    if official:
        folders = [(part, f) for folder, part in parts.items() for f in _folders(folder)]
        folders += [(TRAIN, folder) for folder in below if folder not in parts]  # of no class
    else:
        folders = [(TRAIN, folder) for folder in below]
    misfits, x, y, of_part = Misfits(), list[np.ndarray](), list[int](), list[int]()
    files = list[str]()
    for part, folder in folders:
        number = form.class_of(folder.name)
        for file in _pictures(folder):
            misfits.rows += 1
            image = _fitted(file, form) if number >= 0 else None
            if image is None:
                misfits.left_out += 1
                continue
            x.append(image)
            y.append(number)
            of_part.append(part)
            files.append(str(file.resolve()))
    values = np.uint8 if form.dtype == "uint8" else np.uint16
    return Raw(
        np.stack(x) if x else np.zeros((0, *form.shape), values),
        np.array(y, np.int64),
        form.class_names,
        part=np.array(of_part, np.int64) if official else None,
        official=tuple(sorted({*parts.values()} - {TRAIN})) if official else (),
        files=np.array(files, np.str_),
        notes=misfits.notes,
    )


def _fitted(file: Path, form: Form) -> np.ndarray | None:
    """A file as (channels, height, width) of the declared shape and depth; None for
    any other file."""
    deep = form.dtype != "uint8"
    try:
        with Image.open(file) as image:
            is_coloured = form.shape[0] == 1 and image.mode not in GREY
            if is_coloured or (image.mode in DEEP and not deep):
                return None
            picture = read_picture(image, form.shape, deep)
    except Exception:  # a decoder's error may have any type
        return None
    return np.minimum(picture, 2**form.bits - 1).astype(np.uint16) if deep else picture


def read_pictures(path: Path, size: int | None = None, shape: Shape | None = None) -> Raw:
    """Read all pictures under a folder as `read_folder` does, whatever folders they lie in.

    All are of class 0 of no classes.

    Args:
        path: a folder.
        size: as for `read_folder`.
        shape: as for `read_folder`.
    """
    files = pictures_under(path)
    x, notes = _read(path, files, size, shape)
    paths = np.array([str(file.resolve()) for file in files])
    return Raw(x, np.zeros(len(x), np.int64), (), files=paths, notes=notes)


def pictures_under(path: Path) -> list[Path]:
    """All pictures under a folder, in the order of their paths; none that is hidden."""
    every = _pictures(path)
    files = [f for f in every if not any(p.startswith(".") for p in f.relative_to(path).parts)]
    if not files:
        raise BadInput(f"expected pictures in {path}, got none; check the path")
    return files


def _pictures(path: Path) -> list[Path]:
    return sorted(f for f in path.rglob("*") if f.suffix.lower() in PICTURES)


def _read(
    path: Path, files: Sequence[Path], size: int | None, shape: Shape | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The files of a folder as images (n, c, h, w), and what was done that its owner should know.

    `read_folder` says of what shape they are.
    """
    modes, sizes = zip(*(_header(file) for file in files), strict=True)
    if shape is None:
        same = len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST
        width, height = sizes[0] if same and size is None else (size or USUAL, size or USUAL)
        shape = (1 if all(mode in GREY for mode in modes) else 3, height, width)
    elif shape[0] == 1 and not all(mode in GREY for mode in modes):
        raise BadInput(f"expected grey pictures in {path}, got colour; convert them")
    deep = any(mode in DEEP for mode in modes)
    if deep and shape[0] == 3:
        raise BadInput(f"expected pictures of 8 bits a colour in {path}, got deeper; convert them")
    x = np.empty((len(files), *shape), np.uint16 if deep else np.uint8)
    for i, file in enumerate(files):
        try:
            with Image.open(file) as image:
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
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def _classes(path: Path, folders: list[Path]) -> list[tuple[str, Path]]:
    """Class and file of each picture under `path`, which has a folder a class."""
    files = [_pictures(p) for p in folders]
    empty = [p.name for p, result in zip(folders, files, strict=True) if not result]
    if not folders or empty:
        raise BadInput(
            f"expected a subfolder of pictures for each class in {path}, got "
            f"{f'no picture in {empty[0]!r}' if empty else 'no subfolder'}"
        )
    return [(p.name, f) for p, result in zip(folders, files, strict=True) for f in result]


def _header(file: Path) -> tuple[str, tuple[int, int]]:
    """Mode and (width, height) of a picture, without its pixels."""
    try:
        with Image.open(file) as image:
            return image.mode, image.size
    except Exception as error:
        raise unreadable(file, error) from error


def unreadable(file: Path, error: Exception) -> BadInput:
    """The error for a file that does not decode."""
    return BadInput(
        f"expected a readable picture at {file}, got: {one_line(error)}; replace or delete it"
    )


def read_picture(image: Image.Image, shape: Shape, deep: bool) -> np.ndarray:
    """A picture as (channels, height, width).

    Args:
        image: of any mode and size.
        shape: to which it is brought.
        deep: uint16, else uint8.
    """
    c, h, w = shape
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
