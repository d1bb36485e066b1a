"""Labels as classes: of a table's cells, or of an archive's array.

| array | classes |
|---|---|
| whole numbers, also as floats (n,) or (n, 1) | these numbers |
| texts (n,) | these texts, or the numbers that all of them are |
| truth values (n,) | `False` and `True` |
| one-hot rows (n, k): one 1, else 0 | the column's number, from 0 |

Errors name no label.
"""

from pathlib import Path

import numpy as np

from panas.data.files.cells import MISSING, is_decoded
from panas.data.files.declared import Form
from panas.data.files.raw import check_class_count
from panas.runtime.errors import BadInput


def is_number(cell: str) -> bool:
    """Whether a cell is a number, also with a decimal comma."""
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def classes_of(path: Path, targets: list[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class of each label (n,), and the classes' names; BadInput if the labels are none.

    Args:
        path: of the file, for messages.
        targets: n labels.
    """
    distinct = sorted(set(targets))
    check_class_count(path, len(distinct))
    numbers = [float(t) if is_number(t) and "," not in t else None for t in distinct]
    key: dict[str, int | str] = {}
    if any(number is None for number in numbers):
        key = {t: t for t in distinct}  # not all are numbers: all are texts
    elif not all(number is not None and number.is_integer() for number in numbers):
        raise BadInput(
            f"expected classes as labels in {path}, got fractions; regression targets are not "
            "classes"
        )
    else:
        key = {t: int(float(t)) for t in distinct}
    values, y = np.unique([key[t] for t in targets], return_inverse=True)
    return y.astype(np.int64), tuple(str(v) for v in values)


def flat(entries: np.ndarray) -> np.ndarray:
    """Entries (n, 1) as (n,); others as they are."""
    return entries[:, 0] if entries.ndim == 2 and entries.shape[1] == 1 else entries


def text_of(entry: int | str | bytes) -> str:
    """What an entry of an array is called."""
    return (
        entry.decode(errors="backslashreplace") if isinstance(entry, bytes) else str(entry)
    ).strip()


def labels_of(path: Path, key: str, y: np.ndarray) -> list[str]:
    """The label of each sample as a text; BadInput if one is no class.

    Args:
        path: of the archive.
        key: of the array in it.
        y: as in the table above.
    """
    y = flat(y)
    check_labels(path, key, y)
    if y.ndim == 2:
        if not _one_hot(y).all():
            raise _no_classes(path, key, "rows with several ones or none; give one class a sample")
        return [str(number) for number in y.argmax(axis=1).tolist()]
    if y.dtype.kind in "US":
        names = [text_of(entry) for entry in y.tolist()]
        if any(name.lower() in MISSING for name in names):
            raise _no_classes(path, key, "empty ones; drop those samples")
        return names
    if y.dtype.kind == "b":
        return [str(entry) for entry in y.tolist()]
    if not np.isfinite(y).all():
        wrong = "NaN or infinity, as where a label is missing; drop those samples"
    elif not np.all(y == np.floor(y)):
        wrong = "fractions; regression targets are not classes"
    elif y.size and y.min() < 0:
        wrong = "negative ones, as where a label is missing; number the classes from 0 up"
    elif y.size and y.max() >= 2**53:
        wrong = "numbers of 2^53 or more; number the classes from 0 up"
    else:
        return [str(int(number)) for number in y.tolist()]
    raise _no_classes(path, key, wrong)


def declared_labels(path: Path, key: str, y: np.ndarray, form: Form) -> np.ndarray:
    """The declared class of each sample (n,), by its own label alone; -1 for none.

    BadInput for an array of another type or shape.

    Args:
        path: of the archive.
        key: of the array in it.
        y: as in the table above.
        form: declares the classes.
    """
    y = flat(y)
    check_labels(path, key, y)
    if y.ndim == 2:
        hot, number = _one_hot(y), y.argmax(axis=1)
        classes = [form.class_of(str(i)) for i in range(y.shape[1])]
        return np.where(hot, np.array(classes, np.int64)[number], -1)
    names = (text_of(entry) for entry in y.tolist())
    return np.array([form.class_of(n) if is_decoded(n) else -1 for n in names], np.int64)


def _one_hot(y: np.ndarray) -> np.ndarray:
    """Whether a row has one 1, and else 0 (n,)."""
    return ((y == 0) | (y == 1)).all(axis=1) & ((y == 1).sum(axis=1) == 1)


def check_labels(path: Path, key: str, y: np.ndarray) -> None:
    """Refuse arrays of another type or shape than labels have.

    Args:
        path: of the archive.
        key: of the array in it.
        y: without a last axis of length 1.
    """
    if y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "biuf":
        return
    if y.ndim != 1:
        wrong = f"shape {y.shape}; give one label a sample, or one-hot rows"
    elif y.dtype.kind not in "biufUS":
        wrong = f"{y.dtype}; give whole numbers or texts"
    else:
        return
    raise _no_classes(path, key, wrong)


def _no_classes(path: Path, key: str, wrong: str) -> BadInput:
    return BadInput(f"expected {key} as one class a sample in {path}, got {wrong}")
