"""Archives read image by image, by declared facts: no image decides about another."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from panas.data.files.archives import (
    PARTS,
    channels_first,
    channels_last,
    check_alike,
    check_labels,
    check_lengths,
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


def read_npz_rows(path: Path, form: Form, group: str | None = None) -> Raw:
    """Read an owner's archive as `read_npz` does, but image by image, by what is declared.

    An image without a declared class, or without the group that is asked for, is left out. Floats
    out of their range are clipped, NaN is 0, and deep pictures are clipped to the declared bits.
    Of an archive with official splits, the arrays that are there say that it has some. A group in
    several of them trains. BadInput is for what no image can change: no readable archive with
    these arrays, or arrays of another type, shape or length.
    """
    arrays = read_arrays(path)
    keys = keys_of_parts(path, arrays)
    parts = [_part(path, arrays, *pair, form, group) for pair in keys]
    check_alike(path, [p.x for p in parts])
    x, y, whose, changed, part = map(np.concatenate, zip(*parts, strict=True))
    kept = (y >= 0) & (whose != "")
    misfits = Misfits(len(y), int((~kept).sum()), int((changed & kept).sum()))
    x, y, part, groups = x[kept], y[kept], part[kept], None
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
    images, y = channels_last(path, of_images, arrays[of_images]), flat(arrays[of_labels])
    if images.dtype.kind != "f":
        check_whole_numbers(path, of_images, images)
    check_labels(path, of_labels, y)
    check_lengths(path, of_images, images, y)
    x, names = _fitted(images, form), ["all"] * len(y)
    if group is not None:
        entries = group_entries(path, arrays, group_key(of_images, group), len(y))
        names = [_named(entry) for entry in entries.tolist()]
    scaled = (2 * x - 1 if form.unit else x).astype(np.float32) if x.dtype.kind == "f" else x
    return _Part(
        channels_first(scaled),
        np.array([form.class_of(str(label)) for label in y.tolist()], np.int64),
        np.array(names, np.str_),
        (x != images).any(axis=(1, 2, 3)),
        np.full(len(y), PARTS.get(of_images, TRAIN)),
    )


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
