"""Vectors of public samples that `panas plan` has computed, kept for the run.

A plan's directory goes when the plan is shown. Its vectors go to the user's state folder, under a
digest of the samples, and the next run or plan with these samples has them. The last `KEPT` sets
are kept.

Privacy: they are of public samples alone. They may be deleted.
"""

import hashlib
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dprbft.paths import embeddings_folder
from panas.data.samples import Samples, digest
from panas.runtime.errors import BadInput
from panas.runtime.state import state_folder
from panas.runtime.store import read_tensors, write_bytes

PLANNED = "planned"  # below the user's state folder
KEPT = 4
FILES = "*/*.safetensors"  # of a folder of embeddings


def take_planned(run: Path, parts: Sequence[Samples]) -> None:
    """Bring what a plan has computed into a run's directory.

    Args:
        run: the directory.
        parts: its sets of public samples.
    """
    kept = state_folder() / PLANNED / _name(parts)
    for file in kept.glob(FILES):
        with suppress(OSError):  # another plan may have removed it
            write_bytes(embeddings_folder(run) / file.relative_to(kept), file.read_bytes())


def keep_planned(run: Path, parts: Sequence[Samples], state: Path) -> int:
    """Keep what a plan has computed, and say how many vectors were not there so far.

    Where nothing can be written, nothing is kept.

    Args:
        run: the plan's directory.
        parts: its sets of public samples.
        state: the user's own state folder, of which a plan sees a copy.
    """
    made, place, fresh = embeddings_folder(run), state / PLANNED / _name(parts), 0
    with suppress(OSError, BadInput):
        for file in made.glob(FILES):
            path = place / file.relative_to(made)
            if not path.exists():
                write_bytes(path, file.read_bytes())
                fresh += len(read_tensors(file)[0]["vectors"])
        sets = sorted((state / PLANNED).iterdir(), key=lambda path: path.stat().st_mtime)
        for old in sets[:-KEPT]:
            shutil.rmtree(old)
    return fresh


def _name(parts: Sequence[Samples]) -> str:
    """Stands for sets of samples; of their files the vectors' own digests are."""
    return hashlib.sha256("".join(map(digest, parts)).encode()).hexdigest()[:32]
