"""Which files handle a site's private rows, or numbers computed of them, in a real run.

Python's profiler reports the calls of the packages. A file counts when one of its functions gets
an argument that holds private rows, or has them from a function that it calls. Private are the
samples that a site loads, and all tensors that a function makes which was given private ones.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT}/{name}/" for name in ("panas", "dprbft"))
SOURCE = ("dprbft/site/data.py", "load_data")
END = ("panas/training/linear/predictor.py", "write_predictor")
OPAQUE = ("Site", "SearchSite", "Ledger")
"""They lead to rows, and almost every function has them."""


class Trace:
    """The files that handle private rows until the predictor is made, as they come first."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._private: dict[int, object] = {}  # kept alive, so that no number is given twice
        self._given: set[int] = set()  # frames that got private rows
        self._ended = False

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        """A profiler, as `sys.setprofile` takes it."""
        code = frame.f_code
        inside = code.co_filename.startswith(PACKAGES) and not self._ended
        if not inside or event not in ("call", "return"):
            return
        function = (code.co_filename.removeprefix(f"{ROOT}/"), code.co_name)
        if event == "call":
            self._ended = function == END
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if any(self._is_private(frame.f_locals.get(name)) for name in names):
                self._given.add(id(frame))
                self._count(frame)
            return
        if id(frame) in self._given or function == SOURCE:
            self._mark(value)
        self._given.discard(id(frame))
        if self._is_private(value):
            self._count(frame)
            if frame.f_back and frame.f_back.f_code.co_filename.startswith(PACKAGES):
                self._count(frame.f_back)

    def _count(self, frame: FrameType) -> None:
        file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if file not in self.files:
            self.files.append(file)

    def _is_private(self, value: object, depth: int = 2) -> bool:
        if _identity(value) in self._private:
            return True
        return depth > 0 and any(self._is_private(part, depth - 1) for part in parts(value))

    def _mark(self, value: object) -> None:
        if _identity(value) not in self._private and _holds_arrays(value):
            self._private[_identity(value)] = value
            for part in parts(value):
                self._mark(part)


def _identity(value: object) -> int:
    """One number for all views of the same numbers."""
    try:
        storage = value.untyped_storage().data_ptr() if isinstance(value, Tensor) else 0
    except (RuntimeError, NotImplementedError):  # a tensor inside of torch.func has none
        storage = 0
    return storage or id(value)


def parts(value: Any) -> list[Any]:
    """What a value holds: the entries of a list, tuple or dict, or the fields of a record."""
    if isinstance(value, tuple | list):
        return list(value[:50])
    if isinstance(value, dict):
        return list(value.values())[:50]
    is_record = is_dataclass(value) and type(value).__name__ not in OPAQUE
    return list(getattr(value, "__dict__", {}).values()) if is_record else []


def _holds_arrays(value: object, depth: int = 3) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return True
    return depth > 0 and any(_holds_arrays(part, depth - 1) for part in parts(value))


@contextmanager
def traced(trace: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Note what runs inside."""
    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        yield
    finally:
        sys.setprofile(before)
