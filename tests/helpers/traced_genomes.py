"""Which files a genome passes in a real search, from being drawn to its score.

Python's profiler reports the calls of `panas`. A file counts when one of its functions gets an
argument that is a genome or the network built from it, or holds one in lists, tuples and records,
or has one from a function that it calls. Parts of them, a block or a layer, do not count, nor does
the head, which all genomes share.

A genome counts until its fitness first returns. What happens to it as a parent, survivor or winner
is about its score. `panas/runtime` does not count: it moves and checks whatever it is given.
"""

from types import FrameType
from typing import Any

from torch import nn
from traced_rows import ROOT, parts

from panas.architecture.genome import Genome
from panas.architecture.network import Bottom

PACKAGE, RUNTIME = f"{ROOT}/panas/", f"{ROOT}/panas/runtime/"
BUILT = ("panas/architecture/network.py", "build_bottom")
SCORED = ("panas/evolution/fitness.py", "advance")
DEPTH = 4  # a list of tasks, each a tuple of a record of a genome


class GenomeTrace:
    """The files that handle a genome before it has a score, as they come first."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.scored: set[Genome] = set()
        self._built: dict[int, tuple[Bottom, Genome]] = {}  # kept, so that no id is given twice

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        """A profiler, as `sys.setprofile` takes it."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or event not in ("call", "return"):
            return
        if event == "call":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(self._is_unscored(frame.f_locals.get(name)) for name in names):
                self._count(frame)
            return
        function = (code.co_filename.removeprefix(f"{ROOT}/"), code.co_name)
        if function == BUILT and isinstance(value, Bottom):
            self._built[id(value)] = (value, frame.f_locals["genome"])
        if function == SCORED:
            self.scored.add(frame.f_locals["job"].genome)
        if self._is_unscored(value):
            self._count(frame)
            if frame.f_back is not None:
                self._count(frame.f_back)

    def _count(self, frame: FrameType) -> None:
        path = frame.f_code.co_filename
        file = path.removeprefix(f"{ROOT}/")
        inside = path.startswith(PACKAGE) and not path.startswith(RUNTIME)
        if inside and file not in self.files:
            self.files.append(file)

    def _is_unscored(self, value: Any, depth: int = DEPTH) -> bool:
        if isinstance(value, Genome):
            return value not in self.scored
        if isinstance(value, nn.Module):
            held = map(id, value.modules() if "_modules" in vars(value) else ())  # none when made
            owners = [self._built[i][1] for i in held if i in self._built]
            return any(genome not in self.scored for genome in owners)
        return depth > 0 and any(self._is_unscored(part, depth - 1) for part in parts(value))
