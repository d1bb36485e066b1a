"""Reading `.npz` archives of images, also in parts as MedMNIST's (`train_images`, `val_images`).

An array of two axes holds vectors (n, e), as a sentence encoder makes them: in an `.npz` under `x`
or `embeddings`, or as an `.npy`, whose labels are in NAME.labels.npy beside it.

An owner's archive is read image by image, by declared facts: no image decides about another.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from panas.data.files.cells import MISSING, is_decoded
from panas.data.files.declared import Form, Misfits, whole_units
from panas.data.files.labels import classes_of, declared_labels, flat, labels_of, text_of
from panas.data.files.raw import (
    TEST,
    TRAIN,
    VALIDATION,
    Raw,
    check_whole,
    one_line,
    row_hashes,
)
from panas.runtime.errors import BadInput

NPY = ".npy"
FARTHEST = 1e6  # of a vector's numbers
PARTS = {"train_images": TRAIN, "val_images": VALIDATION, "test_images": TEST}
MOST_CHANNELS = 4


def read_npz(path: Path, group: str | None = None, *, needed: bool = True) -> Raw:
    """Read images (n, h, w), (n, h, w, c) or (n, c, h, w) and labels (`panas.data.files.labels`).

    Images are uint8, uint16 or floats in [0, 1]. The keys are `images`, `labels` or `x`, `y`, or
    those of a MedMNIST archive, whose parts are official splits.

    Args:
        path: an .npz archive.
        group: array (n,) that says whose a sample is (`patient`; in parts `train_patient`, ...);
            None for none.
        needed: else the group's array may be missing.
    """
    parts = _parts(path, group, needed)
    every = list(parts.values())
    x, y = (np.concatenate(arrays) for arrays in zip(*((p.x, p.y) for p in every), strict=True))
    part = np.repeat([PARTS.get(key, TRAIN) for key in parts], [len(p.y) for p in every])
    official = tuple(PARTS[key] for key in parts if PARTS.get(key)) * ("train_images" in parts)
    whose = [p.groups for p in every if p.groups is not None]
    groups = np.concatenate(whose) if whose else None
    if groups is not None and official:
        check_whole(groups, part, str(path))
    apart, vectors = part if official else None, every[0].vectors
    return Raw(
        x,
        y,
        every[0].class_names,
        part=apart,
        official=official,
        groups=groups,
        vectors=vectors,
    )


def read_split_npz(path: Path) -> tuple[Raw, Raw]:
    """Read the training part of a MedMNIST archive, and the rest of it: `val_*` and `test_*`."""
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
    """Read an archive of one part; of several, it is unknown which was trained on."""
    parts = _parts(path)
    if len(parts) > 1:
        raise BadInput(
            f"expected --others with a file of training samples only, got train and test parts "
            f"({', '.join(parts)}) in {path}; leave --others out"
        )
    return next(iter(parts.values()))


def read_images_npz(path: Path) -> Raw:
    """Read the images of all parts, and no label: all are of class 0 of no classes."""
    arrays = image_arrays(path)
    images = [_pictures(path, key, x) for key, x in arrays.items()]
    check_alike(path, images)
    x = np.concatenate(images)
    vectors = any(array.ndim == 2 for array in arrays.values())
    return Raw(x, np.zeros(len(x), np.int64), (), vectors=vectors)


def image_arrays(path: Path) -> dict[str, np.ndarray]:
    """The images of each part of an archive, as they are in it, by key; labels are not read."""
    arrays = read_arrays(path)
    keys = [k for k in PARTS if k in arrays] or [k for k in WHOLE if k in arrays][:1]
    if not keys:
        raise BadInput(
            f"expected the keys train_images (with val_images, test_images), {' or '.join(WHOLE)} "
            f"in {path}, got {_shown(arrays)}"
        )
    return {key: arrays[key] for key in keys}


WHOLE = ("images", "x", "embeddings")  # keys of images or vectors in an archive of one part


def labels_beside(path: Path) -> Path:
    """Where the labels of an .npy are."""
    return path.with_name(f"{path.stem}.labels{NPY}")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What an archive holds, by key; of an .npy x, and its labels as y, if there are any."""
    if path.suffix.lower() == NPY:
        beside = labels_beside(path)
        return {name: _read_npy(p) for name, p in (("x", path), ("y", beside)) if p.is_file()}
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib, header parser and memory: each has its own types
        raise BadInput(
            f"expected a readable .npz archive without pickled objects at {path}, got: "
            f"{one_line(error)}; {_converted(error)}save it again with numpy.savez"
        ) from error


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except Exception as error:  # header parser and memory: each has its own types
        raise BadInput(
            f"expected a readable .npy without pickled objects at {path}, got: {one_line(error)}; "
            f"{_converted(error)}save it again with numpy.save"
        ) from error


def _converted(error: Exception) -> str:
    """What an array of objects needs before it is saved again; empty where it is another error."""
    is_of_objects = "Object arrays" in str(error)
    return "convert texts of type object by y.astype(str), and " if is_of_objects else ""


def _shown(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(sorted(arrays))[:200] or "none"


def _check_lengths(path: Path, key: str, x: np.ndarray, y: Sequence[object] | np.ndarray) -> None:
    """Refuse another number of labels than of images."""
    if len(x) != len(y):
        raise BadInput(
            f"expected a label for each of {len(x)} {key} in {path}, got {len(y)}; save both anew"
        )


def check_alike(path: Path, images: Sequence[np.ndarray]) -> None:
    """Refuse parts of several shapes or types."""
    if len({(x.shape[1:], x.dtype) for x in images}) > 1:
        raise BadInput(f"expected parts of one shape and type in {path}, got several")


def _parts(path: Path, group: str | None = None, needed: bool = True) -> dict[str, Raw]:
    """The parts of an archive by the keys of their images, with one numbering of classes."""
    arrays = read_arrays(path)
    pairs = keys_of_parts(path, arrays)
    images = [_pictures(path, key, arrays[key]) for key, _ in pairs]
    labels = [labels_of(path, key, arrays[key]) for _, key in pairs]
    for (key, _), x, y in zip(pairs, images, labels, strict=True):
        _check_lengths(path, key, x, y)
    check_alike(path, images)
    every, names = classes_of(path, [label for part in labels for label in part])
    numbered = np.split(every, np.cumsum([len(part) for part in labels])[:-1])
    keys = {key: group_key(key, group) for key, _ in pairs} if group else {}
    if not needed and not any(name in arrays for name in keys.values()):
        keys = {}
    return {
        key: Raw(
            x,
            y,
            names,
            groups=_groups(path, arrays, keys[key], len(y)) if keys else None,
            vectors=arrays[key].ndim == 2,
        )
        for (key, _), x, y in zip(pairs, images, numbered, strict=True)
    }


def group_key(images: str, group: str) -> str:
    """The key of the groups beside images: `train_patient` beside `train_images`."""
    return images.removesuffix("images") + group if images in PARTS else group


def _groups(
    path: Path, arrays: Mapping[str, np.ndarray], key: str, samples: int
) -> Int64[np.ndarray, "n"]:
    """A fixed hash of each sample's group, the same as that of a table's."""
    entries = _group_entries(path, arrays, key, samples)
    if entries.dtype.kind == "i" and entries.size and entries.min() < 0:
        wrong = "negative ones, as where a group is missing; drop those samples"
    else:
        names = [text_of(entry) for entry in entries.tolist()]
        if not any(name.lower() in MISSING for name in names):
            return row_hashes(name.encode() for name in names).view(np.int64)
        wrong = "empty ones; drop those samples"
    raise _no_groups(path, key, samples, wrong)


def _group_entries(
    path: Path, arrays: Mapping[str, np.ndarray], key: str, samples: int
) -> np.ndarray:
    """What an archive calls each sample's group (n,): whole numbers or texts."""
    if key not in arrays:
        wrong = "no such array; add it, or leave data.group out"
    elif (entries := flat(arrays[key])).shape != (samples,):
        wrong = f"an array of shape {entries.shape}; give one entry a sample"
    elif entries.dtype.kind not in "iuSU":
        wrong = f"{entries.dtype}; give whole numbers or texts"
    else:
        return entries
    raise _no_groups(path, key, samples, wrong)


def _no_groups(path: Path, key: str, samples: int, wrong: str) -> BadInput:
    return BadInput(
        f"expected the group of each of {samples} samples as {key!r} in {path}, got {wrong}"
    )


def keys_of_parts(path: Path, arrays: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
    """Keys of the images and labels of each part."""
    medmnist = [(f"{part}_images", f"{part}_labels") for part in ("train", "val", "test")]
    labels = "labels" if "labels" in arrays else "y"
    whole = [("images", "labels"), ("x", "y"), ("embeddings", labels)]
    pairs = [p for p in medmnist if p[0] in arrays] or [p for p in whole if p[0] in arrays][:1]
    if path.suffix.lower() == NPY and "y" not in arrays:
        raise BadInput(
            f"expected the label of each row of {path} in {labels_beside(path).name} beside it, "
            "found none; save them there, or save x and y together as an .npz"
        )
    if not pairs or any(key not in arrays for _, key in pairs):
        raise BadInput(
            "expected the keys train_images and train_labels (with val_*, test_*), images and "
            f"labels, x and y, or embeddings and labels in {path}, got {_shown(arrays)}"
        )
    return pairs


def _pictures(path: Path, key: str, x: np.ndarray) -> np.ndarray:
    """Images as (n, c, h, w), uint8, uint16 or float32 in [-1, 1]; vectors as (n, 1, 1, e)."""
    if x.ndim == 2:
        _check_vectors(path, key, x)
        if not bool((np.abs(x) <= FARTHEST).all()):  # NaN: neither
            raise BadInput(
                f"expected finite numbers of at most {FARTHEST:g} as {key} in {path}, got others; "
                "repair or drop those vectors"
            )
        return as_vectors(x)
    x = _channels_last(path, key, x)
    if x.dtype.kind == "f" and (x.size == 0 or (x.min() >= 0 and x.max() <= 1)):  # NaN: neither
        x = (2 * x - 1).astype(np.float32)
    else:
        _check_whole_numbers(path, key, x)
    return channels_first(x)


def _check_vectors(path: Path, key: str, x: np.ndarray) -> None:
    """Refuse an array that is no matrix of numbers."""
    if x.dtype.kind not in "iuf" or not x.shape[1]:
        raise BadInput(f"expected {key} of vectors (n, e) as numbers in {path}, got {x.dtype}")


def as_vectors(x: np.ndarray) -> np.ndarray:
    """Vectors (n, e) as samples (n, 1, 1, e), float32."""
    return np.ascontiguousarray(x[:, None, None, :], np.float32)


def channels_first(x: np.ndarray) -> np.ndarray:
    """Images (n, h, w, c) as (n, c, h, w)."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def _channels_last(path: Path, key: str, x: np.ndarray) -> np.ndarray:
    """Images as (n, h, w, c); BadInput for any other array. Channels are first where the second
    axis has at most 4 places and the last has more."""
    if x.ndim == 3:
        x = x[..., None]
    elif x.ndim == 4 and x.shape[1] <= MOST_CHANNELS < x.shape[3]:
        x = x.transpose(0, 2, 3, 1)
    if x.ndim != 4 or x.shape[3] > MOST_CHANNELS or 0 in x.shape[1:]:
        raise BadInput(
            f"expected {key} of shape (n, h, w), (n, h, w, c) or (n, c, h, w), c at most "
            f"{MOST_CHANNELS}, in {path}, got {x.shape}; volumes are not read"
        )
    return x


def _check_whole_numbers(path: Path, key: str, x: np.ndarray) -> None:
    """Refuse values other than uint8 and uint16."""
    if x.dtype not in (np.uint8, np.uint16):
        wrong = f"{x.dtype}{' outside that range' * (x.dtype.kind == 'f')}; rescale them"
        if x.dtype.kind == "f" and not bool(np.isfinite(x).all()):
            wrong = "NaN or infinity; repair or drop those images"
        raise BadInput(
            f"expected {key} as uint8, uint16 or floats in [0, 1] in {path}, got {wrong}"
        )


def read_npz_rows(path: Path, form: Form, group: str | None = None) -> Raw:
    """Read an owner's archive as `read_npz` does, but image by image, by what is declared.

    An image without a declared class, or without the group that is asked for, is left out. Floats
    out of their range are clipped, NaN is 0, and deep pictures are clipped to the declared bits.
    Of an archive with official splits, the arrays that are there say that it has some. A group in
    several of them trains. BadInput is for what no image can change: no readable archive with
    these arrays, or arrays of another type, shape or length.

    Args:
        path: an .npz archive.
        form: what the owner declares of images and classes.
        group: array (n,) that says whose a sample is; None for none.
    """
    arrays = read_arrays(path)
    keys = keys_of_parts(path, arrays)
    parts = [_part(path, arrays, *pair, form, group) for pair in keys]
    check_alike(path, [p.x for p in parts])
    x, y, whose, changed, part = map(np.concatenate, zip(*parts, strict=True))
    kept = (y >= 0) & (whose != "")
    misfits = Misfits(len(y), int((~kept).sum()), int((changed & kept).sum()))
    x, y, part, groups = x[kept], y[kept], part[kept], None
    vectors = any(arrays[key].ndim == 2 for key, _ in keys)
    if group is not None:
        groups = row_hashes(name.encode() for name in whose[kept].tolist()).view(np.int64)
        part, moved = whole_units(groups, part)
        if moved:
            misfits.others.append(f"{moved:,} rows train, since their groups are in several parts")
    official = tuple(PARTS[key] for key, _ in keys if PARTS.get(key)) if len(keys) > 1 else ()
    return Raw(
        x,
        y,
        form.class_names,
        part=part if official else None,
        official=official,
        groups=groups,
        vectors=vectors,
        notes=misfits.notes,
    )


class _Part(NamedTuple):
    """Images of one part."""

    x: np.ndarray  # (m, c, h, w), in the declared range
    y: np.ndarray  # (m,) declared classes, int64; -1 for none
    whose: np.ndarray  # (m,) names of groups, "" for none
    changed: np.ndarray  # (m,) whether an image was out of its range, bool
    part: np.ndarray  # (m,) int64


def _part(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    of_images: str,
    of_labels: str,
    form: Form,
    group: str | None,
) -> _Part:
    y = declared_labels(path, of_labels, arrays[of_labels], form)
    _check_lengths(path, of_images, arrays[of_images], y)
    x, changed = _fitted_part(path, of_images, arrays[of_images], form)
    names = ["all"] * len(y)
    if group is not None:
        entries = _group_entries(path, arrays, group_key(of_images, group), len(y))
        names = [_named(entry) for entry in entries.tolist()]
    return _Part(
        x,
        y,
        np.array(names, np.str_),
        changed,
        np.full(len(y), PARTS.get(of_images, TRAIN)),
    )


def _fitted_part(
    path: Path, key: str, given: np.ndarray, form: Form
) -> tuple[np.ndarray, np.ndarray]:
    """Samples (m, c, h, w) in the declared range, and which of them were out of it (m,)."""
    if given.ndim == 2:
        _check_vectors(path, key, given)
        wide = given.astype(np.float64)  # 16 bits hold no number of that size
        fitted = np.clip(np.where(np.isnan(wide), 0, wide), -FARTHEST, FARTHEST)
        return as_vectors(fitted), (fitted != wide).any(axis=1)
    images = _channels_last(path, key, given)
    if images.dtype.kind != "f":
        _check_whole_numbers(path, key, images)
    x = _fitted(images, form)
    changed = (x != images).any(axis=(1, 2, 3))
    scaled = (2 * x - 1 if form.unit else x).astype(np.float32) if x.dtype.kind == "f" else x
    return channels_first(scaled), changed


def _fitted(x: np.ndarray, form: Form) -> np.ndarray:
    """Values in the declared range."""
    if x.dtype.kind == "f":
        finite = np.where(np.isnan(x), x.dtype.type(0), x)
        return np.clip(finite, x.dtype.type(0 if form.unit else -1), x.dtype.type(1))
    return np.minimum(x, np.uint16(2**form.bits - 1)) if x.dtype == np.uint16 else x


def _named(entry: int | str | bytes) -> str:
    """What an entry calls a group; "" for none."""
    name = text_of(entry)
    absent = isinstance(entry, int) and entry < 0
    return "" if absent or name.lower() in MISSING or not is_decoded(name) else name
