"""How many pictures are encoded so far, in whatever process and folder that is done, and to come.

Whoever encodes notes it in its folder of embeddings (`dprbft.site.embeddings`); this reads it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from dprbft.paths import SitePaths, embeddings_folder
from dprbft.run.view import RunView
from dprbft.site.embeddings import PROGRESS
from panas.features.encoders.cache import missing
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


def not_encoded(view: RunView, sites: Sequence[SitePaths]) -> float:
    """Pictures of a site, in the mean, whose vectors its folder lacks; 0 without an encoder.

    Args:
        view: of the run.
        sites: that are looked at, at least one.
    """
    facts = view.facts.encoder
    if facts is None:
        return 0.0
    return fmean(
        sum(
            missing(part, facts, embeddings_folder(paths.folder))
            for part in view.site(paths.index).parts
        )
        for paths in sites
    )


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
