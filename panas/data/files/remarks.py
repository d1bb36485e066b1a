"""What the owner of a table should know of its columns, judged on public rows alone."""

import numpy as np

from panas.data.files.raw import Raw

FEWEST_ROWS = 20
FEWEST_OF_A_CLASS = 5
"""With fewer rows of a class, a column may tell it by chance."""


def remarks(public: Raw) -> tuple[str, ...]:
    """Names of columns that alone tell the class of every public row, and of constant ones."""
    if not public.columns or len(public.y) < FEWEST_ROWS:
        return ()
    results = []
    columns = dict(zip(public.columns, public.x.T, strict=True))
    telling = [name for name, x in columns.items() if _tells(x, public.y)]
    if telling:
        results.append(
            f"{_named(telling)} alone tells the class of every public row; drop it if it is not "
            "known before the class is"
        )
    constant = [name for name, x in columns.items() if len(np.unique(x)) == 1]
    if constant:
        results.append(f"{_named(constant)} is the same in all public rows, and tells nothing")
    return tuple(results)


def _named(columns: list[str]) -> str:
    return f"column {', '.join(map(repr, columns))[:200]}"


def _tells(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether values part the classes: in their order, or where few values repeat, by themselves.

    Missing cells count as one value.
    """
    counts = np.unique(y, return_counts=True)[1]
    if len(counts) < 2 or counts.min() < FEWEST_OF_A_CLASS:
        return False
    values, index = np.unique(x, return_inverse=True)  # NaN is one value, the last
    first = np.zeros(len(values), np.int64)
    first[index] = y
    if not np.array_equal(first[index], y):
        return False  # a value that two classes share
    changes = np.count_nonzero(np.diff(first))
    return bool(changes < len(counts) or len(values) * FEWEST_OF_A_CLASS <= len(y))
