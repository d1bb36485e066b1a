"""What a file or named set holds before it is divided, and what all readers share.

Nothing is unpickled. What cannot be used is refused as a whole, with the place named: a silently
dropped row would be a silently different experiment.
"""

import array
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from panas.data.files.columns import Kind
from panas.runtime.errors import BadInput

MOST_CLASSES = 1000
TRAIN, VALIDATION, TEST = 0, 1, 2


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

    part: np.ndarray | None = None
    """`TRAIN`, `VALIDATION` or `TEST` of each sample (n,), int64, as the data themselves say."""
    official: tuple[int, ...] = ()
    """`VALIDATION`, `TEST` or both, where the data have a part for them, even if it is empty."""
    clients: np.ndarray | None = None  # name of the client that has each sample (n,), as texts
    vectors: bool = False  # whether x are vectors (n, 1, 1, e), float32 of any range
    files: np.ndarray | None = None  # picture file of each sample (n,), as texts
    notes: tuple[str, ...] = ()  # what was done in reading that its owner should know

    def take(self, indices: np.ndarray) -> "Raw":
        """The samples at `indices`, in that order."""
        names = ("groups", "part", "clients", "files")
        optional = {name: getattr(self, name) for name in names}
        taken = {name: a[indices] for name, a in optional.items() if a is not None}
        return replace(self, x=self.x[indices], y=self.y[indices], **taken)

    def hashes(self, key: bytes = b"") -> np.ndarray:
        """A number for each sample (n,), uint64, by its values alone, and not by its class.

        It is the same in whatever file, order of columns or company the sample comes.
        """
        if not self.columns:
            return row_hashes((image.tobytes() for image in np.ascontiguousarray(self.x)), key)
        columns = []
        for name in sorted(self.columns):
            cells = self.x[:, self.columns.index(name)] + 0.0  # -0 as 0
            if name in self.texts:
                codes = row_hashes(text.encode() for text in self.texts[name])
                absent = np.isnan(cells)
                code = np.where(absent, 0, cells).astype(np.int64)
                columns.append(np.where(absent, 0, codes[code]))
            else:
                columns.append(cells.view(np.uint64))
        return row_hashes((row.tobytes() for row in np.stack(columns, axis=1)), key)


def row_hashes(rows: Iterable[bytes], key: bytes = b"") -> np.ndarray:
    """A number from 0 to 2^64 - 1 for each row (n,), uint64; `key` of at most 64 bytes."""
    start = hashlib.blake2b(digest_size=8, key=key)
    result = array.array("Q")
    for row in rows:
        hashed = start.copy()
        hashed.update(row)
        result.append(int.from_bytes(hashed.digest(), "big"))
    return np.array(result, np.uint64)


def one_line(error: Exception) -> str:
    """The text of a foreign error, short and without line breaks."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def check_whole(groups: Int64[np.ndarray, "n"], part: Int64[np.ndarray, "n"], called: str) -> None:
    """Refuse data of which a group is in several of the parts that they have.

    Args:
        groups: of each sample.
        part: of each sample.
        called: name of the data in the message.
    """
    held = np.unique(np.stack([groups, part]), axis=1).shape[1]
    if held > len(np.unique(groups)):
        raise BadInput(
            f"expected each group in one of the parts (train, validation, test) of {called}, got "
            "some in several; move each group's samples to one part"
        )


def check_class_count(path: Path, count: int) -> None:
    """Refuse more than `MOST_CLASSES` different labels."""
    if count > MOST_CLASSES:
        raise BadInput(
            f"expected at most {MOST_CLASSES} classes in {path}, got {count} different labels; "
            "regression targets and identifiers are not classes"
        )
