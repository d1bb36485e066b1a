"""Images or rows without labels: as a program holds them, for a network to classify, or of a file.

All labels of what is returned are 0, and mean nothing.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from panas.data.facts import BYTE, Facts, fit
from panas.data.files.cells import Cells
from panas.data.files.pictures import DEEP, read_picture
from panas.data.files.raw import Raw
from panas.data.load import DataSettings
from panas.data.samples import Samples, value_hashes
from panas.data.sources import read, reading_of
from panas.runtime.errors import BadInput

CALLED = "unlabelled data"


def load_unlabelled(
    settings: DataSettings, facts: Facts, public: Samples, rng: np.random.Generator
) -> Samples:
    """The unlabelled public samples that the settings name, at most as many as they say.

    Labels that the data have are not read; folders of classes are folders like any other. A sample
    of `public` is none of them; `rng` draws those to keep. BadInput if the data do not fit `facts`,
    or none is left.
    """
    if settings.unlabelled_data is None or not settings.unlabelled_limit:
        return facts.no_samples()
    samples = fit(_read(settings.unlabelled_data, settings, facts), facts, CALLED)
    fresh = np.flatnonzero(~np.isin(value_hashes(samples), value_hashes(public)))
    if not len(fresh):
        raise BadInput(
            f"expected {CALLED} beside the public samples, got the same; leave them out, or lower "
            "data.public_limit"
        )
    if len(fresh) > settings.unlabelled_limit:
        fresh = np.sort(rng.choice(fresh, settings.unlabelled_limit, replace=False))
    return samples.take(fresh)


def _read(dataset: str, settings: DataSettings, facts: Facts) -> Raw:
    """The data, with labels of 0, read so that they fit the facts if they can."""
    names = tuple(column.name for column in facts.columns)
    table = replace(settings.public_reading.table, labelled=False, features=names)
    how = replace(
        reading_of(facts, table),
        data_root=settings.data_root,
        image_size=facts.shape[1],
        shape=None if facts.columns else facts.shape,
    )
    raw = read(dataset, how)
    for note in raw.notes:
        warnings.warn(f"{CALLED}: {note}", stacklevel=3)
    zeros = np.zeros(len(raw.y), np.int64)
    return replace(raw, y=zeros, class_names=facts.class_names, groups=None, part=None)


def unlabelled(data: Any, facts: Facts) -> Raw:
    """One or many images or rows, as the facts of a network's data describe them.

    `data` is, of images: a path, a PIL image, an array (h, w), (h, w, c) or (n, h, w, c), a tensor
    (c, h, w) or (n, c, h, w), or a list of them (an array that has the shape of the facts with
    channels first alone is read so); of a table: a mapping from column to cell, or a
    list of them (cells are numbers, texts, or None). Pictures, not arrays, are brought to size.
    """
    many: Sequence[Any] = data if isinstance(data, list | tuple) else [data]
    if not many:
        raise BadInput("expected images or rows to classify, got none")
    if facts.columns:
        return _table(many, facts)
    x = np.concatenate([_images(one, facts) for one in many])
    return Raw(x, np.zeros(len(x), np.int64), facts.class_names)


def _table(rows: Sequence[Any], facts: Facts) -> Raw:
    if not all(isinstance(row, Mapping) for row in rows):
        raise BadInput(f"expected rows as mappings from column to cell, got {type(rows[0])}")
    kinds, texts, cells = {}, {}, []
    for fact in facts.columns:
        column = Cells(fact.name, texts=fact.kind == "text", commas=False)
        for row in rows:
            if fact.name not in row:
                raise BadInput(f"expected a cell of column {fact.name!r} in each row, got none")
            column.add("" if row[fact.name] is None else str(row[fact.name]))
        kinds[fact.name], x, texts[fact.name] = column.column(range(len(rows)), "the data")
        cells.append(x)
    names = tuple(fact.name for fact in facts.columns)
    y, known = np.zeros(len(rows), np.int64), {n: t for n, t in texts.items() if t}
    return Raw(np.stack(cells, axis=1), y, facts.class_names, names, kinds=kinds, texts=known)


def _images(one: Any, facts: Facts) -> np.ndarray:
    """Images (n, c, h, w) from one item."""
    if isinstance(one, str | Path):
        with Image.open(one) as image:
            return _images(image, facts)
    if isinstance(one, Image.Image):
        return _picture(one, facts)[None]
    if isinstance(one, Tensor):
        x = one.detach().cpu().numpy()
        x = x[None] if x.ndim == 3 else x
    else:
        x = _channels_last(np.asarray(one), facts)
        c, h, w = facts.shape
        is_one = x.ndim == 2 or x.shape == (h, w, c)  # and not many grey ones
        x = x[None] if is_one else x
        x = x[..., None] if x.ndim == 3 else x
        x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    if x.ndim != 4 or x.dtype.kind not in "uf":
        raise BadInput(f"expected images of shape {facts.shape}, got {x.dtype} of {x.shape}")
    if x.dtype.kind == "f" and facts.unit:
        if not (x.min() >= 0 and x.max() <= 1):
            raise BadInput("expected images as bytes or as floats in [0, 1], got other floats")
        x = 2 * x - 1
    return np.ascontiguousarray(x.astype(np.float32) if x.dtype.kind == "f" else x)


def _picture(image: Image.Image, facts: Facts) -> np.ndarray:
    """A picture (c, h, w); of 8 bits as floats in [-1, 1] where the facts are of floats."""
    if facts.dtype == "uint8" or facts.bits > BYTE or image.mode in DEEP:
        return read_picture(image, facts.shape, deep=facts.dtype != "uint8")
    if not facts.unit:
        raise BadInput(
            "expected arrays, as of a network that learnt of floats outside [0, 1], got a picture; "
            "scale it as those were"
        )
    x = read_picture(image, facts.shape, deep=False)
    return (x * np.float32(2 / 255) - 1).astype(np.float32)


def _channels_last(x: np.ndarray, facts: Facts) -> np.ndarray:
    """An array of one or many images, channels last if it had them first."""
    c, h, w = facts.shape
    first = x.ndim >= 3 and x.shape[-3:] == facts.shape and x.shape[-3:] != (h, w, c)
    return np.moveaxis(x, -3, -1) if first else x
