"""The default engine: all clients on this machine, in a pool of worker processes."""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from panas.runtime.pool import Pool

T = TypeVar("T")
R = TypeVar("R")


class InProcess:
    """Runs a function over many clients' tasks.

    Args:
        workers: processes, at least 1.
        clients: how many clients share them; None: as many as there are workers.

    Attributes:
        inner: processes that each client's own search may use, where clients are few.

    """

    def __init__(self, workers: int = 1, clients: int | None = None) -> None:
        self.workers = min(workers, clients or workers)
        self.inner = workers // max(1, self.workers)
        self._pool: Pool[None] = Pool(
            self.workers, None, preload=("dprbft.engines.verbs", "dprbft.site.search")
        )

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
