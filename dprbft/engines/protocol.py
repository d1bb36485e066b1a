"""What runs the clients' work: an extension point."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Engine(Protocol):
    """Runs a function over many clients' tasks, wherever."""

    inner: int
    """Processes that each client's own search may use."""

    def map(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Run `work` on every task; yields (position, result) as results come.

        Raises:
            PanasError: if a worker dies, or the first error of a task; tasks that have not
                started are then dropped.

        """
        ...
