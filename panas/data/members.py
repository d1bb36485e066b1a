"""The data of a membership audit: what a network was trained on, and like samples beside it."""

from dataclasses import dataclass, replace

import numpy as np

from panas.data.facts import Facts, fit, infer
from panas.data.files.archives import read_one_part_npz, read_split_npz
from panas.data.files.raw import Raw
from panas.data.files.tables import TableColumns
from panas.data.samples import Samples
from panas.data.sources import Reading, check_alike, path_of, read, reading_of
from panas.data.torchvision_sets import NAMES
from panas.runtime.errors import BadInput


@dataclass(frozen=True)
class Membership:
    """What a network was trained on, and like samples that it was not trained on."""

    members: Samples
    others: Samples  # none of its images is among the members'
    names: tuple[str, ...]
    """Classes by number, where labels are texts; empty where they are numbers."""
    duplicates: int  # images taken out of the others, since they were among the members


def load_members(
    data: str,
    others: str | None,
    *,
    label: str | None,
    image_size: int | None = None,
    facts: Facts | None = None,
) -> Membership:
    """Load what a network was trained on, and like samples that it was not trained on.

    Whole numbers as labels are taken as they are: indices of a network's outputs. Texts (of a
    table, or names of folders) are numbered in sorted order, over both sets.

    Args:
        data: name or path of what it was trained on.
        others: name or path of the like; None: the rest of an archive with `train_images` and
            `test_images`.
        label: a table's label column; None looks for the usual names.
        image_size: side of images read from picture files, in pixels, at least 1.
        facts: those that a network was saved with, which say scales and class numbers; None:
            inferred.
    """
    table = TableColumns(label=label)
    names: tuple[str, ...] = ()
    if facts is not None:
        trained, rest = _read_both(data, others, reading_of(facts, table))
    else:
        trained, rest = _read_both(data, others, Reading(table=table, image_size=image_size))
        names, (y, z) = _labels([(trained, data), (rest, others or data)])
        classes = names or tuple(map(str, range(max(int(labels.max()) for labels in (y, z)) + 1)))
        trained, rest = (replace(r, y=v, class_names=classes) for r, v in ((trained, y), (rest, z)))
        facts = infer(rest, public=rest)
    members, like = fit(trained, facts, data), fit(rest, facts, others or data)
    known = {image.numpy().tobytes() for image in members.x}
    fresh = [i for i, image in enumerate(like.x) if image.numpy().tobytes() not in known]
    return Membership(members, like.take(fresh), names, len(like) - len(fresh))


def _read_both(data: str, others: str | None, how: Reading) -> tuple[Raw, Raw]:
    path = path_of(data)
    archive = data not in NAMES and path.suffix.lower() == ".npz" and path.is_file()
    if others is None:
        if not archive:
            raise BadInput(
                f"expected an .npz archive with a training and a test part at {data}, got another "
                "file or none; check the path, or give the samples not trained on with --others"
            )
        return read_split_npz(path)
    trained = read_one_part_npz(path) if archive else read(data, how)
    shape = trained.x.shape[1:] if trained.x.ndim == 4 and how.image_size is None else None
    rest = read(others, replace(how, shape=shape))
    check_alike(trained, rest, "others", "what was trained on")
    return trained, rest


def _labels(sets: list[tuple[Raw, str]]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Names of classes (none where labels are numbers), and the labels of each set by them."""
    numbers = [_numbers(raw, path_of(name).is_dir()) for raw, name in sets]
    numbered = [own for own in numbers if own is not None]
    if len(numbered) == len(sets):
        return (), numbered
    if numbered:
        raise BadInput(
            "expected labels of one kind, got numbers and texts in "
            f"{' and '.join(name for _, name in sets)}; label them alike"
        )
    names = tuple(sorted({name for raw, _ in sets for name in raw.class_names}))
    return names, [np.searchsorted(names, raw.class_names)[raw.y] for raw, _ in sets]


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
