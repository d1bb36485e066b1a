"""Load a data set by name or path, and divide it into a private pool and a public part.

Public samples cost no budget: they warm-start bottoms and stand in for private ones in the search.
They come from a second data set, or are set aside from the first, stratified by class. Either way
no sample is both public and private. The number and the names of the classes count as public.

Tables become square one-channel images. Their values are standardised with the mean and standard
deviation of the *public* rows: statistics of private rows would leave with every release.
"""

import difflib
import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from panas.data.files import Raw, read_csv, read_folder, read_npz, read_one_part_npz, read_split_npz
from panas.data.samples import Samples, Source
from panas.data.splits import stratified
from panas.data.torchvision_sets import NAMES, read_named
from panas.runtime.errors import BadInput


def load(
    dataset: str,
    *,
    data_root: Path | None,
    public_fraction: float,
    public_limit: int,
    public_data: str | None,
    limit: int | None,
    label: str | None,
    rng: np.random.Generator,
    image_size: int = 32,
) -> Source:
    """Load a data set and divide it into private pool and public part.

    Args:
        dataset: a name of `panas.data.torchvision_sets.NAMES`, or the path of an .npz archive, a
            .csv table
            or a folder with a subfolder of pictures for each class. A name wins over a folder that
            is called the same (write ./name for the folder).
        data_root: where torchvision's sets lie; None will do for `digits` and for paths.
        public_fraction: share of the data set that becomes public, in [0, 1); not used with
            `public_data`.
        public_limit: most public samples, >= 0; what is above stays private.
        public_data: a second data set (name or path) that is public, of the same kind, shape and
            classes; None sets `public_fraction` aside instead.
        limit: most samples of the private pool, >= 1, drawn at random; None keeps all.
        label: name of a table's label column; None looks for the usual names.
        rng: decides what is public and what the limits keep.
        image_size: side of images read from picture files, in pixels, >= 1.

    Returns:
        The source. Images are uint8. A table of f features has shape (1, s, s), s = ceil(sqrt(f)),
        float32 in [-1, 1], padded with zeros: standardised by the public rows and clipped at three
        deviations; without public rows, tanh(sign(v) log(1 + |v|)) of each value v.

    Raises:
        BadInput: if an argument is out of range, the data set is unknown, missing, damaged or
            empty, or the public one does not match.

    Privacy: `private` influences nothing in `public`, and no scale.

    """
    _check(public_fraction, public_limit, limit, image_size)
    raw = _read(dataset, data_root, label, image_size)
    if public_data is None:
        shared, size = raw, min(round(public_fraction * len(raw.y)), public_limit, len(raw.y) - 1)
    else:
        if _identity(public_data) == _identity(dataset):
            raise BadInput(f"expected public data other than {dataset}, got the same; drop it")
        shared = _read(public_data, data_root, label, image_size)
        _check_match(raw, shared)
        size = min(len(shared.y), public_limit)
    public = stratified(shared.y, size, rng)
    private = np.arange(len(raw.y))
    if shared is raw:
        private = np.delete(private, public)
    if limit is not None and limit < len(private):
        private = np.sort(rng.choice(private, limit, replace=False))
    if len(raw.class_names) == 1:
        warnings.warn(
            f"{_title(dataset)} has one class only: every accuracy will be 1", stacklevel=2
        )
    rows = shared.x[public]
    return Source(
        name=_title(dataset),
        private=_samples(raw, private, rows),
        public=_samples(shared, public, rows),
        class_names=raw.class_names,
    )


@dataclass(frozen=True)
class Membership:
    """What a network was trained on, and like samples that it was not trained on."""

    members: Samples
    others: Samples
    """None of its images is among the members'."""
    names: tuple[str, ...]
    """Classes by number, where labels are texts; empty where they are numbers, taken as they are.
    """
    duplicates: int
    """Images of the others that were among the members, and were taken out."""


def load_members(
    data: str, others: str | None, *, label: str | None, image_size: int = 32
) -> Membership:
    """Load what a network was trained on, and like samples that it was not trained on.

    Labels are to be indices of a network's outputs: whole numbers are taken as they are, though
    some classes may be absent. Texts (of a table, or names of folders) are numbered in sorted
    order, over both sets.

    Args:
        data: an .npz archive, a .csv table or a folder of pictures, see `load`.
        others: the same; None takes the rest of an archive with `train_images` and `test_images`.
        label: name of a table's label column.
        image_size: side of images read from picture files, in pixels, >= 1.

    Raises:
        BadInput: if one cannot be read, or they do not match, or `data` holds others itself while
            `others` are given.

    """
    path = _path(data)
    archive = data not in NAMES and path.suffix.lower() == ".npz" and path.is_file()
    if others is None:
        if not archive:
            raise BadInput(
                f"expected an .npz archive with a training and a test part at {data}, got another "
                "file or none; check the path, or give the samples not trained on with --others"
            )
        mine, rest = read_split_npz(path)
    else:
        one = read_one_part_npz(path) if archive else None
        mine = one or _read(data, None, label, image_size)
        rest = _read(others, None, label, image_size)
        _check_kind(mine, rest, "others", "what was trained on")
    sets = [(mine, data), (rest, others or data)]
    numbers = [_numbers(raw, _path(name).is_dir()) for raw, name in sets]
    if (numbers[0] is None) != (numbers[1] is None):
        raise BadInput(
            f"expected labels of one kind, got numbers and texts in {data} and {others}; "
            "label them alike"
        )
    names = tuple(sorted({*mine.class_names, *rest.class_names})) if numbers[0] is None else ()
    at = [
        np.searchsorted(names, raw.class_names)[raw.y] if own is None else own
        for (raw, _), own in zip(sets, numbers, strict=True)
    ]
    known = {image.tobytes() for image in mine.x}
    fresh = np.array([i for i, image in enumerate(rest.x) if image.tobytes() not in known], int)
    scale, classes = rest.x[fresh], max(int(y.max(initial=0)) for y in at) + 1

    def samples(x: np.ndarray, y: np.ndarray) -> Samples:
        images = squares(x, scale) if x.ndim == 2 else x
        return Samples(torch.from_numpy(images), torch.from_numpy(y), classes)

    return Membership(
        members=samples(mine.x, at[0]),
        others=samples(scale, at[1][fresh]),
        names=names,
        duplicates=len(rest.x) - len(fresh),
    )


def _numbers(raw: Raw, folder: bool) -> np.ndarray | None:
    """Labels as the set itself numbers them, int64; None if they are texts."""
    if not raw.from_file:
        return raw.y
    try:
        values = [int(name) for name in raw.class_names]
    except ValueError:
        return None
    # The names of folders are texts even where they look like numbers: "10" comes before "2".
    return None if folder else np.array(values, dtype=np.int64)[raw.y]


def _check(public_fraction: float, public_limit: int, limit: int | None, image_size: int) -> None:
    """Refuse arguments out of range."""
    if not 0 <= public_fraction < 1:
        raise BadInput(f"expected a public fraction in [0, 1), got {public_fraction}")
    if public_limit < 0:
        raise BadInput(f"expected a public limit from 0 up, got {public_limit}")
    if limit is not None and limit < 1:
        raise BadInput(f"expected a limit of at least 1 sample, got {limit}; leave it out for all")
    if image_size < 1:
        raise BadInput(f"expected an image size of at least 1 pixel, got {image_size}")


def _path(dataset: str) -> Path:
    """The path that a text names; ~/ is the home folder."""
    return Path(dataset).expanduser() if dataset.startswith("~/") else Path(dataset)


def _identity(dataset: str) -> str | Path:
    """What tells two data sets apart: a known name or a resolved path."""
    return dataset if dataset in NAMES else _path(dataset).resolve()


def _title(dataset: str) -> str:
    """A name for reports, without the folders of this machine."""
    return dataset if dataset in NAMES else _path(dataset).resolve().name


def _read(dataset: str, data_root: Path | None, label: str | None, image_size: int) -> Raw:
    """Read a data set by name or by what its path ends in."""
    path = _path(dataset)
    if dataset in NAMES:
        raw = read_named(dataset, data_root, image_size)
    elif path.is_dir():
        raw = read_folder(path, image_size)
    elif path.suffix.lower() in (".npz", ".csv"):
        if not path.is_file():
            raise BadInput(f"expected a file at {path}, got none; check the path")
        raw = read_npz(path) if path.suffix.lower() == ".npz" else read_csv(path, label)
    else:
        close = difflib.get_close_matches(dataset.lower().replace("_", "-"), NAMES, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "check the name or the path"
        raise BadInput(
            f"expected a data set ({', '.join(NAMES)}), an .npz or .csv file or a folder of "
            f"pictures, got {dataset!r}; {hint}"
        )
    if not len(raw.y):
        raise BadInput(f"expected samples in {dataset}, got none")
    return raw


def _check_match(raw: Raw, shared: Raw) -> None:
    """Refuse public data that a network for the private pool could not read."""
    _check_kind(raw, shared, "public data", "the data set")
    if len(raw.class_names) != len(shared.class_names):
        raise BadInput(
            f"expected public data with class count {len(raw.class_names)} as in the data set, "
            f"got {len(shared.class_names)}"
        )
    # Files name their classes: the same number of other classes would be learnt as these.
    if raw.from_file and shared.from_file and raw.class_names != shared.class_names:
        raise BadInput(
            f"expected public data with the classes {_shown(raw.class_names)}, "
            f"got {_shown(shared.class_names)}; name them alike"
        )


def _check_kind(raw: Raw, second: Raw, called: str, like: str) -> None:
    """Refuse a second set, `called` so, of another type, shape or columns than the first."""
    for what, mine, other in (
        ("samples of type", str(raw.x.dtype), str(second.x.dtype)),
        ("samples of shape", raw.x.shape[1:], second.x.shape[1:]),
        ("columns", raw.columns, second.columns),
    ):
        if mine != other:
            raise BadInput(
                f"expected {called} with {what} {_shown(mine)} as in {like}, got {_shown(other)}"
            )


def _shown(value: object) -> str:
    """A value in at most 200 characters."""
    return str(value)[:200]


def _samples(raw: Raw, chosen: np.ndarray, public_rows: np.ndarray) -> Samples:
    """The chosen samples as images."""
    x = raw.x[chosen]
    if x.ndim == 2:
        x = squares(x, public_rows)
    return Samples(torch.from_numpy(x), torch.from_numpy(raw.y[chosen]), len(raw.class_names))


def squares(rows: np.ndarray, public_rows: np.ndarray) -> np.ndarray:
    """Table rows (n, f) as images (n, 1, s, s) in [-1, 1], scaled by public rows (m, f) only."""
    n, f = rows.shape
    if len(public_rows):
        mean, deviation = public_rows.mean(axis=0), public_rows.std(axis=0)
        deviation[deviation <= 1e-12 * np.abs(mean)] = 1  # constant, up to rounding
        values = np.clip((rows - mean) / deviation, -3, 3) / 3
    else:
        values = np.tanh(np.sign(rows) * np.log1p(np.abs(rows)))
    side = math.isqrt(f - 1) + 1
    padded = np.zeros((n, side * side), np.float32)
    padded[:, :f] = values
    return padded.reshape(n, 1, side, side)
