"""What whoever runs should know of public rows, and of the names of classes.

No private sample plays a part.
"""

from collections.abc import Sequence

import numpy as np

from panas.data.facts import Facts
from panas.data.files.raw import Raw

FEWEST_ROWS = 20
FEWEST_OF_A_CLASS = 5
"""With fewer rows of a class, a column may tell it by chance."""


def remarks(public: Raw) -> tuple[str, ...]:
    """Names of columns that alone tell the class of every public row, that number the rows, and
    that are constant."""
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
    if numbering := [name for name, x in columns.items() if _numbers_rows(x)]:
        results.append(
            f"{_named(numbering)} seems to number the rows: it rises by whole numbers; take it out "
            "of all tables if it does"
        )
    constant = [name for name, x in columns.items() if len(np.unique(x)) == 1]
    if constant:
        results.append(f"{_named(constant)} is the same in all public rows, and tells nothing")
    return tuple(results)


def of_classes(names: Sequence[str]) -> tuple[str, ...]:
    """Which names of classes differ in case alone."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.casefold(), []).append(name)
    several = [" and ".join(map(repr, group)) for group in alike.values() if len(group) > 1]
    if not several:
        return ()
    return (
        f"classes {', '.join(several)[:200]} differ in case alone and count as {len(names)} with "
        "all others; write them alike if they are one",
    )


def of_scale(facts: Facts, remedy: str) -> tuple[str, ...]:
    """Which columns of numbers have no public scale.

    Args:
        facts: of a federation.
        remedy: where a scale comes from.
    """
    without = [c.name for c in facts.columns if c.kind == "number" and c.reach is None]
    if not without:
        return ()
    columns = f"{len(without)} column{'s' * (len(without) != 1)}, as of {without[0]!r}"
    return (f"no scale of {columns}, is public: sites gain less; {remedy}",)


OF_SHARE = "public are {:,} samples at most, as data.public_limit says; all others stay private"
"""Of a data set of which a share is public, where that is cut."""


def of_limit(samples: int, most: int) -> tuple[str, ...]:
    """How many public samples a limit leaves out.

    Args:
        samples: in the public data.
        most: that are kept.
    """
    if samples <= most:
        return ()
    return (
        f"{most:,} of {samples:,} public samples are used, and {samples - most:,} left out; raise "
        "data.public_limit for more",
    )


def _numbers_rows(x: np.ndarray) -> bool:
    """Whether values are whole numbers that only rise."""
    return bool(np.all(x == np.floor(x)) and np.all(np.diff(x) > 0))  # NaN is no whole number


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
