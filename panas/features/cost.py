"""What a feature map needs in time and memory, from its sizes alone."""

from dataclasses import dataclass

CHUNK_BYTES = 8 << 20
"""Beside its input and output a map needs about so much at once, or what one row needs: more does
not stay in a processor's caches, and is slower."""


@dataclass(frozen=True, kw_only=True)
class MapCost:
    """What it takes to map rows; all of it follows from public facts."""

    macs: int  # multiply-accumulates a row
    row_bytes: int  # at once for a row, about, beside its input and output
    most_rows: int  # that are worth working off at once
    fixed_bytes: int  # of the map itself

    @property
    def chunk(self) -> int:
        """Rows at a time: no row depends on how many they are."""
        return max(1, min(self.most_rows, CHUNK_BYTES // max(1, self.row_bytes)))
