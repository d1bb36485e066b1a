"""What a file or named set holds before it is divided, and what all readers share.

Nothing is unpickled. What cannot be used is refused as a whole, with the place named: a silently
dropped row would be a silently different experiment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from panas.data.files.columns import Kind
from panas.runtime.errors import BadInput

MOST_CLASSES = 1000


@dataclass(frozen=True)
class Raw:
    """What one file or named set holds."""

    x: np.ndarray
    """Images (n, c, h, w), uint8, uint16 or float32 in [-1, 1]; or a table (n, f), float64.

    A cell that is missing is NaN; a text is its place in `texts` of its column.
    """
    y: np.ndarray  # (n,) classes 0..C-1, int64
    class_names: tuple[str, ...]
    columns: tuple[str, ...] = ()  # names of a table's f columns; empty for images
    from_file: bool = True
    """Whether classes are known by what the file calls them, not by a set's own numbering."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # of columns that hold no numbers
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Different texts of each column that holds some."""
    groups: np.ndarray | None = None
    """Privacy unit of each sample (n,), int64: a fixed hash of what the file calls it."""

    def take(self, indices: np.ndarray) -> "Raw":
        """The samples at `indices`, in that order."""
        groups = None if self.groups is None else self.groups[indices]
        return replace(self, x=self.x[indices], y=self.y[indices], groups=groups)


def one_line(error: Exception) -> str:
    """The text of a foreign error, short and without line breaks."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def check_class_count(path: Path, count: int) -> None:
    """Refuse more than `MOST_CLASSES` different labels."""
    if count > MOST_CLASSES:
        raise BadInput(
            f"expected at most {MOST_CLASSES} classes in {path}, got {count} different labels; "
            "regression targets and identifiers are not classes"
        )
