"""The default engine: all clients on this machine, in a pool of worker processes."""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from panas.pool import Pool

T = TypeVar("T")
R = TypeVar("R")


class InProcess:
    """Runs a function over many clients' tasks."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._pool: Pool[None] = Pool(workers, None, preload="dprbft.work")

    def map(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Run `work` on every task; yields (position, result) as results come.

        Raises:
            PanasError: if a worker process dies, or the first error of a task; tasks that have
                not started are then dropped.

        """
        yield from self._pool.map(_without_context, [(work, task) for task in tasks])

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.__exit__(kind, error, trace)


def _without_context(context: None, job: tuple[Callable[[T], R], T]) -> R:
    work, task = job
    return work(task)
