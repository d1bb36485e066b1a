"""Where a ledger lies, so that a copy of it is not charged beside the original.

A folder keeps its inode when it is renamed, moved within its file system or seen through a bind
mount, and a copy gets another. Device numbers may change when a machine starts anew: then the path
must be the same. What this cannot tell: a clone of a whole file system, as of a virtual machine.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """A folder as its file system knows it."""

    folder: str
    device: int
    inode: int

    @classmethod
    def of(cls, folder: Path) -> "Place":
        """Where a folder that exists is now."""
        stat = folder.stat()
        return cls(str(folder.resolve()), stat.st_dev, stat.st_ino)

    def same(self, other: "Place") -> bool:
        """Whether both are one folder, perhaps renamed."""
        known = (self.folder == other.folder, self.device == other.device)
        return self.inode == other.inode and any(known)

    def to_json(self) -> dict[str, Any]:
        """The place as a ledger's line holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, r: Mapping[str, Any]) -> "Place":
        """Read back what `to_json` made; KeyError or the like if it is none."""
        return cls(str(r["folder"]), int(r["device"]), int(r["inode"]))
