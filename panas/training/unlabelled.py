"""Images or rows without labels, as a program holds them, for a network to classify."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from panas.data.facts import Facts
from panas.data.files.cells import Cells
from panas.data.files.pictures import read_picture
from panas.data.files.raw import Raw
from panas.runtime.errors import BadInput


def unlabelled(data: Any, facts: Facts) -> Raw:
    """One or many images or rows, as the facts of a network's data describe them.

    `data` is, of images: a path, a PIL image, an array (h, w), (h, w, c) or (n, h, w, c), a tensor
    (c, h, w) or (n, c, h, w), or a list of them; of a table: a mapping from column to cell, or a
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
        return read_picture(one, facts.shape, deep=facts.dtype != "uint8")[None]
    if isinstance(one, Tensor):
        x = one.detach().cpu().numpy()
        x = x[None] if x.ndim == 3 else x
    else:
        x = np.asarray(one)
        x = x[None] if x.ndim == 2 or _is_one(x, facts) else x
        x = x[..., None] if x.ndim == 3 else x
        x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    if x.ndim != 4 or x.dtype.kind not in "uf":
        raise BadInput(f"expected images of shape {facts.shape}, got {x.dtype} of {x.shape}")
    if x.dtype.kind == "f" and facts.unit:
        if not (x.min() >= 0 and x.max() <= 1):
            raise BadInput("expected images as bytes or as floats in [0, 1], got other floats")
        x = 2 * x - 1
    return np.ascontiguousarray(x.astype(np.float32) if x.dtype.kind == "f" else x)


def _is_one(x: np.ndarray, facts: Facts) -> bool:
    """Whether an array is one image, channels last, and not many grey ones."""
    return x.shape == (*facts.shape[1:], facts.shape[0])
