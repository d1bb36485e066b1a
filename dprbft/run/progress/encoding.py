"""How many pictures are encoded so far, in whatever process and folder that is done.

Whoever encodes notes it in its folder of embeddings (`dprbft.site.embeddings`); this reads it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dprbft.site.embeddings import PROGRESS
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json

EVERY = 2.0
"""Seconds between two looks."""


@dataclass(frozen=True)
class Encoded:
    """How far the encoding of somebody's pictures is."""

    whose: str
    done: int
    of: int
    left: float | None  # seconds; None where nothing can be said


@contextmanager
def watch_encoding(folders: Mapping[str, Path], tell: Callable[[Encoded], None]) -> Iterator[None]:
    """Tell how far each is as long as the block lasts, at each look that finds more.

    Args:
        folders: of embeddings, by whose they are.
        tell: called from another thread.
    """
    first, seen, over = dict[str, tuple[float, int]](), dict.fromkeys(folders, 0), threading.Event()

    def look() -> None:
        for whose, folder in folders.items():
            with suppress(BadInput):  # the file is there while pictures are encoded
                record = read_json(folder / PROGRESS)
                done, of, now = record["done"], record["of"], time.monotonic()
                if done <= seen[whose]:
                    continue
                began, before = first.setdefault(whose, (now, done))
                speed = (done - before) / (now - began) if done > before else None
                seen[whose] = done
                tell(Encoded(whose, done, of, (of - done) / speed if speed else None))

    def watch() -> None:
        while not over.wait(EVERY):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
