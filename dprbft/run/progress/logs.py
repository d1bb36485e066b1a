"""Hearing of every site's candidates, generations and trials, whichever process they run in.

Each site writes its log as it goes (`panas.runtime.journal`), and beside that of a search how many
candidates it has scored; this reads both.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dprbft.paths import candidates_file
from panas.runtime.errors import BadInput
from panas.runtime.journal import read_journal
from panas.runtime.store import read_json

Progress = Callable[[str, Mapping[str, Any], bool], None]
"""Takes a site's name, a line of its log, and whether it was written just now.

A line with "candidates" tells how many have been scored so far, of "at_most" in all.
"""

CANDIDATES = candidates_file(Path()).name
EVERY = 0.5
"""Seconds between two looks."""


@contextmanager
def watch_logs(logs: Mapping[str, Path], progress: Progress | None) -> Iterator[Callable[[], None]]:
    """Tell `progress` of every line of the sites' logs, once each, as long as the block lasts.

    Yields a function that catches up at once.
    """
    if progress is None:
        yield lambda: None
        return
    sent, seen = dict.fromkeys(logs, 0), dict.fromkeys(logs, 0)
    lock, over = threading.Lock(), threading.Event()

    def catch_up(live: bool = True) -> None:
        with lock:
            for site, path in logs.items():
                try:
                    lines = read_journal(path)
                except BadInput:
                    continue  # whoever resumes that search says what is wrong with it
                for line in lines[sent[site] :]:
                    progress(site, line, live)
                sent[site] = len(lines)
                scored = dict[str, Any]()
                with suppress(BadInput):  # the file is there while a search is under way
                    scored = read_json(path.with_name(CANDIDATES))
                if scored and scored["candidates"] > seen[site]:
                    seen[site] = scored["candidates"]
                    progress(site, scored, live)

    def watch() -> None:
        while not over.wait(EVERY):
            catch_up()

    catch_up(live=False)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield catch_up
    finally:
        over.set()
        thread.join()
        catch_up()
