"""The default engine: all clients on this machine, in a pool of worker processes.

With one worker everything runs in the calling process. With more, each worker is a process of its
own with its share of the cores; workers are started from a clean server process, which is safe
where threads are running. A script that uses more than one worker needs the usual
`if __name__ == "__main__":` guard.
"""

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, TypeVar

import torch

from panas.errors import PanasError

T = TypeVar("T")
R = TypeVar("R")


class InProcess:
    """Runs a function over many clients' tasks."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["dprbft.work"])
            cores = len(os.sched_getaffinity(0))
            self._pool = ProcessPoolExecutor(
                workers, context, initializer=_start_worker, initargs=(max(1, cores // workers),)
            )

    def map(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Run `work` on every task; yields (position, result) as results come.

        Raises:
            PanasError: if a worker process dies, or the first error of a task; tasks that have
                not started are then dropped.

        """
        if self._pool is None:
            for position, task in enumerate(tasks):
                yield position, work(task)
            return
        futures = {self._pool.submit(work, task): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as e:
            raise PanasError(
                "a worker process died (out of memory?); use fewer --workers, then --resume"
            ) from e
        finally:
            for future in futures:
                future.cancel()

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is None:
            return
        # Take the processes first: shutdown forgets them, and an interrupted task must not go on.
        processes: dict[int, Any] = dict(getattr(self._pool, "_processes", None) or {})
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        if error is not None:
            for process in processes.values():
                process.terminate()


def _start_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    # Ctrl-C is for the calling process, which ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The calling process has loaded the same data and warned already.
    warnings.simplefilter("ignore")
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End with the calling process, so that nothing charges the ledger after it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
