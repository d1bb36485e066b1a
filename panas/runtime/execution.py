"""How a search runs: processes, journal and progress; its outcome depends on none of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from panas.runtime.journal import Journal

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Execution(Generic[T]):
    """How a search of steps `T` runs."""

    workers: int = 1  # processes, at least 1; with more, what they are given must be picklable
    journal: Journal | None = None
    """Stores each step before the next begins; steps that it holds are not run again."""
    on_progress: Callable[[T], None] | None = None  # called after each new step
    on_candidate: Callable[[int, int], None] | None = None
    """Called within a step: how many candidates have been scored, of how many in all at most."""

    def finished(self, step: T, line: Mapping[str, Any]) -> None:
        """Store a step as a line of the journal, then tell of it."""
        if self.journal is not None:
            self.journal.append(line)
        if self.on_progress is not None:
            self.on_progress(step)
