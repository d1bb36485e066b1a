"""Whether a text of the settings names a place or a thing; loads no library."""

from pathlib import Path


def is_path(dataset: str) -> bool:
    """Whether a data set is told by its place, by the look of it; others are told by their name."""
    return "/" in dataset or bool(Path(dataset).suffix)
