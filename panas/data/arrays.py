"""A user's own data as `Samples`: from a torch data set, or from a pair of arrays.

>>> import numpy as np
>>> import panas
>>> images = np.zeros((5, 8, 8, 3), dtype=np.uint8)  # channels last
>>> samples = panas.as_samples((images, [0, 1, 2, 0, 1]))
>>> samples.shape, samples.classes
((3, 8, 8), 3)
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from panas.data.facts import Facts
from panas.data.files.pictures import upright
from panas.data.samples import Samples
from panas.runtime.errors import BadInput

CHANNELS = (1, 3, 4)  # of pictures
LARGE = 10.0  # above it floats are no scaled images


def as_samples(data: Any, *, classes: int | None = None, unit: bool | None = None) -> Samples:
    """Labelled images of one shape, in memory.

    Bytes stay bytes; floats from 0 to 1 are scaled to [-1, 1], which networks take; other floats
    stay as they are. BadInput for other data.

    Args:
        data: `Samples`; a pair of images (n, c, h, w) or (n, h, w) and labels (n,); or a torch data
            set (anything with a length and `[i]`) of pairs image and label, where an image is a
            tensor (c, h, w) or (h, w), a numpy array or a PIL image, channels last. In a pair a
            numpy array is read as (n, h, w, c) where its last axis is 1, 3 or 4 long and its second
            is not.
        classes: number of classes; None: the largest label plus one.
        unit: whether floats go from 0 to 1; None: as all of them together look. State it for
            private samples, since one sample may decide how the others look.
    """
    if isinstance(data, Samples):
        return data
    images, labels = _images_and_labels(data)
    if not images or len(images) != len(labels):
        raise BadInput(
            f"expected as many labels as images, at least one, got {len(images)} images and "
            f"{len(labels)} labels"
        )
    values = [_image(image) for image in images]
    shapes = {tuple(image.shape) for image in values}
    if len(shapes) > 1:
        raise BadInput(
            f"expected images of one shape, got {', '.join(map(str, sorted(shapes)[:3]))}; resize "
            "them"
        )
    x = torch.stack(values)
    if x.dtype == torch.uint16:
        raise BadInput(
            "expected images as bytes or floats, got 16-bit numbers; divide by the largest value "
            "of their depth, as 4095 for 12 bits"
        )
    if x.dtype != torch.uint8:
        x = x.float()
        if not x.isfinite().all():
            raise BadInput("expected finite images, got NaN or infinity; clean the data")
        x = 2 * x - 1 if (in_unit_range(x) if unit is None else unit) else x
    y = _labels(labels)
    most = int(y.max()) + 1 if classes is None else classes
    if int(y.min()) < 0 or int(y.max()) >= most:
        raise BadInput(f"expected labels of 0 to {most - 1}, got {int(y.min())} to {int(y.max())}")
    return Samples(x, y, most)


def with_facts(data: Any) -> tuple[Samples, Facts]:
    """Public data as `as_samples` reads them, and their facts.

    Classes are named by the data set's `classes`, if it has such names, else by number.
    """
    samples = as_samples(data, unit=False)
    floats = samples.x.dtype != torch.uint8
    if floats and not isinstance(data, Samples) and float(samples.x.abs().max()) > LARGE:
        warnings.warn(
            f"floats above {LARGE:g} are taken as they are, and networks learn badly of them: "
            "divide images by their largest possible value, such as 255",
            stacklevel=4,
        )
    unit = not isinstance(data, Samples) and (not floats or in_unit_range(samples.x))
    if floats and unit:
        samples = replace(samples, x=2 * samples.x - 1)
    named = getattr(data, "classes", None)
    texts = isinstance(named, list | tuple) and all(isinstance(name, str) for name in named)
    names = tuple(named or ()) if texts and len(named or ()) == samples.classes else None
    facts = Facts(
        class_names=names or tuple(map(str, range(samples.classes))),
        shape=samples.shape,
        dtype="float32" if floats else "uint8",
        unit=unit,
    )
    return samples, facts


def _images_and_labels(data: Any) -> tuple[list[Any], list[Any]]:
    if isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "shape"):
        # Tensors, since those have their channels first.
        images = data[0] if isinstance(data[0], Tensor) else _stacked(data[0])
        return list(images), list(data[1])
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise BadInput(
            f"expected a torch data set or a pair of arrays, got {type(data).__name__}; wrap it in "
            "torch.utils.data.TensorDataset"
        )
    pairs = [data[i] for i in range(len(data))]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise BadInput("expected a data set of (image, label) pairs, got other items")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _stacked(images: Any) -> Tensor:
    """An array of images as a tensor, channels first."""
    array = np.array(images)
    if array.dtype.kind not in "buif":
        raise BadInput(f"expected images as numbers, got {array.dtype}; convert them")
    if array.ndim == 4 and array.shape[3] in CHANNELS and array.shape[1] not in CHANNELS:
        array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(array))


def in_unit_range(x: Tensor) -> bool:
    """Whether all values are from 0 to 1."""
    return bool(x.min() >= 0 and x.max() <= 1)


def _image(image: Any) -> Tensor:
    if isinstance(image, Tensor):
        tensor = image.detach().cpu()
    else:
        array = np.asarray(upright(image) if isinstance(image, Image.Image) else image)
        if array.dtype.kind not in "buif":
            raise BadInput(f"expected images as numbers, got {type(image).__name__}; convert them")
        tensor = torch.from_numpy(np.array(array))
        if tensor.ndim == 3:
            tensor = tensor.permute(2, 0, 1)
    if tensor.ndim == 2:
        tensor = tensor[None]
    if tensor.ndim != 3:
        raise BadInput(
            f"expected images (c, h, w) or (h, w), got {tuple(tensor.shape)}; tables go to "
            "`panas run --dataset`"
        )
    return tensor


def _labels(labels: list[Any]) -> Tensor:
    each = [np.asarray(label) for label in labels]
    kinds, shapes = {str(one.dtype) for one in each}, {one.shape for one in each}
    if shapes != {()} or any(one.dtype.kind not in "bui" for one in each):
        raise BadInput(
            f"expected one whole number a sample as label, got {', '.join(sorted(kinds)[:3])} of "
            f"shape {sorted(shapes)[0]}; give classes 0, 1, ..., of texts as np.unique(labels, "
            "return_inverse=True)[1] makes them"
        )
    return torch.from_numpy(np.array(each, dtype=np.int64))
