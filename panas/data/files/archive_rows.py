"""Archives read image by image, by declared facts: no image decides about another."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panas.data.files.archives import (
    PARTS,
    channels_first,
    channels_last,
    check_alike,
    check_labels,
    check_whole_numbers,
    flat,
    group_entries,
    group_key,
    keys_of_parts,
    read_arrays,
    text_of,
)
from panas.data.files.cells import MISSING, is_decoded
from panas.data.files.declared import Form, Misfits, whole_units
from panas.data.files.raw import TRAIN, Raw, row_hashes
from panas.runtime.errors import BadInput


def read_npz_rows(path: Path, form: Form, group: str | None = None) -> Raw:
    """Read an owner's archive as `read_npz` does, but image by image, by what is declared.

    What becomes of an image follows from it, its label and group, and what is declared (`form`).
    One without a declared class, or without the group that is asked for, is left out. Floats out of
    their range are clipped, NaN is 0, and deep pictures are clipped to the declared bits. `notes`
    count all that, for the owner alone. No image may be left. Classes (n,) are as declared.

    Of an archive with official splits, the arrays that are there say that it has some. A group in
    several of them trains. BadInput is for what no image can change: no readable archive with
    these arrays, or arrays of another type, shape or length.
    """
    arrays = read_arrays(path)
    parts = [_part(path, arrays, keys, form, group) for keys in keys_of_parts(path, arrays)]
    check_alike(path, [p.x for p in parts])
    x, y, whose, changed, part = (
        np.concatenate([getattr(p, name) for p in parts])
        for name in ("x", "y", "whose", "changed", "part")
    )
    kept = (y >= 0) & (whose != "")
    misfits = Misfits(len(y), int((~kept).sum()), int((changed & kept).sum()))
    x, y, part, groups = x[kept], y[kept], part[kept], None
    if group is not None:
        groups = row_hashes(name.encode() for name in whose[kept].tolist()).view(np.int64)
        part, moved = whole_units(groups, part)
        if moved:
            misfits.others.append(f"{moved:,} rows train, since their groups are in several parts")
    keys = [of_images for of_images, _ in keys_of_parts(path, arrays)]
    official = tuple(PARTS[key] for key in keys if PARTS.get(key)) if len(keys) > 1 else ()
    return Raw(
        x,
        y,
        form.class_names,
        part=part if official else None,
        official=official,
        groups=groups,
        notes=misfits.notes,
    )


@dataclass(frozen=True)
class _Part:
    """Images of one part, as they were found."""

    x: np.ndarray  # (m, c, h, w), in the declared range
    y: np.ndarray  # (m,) declared classes, int64; -1 for none
    whose: np.ndarray  # (m,) names of groups, "" for none
    changed: np.ndarray  # (m,) whether an image was out of its range, bool
    part: np.ndarray  # (m,) int64


def _part(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    keys: tuple[str, str],
    form: Form,
    group: str | None,
) -> _Part:
    of_images, of_labels = keys
    result = channels_last(path, of_images, arrays[of_images])
    if result.dtype.kind != "f":
        check_whole_numbers(path, of_images, result)
    x = _fitted(result, form)
    y = flat(arrays[of_labels])
    check_labels(path, of_labels, y)
    if len(x) != len(y):
        raise BadInput(f"expected a label for each of {len(x)} {of_images} in {path}, got {len(y)}")
    names = ["all"] * len(y)
    if group is not None:
        entries = group_entries(path, arrays, group_key(of_images, group), len(y))
        names = [_named(entry) for entry in entries.tolist()]
    return _Part(
        channels_first(_scaled(x, form)),
        np.array([form.class_of(str(label)) for label in y.tolist()], np.int64),
        np.array(names, np.str_),
        (x != result).any(axis=(1, 2, 3)),
        np.full(len(y), PARTS.get(of_images, TRAIN)),
    )


def _fitted(x: np.ndarray, form: Form) -> np.ndarray:
    """Values in the declared range."""
    if x.dtype.kind == "f":
        finite = np.where(np.isnan(x), x.dtype.type(0), x)
        return np.clip(finite, x.dtype.type(0 if form.unit else -1), x.dtype.type(1))
    return np.minimum(x, np.uint16(2**form.bits - 1)) if x.dtype == np.uint16 else x


def _scaled(x: np.ndarray, form: Form) -> np.ndarray:
    """Floats as float32 in [-1, 1]; whole numbers as they are."""
    if x.dtype.kind != "f":
        return x
    return (2 * x - 1 if form.unit else x).astype(np.float32)


def _named(entry: int | str | bytes) -> str:
    """What an entry calls a group; "" for none."""
    name = text_of(entry)
    absent = isinstance(entry, int) and entry < 0
    return "" if absent or name.lower() in MISSING or not is_decoded(name) else name
