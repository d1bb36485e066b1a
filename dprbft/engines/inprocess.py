"""The default engine: all clients on this machine, in a pool of worker processes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dprbft.engines.protocol import R, T
from panas.runtime.pool import Pool


class InProcess:
    """An `Engine` of worker processes, at least 1; where clients are few, each may use several."""

    def __init__(self, workers: int = 1, clients: int | None = None) -> None:
        self.workers = min(workers, clients or workers)
        self.inner = workers // max(1, self.workers)
        self._pool: Pool[None] = Pool(self.workers, None, preload=("dprbft.engines.verbs",))

    def map(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """As `Engine.map`."""
        yield from self._pool.map(_without_context, [(work, task) for task in tasks])

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *error: Any) -> None:
        self._pool.__exit__(*error)


def _without_context(context: None, job: tuple[Callable[[T], R], T]) -> R:
    work, task = job
    return work(task)
