"""Data sets by name: `digits` (comes with scikit-learn) and torchvision's classification sets.

A named set is read from where torchvision keeps it under a data root and is never downloaded. Its
train and test parts are pooled: each site makes its own split later. The four MNIST-like families
are read from their IDX files, packed (.gz) or not, without torchvision. Picture files come out as
squares of side `image_size`; other sets keep their own size. Left out, because they have no single
class for an image: CelebA, LSUN, Kinetics, and sets for captions, detection, segmentation and flow.
"""

import gzip
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panas.data.files.pictures import pixels, upright
from panas.data.files.raw import Raw, one_line
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class Idx:
    """A set in IDX files: ROOT/folder/raw/<prefix>-images-idx3-ubyte and its labels."""

    folder: str
    prefixes: tuple[str, ...] = ("train", "t10k")
    labels: str = "labels-idx1-ubyte"
    names: tuple[str, ...] = ()  # names of labels 0, 1, ...; none: the labels themselves


@dataclass(frozen=True)
class Vision:
    """A set that a class of `torchvision.datasets` reads."""

    reader: str
    place: str  # what must be under the data root for the set to be there
    parts: tuple[Mapping[str, Any], ...]
    """Arguments of the reader, beside the root, one mapping for each part to pool."""
    mode: str = "RGB"  # colour mode of picture files: "RGB" or "L"
    own_classes: bool = False
    """Whether each part numbers classes of its own, instead of all parts sharing them."""


FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker")
MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
_TRAIN = ({"train": True}, {"train": False})
_TRAIN_TEST = ({"split": "train"}, {"split": "test"})
_TRAINVAL_TEST = ({"split": "trainval"}, {"split": "test"})
_TRAIN_VAL = ({"split": "train"}, {"split": "val"})
_ALL = ({"split": "train"}, {"split": "val"}, {"split": "test"})
_ONE: tuple[Mapping[str, Any], ...] = ({},)


def _emnist(part: str, names: str) -> Idx:
    return Idx("EMNIST", (f"emnist-{part}-train", f"emnist-{part}-test"), names=tuple(names))


SETS: dict[str, Idx | Vision] = {
    "mnist": Idx("MNIST"),
    "fashion-mnist": Idx("FashionMNIST", names=(*FASHION, "Bag", "Ankle boot")),
    "kmnist": Idx("KMNIST", names=("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")),
    "qmnist": Idx("QMNIST", ("qmnist-train", "qmnist-test"), "labels-idx2-int"),
    "emnist-balanced": _emnist("balanced", MERGED),
    "emnist-bymerge": _emnist("bymerge", MERGED),
    "emnist-byclass": _emnist(
        "byclass", string.digits + string.ascii_uppercase + string.ascii_lowercase
    ),
    "emnist-digits": _emnist("digits", string.digits),
    "emnist-letters": _emnist("letters", " " + string.ascii_lowercase),
    "emnist-mnist": _emnist("mnist", string.digits),
    "caltech101": Vision("Caltech101", "caltech101", _ONE),
    "caltech256": Vision("Caltech256", "caltech256", _ONE),
    "cifar10": Vision("CIFAR10", "cifar-10-batches-py", _TRAIN),
    "cifar100": Vision("CIFAR100", "cifar-100-python", _TRAIN),
    "clevr-count": Vision("CLEVRClassification", "clevr", _TRAIN_VAL),
    "country211": Vision(
        "Country211", "country211", tuple({"split": s} for s in ("train", "valid", "test"))
    ),
    "dtd": Vision("DTD", "dtd", _ALL),
    "eurosat": Vision("EuroSAT", "eurosat", _ONE),
    # The test part has labels in one of its published forms only.
    "fer2013": Vision("FER2013", "fer2013", ({"split": "train"},), mode="L"),
    "fgvc-aircraft": Vision("FGVCAircraft", "fgvc-aircraft-2013b", _TRAINVAL_TEST),
    "flowers102": Vision("Flowers102", "flowers-102", _ALL),
    "food101": Vision("Food101", "food-101", _TRAIN_TEST),
    "gtsrb": Vision("GTSRB", "gtsrb", _TRAIN_TEST),
    "imagenet": Vision("ImageNet", "meta.bin", _TRAIN_VAL),
    "imagenette": Vision("Imagenette", "imagenette2", _TRAIN_VAL),
    "inaturalist": Vision(
        "INaturalist",
        "2021_train_mini",
        ({"version": "2021_train_mini"}, {"version": "2021_valid"}),
    ),
    "lfw-people": Vision("LFWPeople", "lfw-py", _ONE),
    "omniglot": Vision(
        "Omniglot", "omniglot-py", ({"background": True}, {"background": False}), "L", True
    ),
    "oxford-iiit-pet": Vision("OxfordIIITPet", "oxford-iiit-pet", _TRAINVAL_TEST),
    "pcam": Vision("PCAM", "pcam", _ALL),
    "places365": Vision(
        "Places365",
        "categories_places365.txt",
        ({"split": "train-standard", "small": True}, {"split": "val", "small": True}),
    ),
    "rendered-sst2": Vision("RenderedSST2", "rendered-sst2", _ALL),
    "semeion": Vision("SEMEION", "semeion.data", ({"download": False},)),
    "stanford-cars": Vision("StanfordCars", "stanford_cars", _TRAIN_TEST),
    "stl10": Vision("STL10", "stl10_binary", _TRAIN_TEST),
    "sun397": Vision("SUN397", "SUN397", _ONE),
    "svhn": Vision("SVHN", "train_32x32.mat", _TRAIN_TEST),
    "usps": Vision("USPS", "usps.bz2", _TRAIN),
}

NAMES = ("digits", *SETS)


def read_named(name: str, data_root: str | Path | None, image_size: int) -> Raw:
    """Read a set of `NAMES`, all parts pooled.

    Args:
        name: one of `NAMES`.
        data_root: folder of the downloaded sets; None for those that need none.
        image_size: side to which images of several sizes are brought, in pixels, at least 1.
    """
    if name == "digits":
        return _digits()
    entry = SETS[name]
    if not data_root:
        raise BadInput(
            f"expected data.data_root for {name}, got none; only digits comes with the library"
        )
    folder = Path(data_root, entry.folder if isinstance(entry, Idx) else entry.place)
    if not folder.exists():
        reader = entry.reader if isinstance(entry, Vision) else folder.name
        raise BadInput(
            f"expected {name} at {folder} as torchvision.datasets.{reader} keeps it, got nothing "
            "there; download it first or name another data.data_root"
        )
    try:
        if isinstance(entry, Idx):
            return _read_idx_set(entry, folder / "raw")
        return _read_vision(entry, data_root, image_size)
    except Exception as error:  # foreign readers of damaged files raise errors of any type
        raise BadInput(
            f"expected {name} complete at {folder}, got: "
            f"{one_line(error).split(' You can use download')[0]}; download it again"
        ) from error


def _digits() -> Raw:
    """scikit-learn's 1,797 digits, 8 x 8, their values 0..16 stretched to 0..255."""
    from sklearn.datasets import load_digits  # here: importing it takes seconds

    digits = load_digits()
    x = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    names = tuple(str(v) for v in digits.target_names)
    return Raw(x, digits.target.astype(np.int64), names, from_file=False)


def _pool(images: list[np.ndarray], labels: list[np.ndarray], names: tuple[str, ...]) -> Raw:
    """Join parts; classes are the labels that occur, in order."""
    values, y = np.unique(np.concatenate(labels), return_inverse=True)
    named = tuple(names[v] if v < len(names) else str(v) for v in values)
    x = np.concatenate(images) if len(images) > 1 else images[0]
    return Raw(x, y.astype(np.int64), named, from_file=False)


def _read_idx_set(entry: Idx, folder: Path) -> Raw:
    images = [read_idx(folder / f"{p}-images-idx3-ubyte")[:, None] for p in entry.prefixes]
    # QMNIST's labels are rows of eight numbers, the class first.
    labels = [read_idx(folder / f"{p}-{entry.labels}") for p in entry.prefixes]
    labels = [y.reshape(len(y), -1)[:, 0] for y in labels]
    for x, y in zip(images, labels, strict=True):
        if len(x) != len(y):
            raise ValueError(f"{len(x)} images and {len(y)} labels")
    return _pool(images, labels, entry.names)


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of bytes or 32-bit integers, or its packed form `path`.gz.

    Format: two zero bytes, type, number of dimensions d; d big-endian sizes; the values.
    """
    packed = path.with_name(path.name + ".gz")
    data = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    dtype = np.dtype({8: "u1", 12: ">i4"}[data[2]])
    start = 4 + 4 * data[3]
    sizes = np.frombuffer(data[4:start], ">i4")
    return np.frombuffer(data, dtype, offset=start).reshape(sizes)


def _read_vision(entry: Vision, root: str | Path, image_size: int) -> Raw:
    from torchvision import datasets  # here: importing it takes seconds

    images, labels, offset = [], [], 0
    names: tuple[str, ...] = ()
    for part in entry.parts:
        data = getattr(datasets, entry.reader)(str(root), **part)
        x, y = _arrays(data, entry.mode, image_size)
        images.append(x)
        labels.append(y + offset)
        if entry.own_classes:
            offset += int(y.max()) + 1
        else:
            result: Sequence[Any] = getattr(data, "classes", getattr(data, "categories", ()))
            # Of synonyms, the first.
            names = tuple(n if isinstance(n, str) else n[0] for n in result)
    return _pool(images, labels, names)


def _arrays(data: Any, mode: str, image_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, c, h, w) and labels (n,) of a torchvision set."""
    x = getattr(data, "data", None)
    if isinstance(x, np.ndarray) and x.dtype == np.uint8:  # held in memory: take it whole
        if x.ndim == 3:
            x = x[:, None]
        elif x.shape[1] != 3:
            x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        return x, np.asarray(data.targets if hasattr(data, "targets") else data.labels, np.int64)
    x = np.empty((len(data), 1 if mode == "L" else 3, image_size, image_size), np.uint8)
    y = np.empty(len(data), np.int64)
    for i in range(len(data)):
        image, y[i] = data[i]
        x[i] = pixels(upright(image), (image_size, image_size), mode)
    return x, y
