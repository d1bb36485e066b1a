"""Noise that depends on the site and on what it is asked alone, and faults that a test plants.

A file `fault` in a site's folder, "HOW VERB", makes its node fail once at that verb: "raise" an
error, "hang" (with nothing done, until a file `freed` is there), or "die" (with all done, before
anybody hears of it).
"""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from panas.privacy.noise import ReproducibleNoise, SystemNoise

HERE = threading.local()
HANGS = 45.0


def change(verbs: ModuleType) -> None:
    """Let each verb that `dprbft.methods.serve` serves draw from a generator of its own."""
    work_of = verbs._work_of

    def repeatable(place: Any, machine: Any, verb: str, content: bytes) -> Callable[[], bytes]:
        seed = hashlib.sha256(f"{place.name} {verb}".encode()).digest()
        HERE.noise = ReproducibleNoise(np.random.default_rng(list(seed)))
        how = _planted(place.folder, verb)
        if how == "raise":
            raise RuntimeError(f"a text that must not leave {place.folder}")
        if how == "hang":
            _hang(place.folder / "freed")
        work: Callable[[], bytes] = work_of(place, machine, verb, content)

        def worked() -> bytes:
            result = work()
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return worked

    verbs._work_of = repeatable  # type: ignore[attr-defined]
    SystemNoise.normal = lambda self, *shape: HERE.noise.normal(*shape)  # type: ignore
    SystemNoise.uniform = lambda self, size: HERE.noise.uniform(size)  # type: ignore


def _hang(freed: Path) -> None:
    """Wait until there is this file, and remove it."""
    until = time.monotonic() + HANGS
    while not freed.exists() and time.monotonic() < until:
        time.sleep(0.1)
    freed.unlink(missing_ok=True)


def _planted(folder: Path, verb: str) -> str:
    """How a site is to fail at a verb, once."""
    path = folder / "fault"
    if not path.exists():
        return ""
    how, at = path.read_text().split()
    if at != verb:
        return ""
    path.unlink()
    return how
