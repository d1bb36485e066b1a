"""Worker processes on this machine: one worker and many give the same results.

One worker is the calling process itself. More are processes with a share of the cores each, forked
from a server process without threads; a script that uses them needs `if __name__ == "__main__":`.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import forkserver
from typing import Any, Generic, TypeVar

from panas.runtime.errors import BadInput, PanasError

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")


def default_workers() -> int:
    """As many worker processes as this process may use cores."""
    return len(os.sched_getaffinity(0))


def check_workers(workers: int) -> None:
    """Refuse a number of worker processes below 1."""
    if workers < 1:
        raise BadInput(f"expected at least 1 worker, got {workers}; raise it")


LIFE = 60.0
"""Seconds after which new worker processes replace the old ones, between two calls: each new shape
of network leaves some 10 MB behind in a process."""

GRACE = 0.3  # seconds for a signal that ended the workers to reach this process, and be the error
PATIENCE = 5.0  # seconds that a pool which an error ends waits for what is left of it


@dataclass(frozen=True)
class WorkerDied:
    """The result of a task whose process died."""

    error: str = "its process died (out of memory?)"


class Pool(Generic[C]):
    """Runs functions of (context, task) over many tasks.

    Args:
        workers: how many processes, at least 1; one is the calling process itself.
        context: sent to each worker once; it must pickle where there are several.
        preload: modules that the server process imports, once for all workers.
    """

    def __init__(self, workers: int, context: C, *, preload: Sequence[str] = ()) -> None:
        check_workers(workers)
        self.workers = workers
        self._context = context
        self._preload = preload
        self._executor: ProcessPoolExecutor | None = None
        self._born = 0.0
        if workers > 1:
            _check_picklable(context)

    def map(self, work: Callable[[C, T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Run `work` on every task; yields (position, result) as results come.

        The first error of a task is raised, and tasks that have not started are dropped. A process
        that died is a PanasError; the next call gets new ones.
        """
        if self.workers == 1:
            for position, task in enumerate(tasks):
                yield position, _run(work, self._context, task)
            return
        futures = self._submit(work, tasks)
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as e:
            time.sleep(GRACE)
            raise PanasError(
                "a worker process died (out of memory?); use fewer workers, and go on"
            ) from e
        finally:
            for future in futures:
                future.cancel()

    def survive(
        self,
        work: Callable[[C, T], R],
        tasks: Sequence[T],
        *,
        load: Callable[[T], float] = lambda _: 0.0,
        on_result: Callable[[T], None] = lambda _: None,
    ) -> list[R | WorkerDied]:
        """The results in the order of the tasks, `WorkerDied` where a process died.

        Tasks in a pool that a death broke run again, each alone; with one worker, a death ends the
        calling process.

        Args:
            work: a function of the context and a task; it must pickle where workers are several.
            tasks: what to do.
            load: of a task, in any unit; several workers begin with the largest.
            on_result: called with each finished task, in the order of the tasks.
        """
        if self.workers == 1:
            alone: list[R | WorkerDied] = []
            for task in tasks:
                alone.append(_run(work, self._context, task))
                on_result(task)
            return alone
        order = sorted(range(len(tasks)), key=lambda i: -load(tasks[i]))
        submitted = self._submit(work, [tasks[i] for i in order])
        futures = {order[k]: future for future, k in submitted.items()}
        results: list[R | WorkerDied] = []
        try:
            for i, task in enumerate(tasks):
                try:
                    results.append(futures[i].result())
                except BrokenProcessPool:
                    results.append(self._alone(work, task))
                on_result(task)
        finally:
            for future in futures.values():
                future.cancel()
        return results

    def _alone(self, work: Callable[[C, T], R], task: T) -> R | WorkerDied:
        self._restart()
        (future,) = self._submit(work, [task])
        try:
            return future.result()
        except BrokenProcessPool:
            self._restart()
            return WorkerDied()

    def _restart(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

    def _submit(self, work: Callable[[C, T], R], tasks: Sequence[T]) -> dict[Future[R], int]:
        try:
            return self._submit_once(work, tasks)
        except BrokenProcessPool:  # by a death in an earlier call
            self._restart()
            return self._submit_once(work, tasks)

    def _submit_once(self, work: Callable[[C, T], R], tasks: Sequence[T]) -> dict[Future[R], int]:
        if time.monotonic() - self._born > LIFE:
            self._restart()
        if self._executor is None:
            _trim_heap()
            context = multiprocessing.get_context("forkserver")
            # Else the first optimiser loads the compiler in every worker: 1.5 s and 80 MB each.
            context.set_forkserver_preload([*self._preload, "torch._dynamo"])
            _start_server()
            self._executor = ProcessPoolExecutor(
                self.workers,
                context,
                initializer=_start_worker,
                initargs=(max(1, default_workers() // self.workers), self._context),
            )
            self._born = time.monotonic()
        return {self._executor.submit(_call, work, task): i for i, task in enumerate(tasks)}

    def __enter__(self) -> "Pool[C]":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._executor is None:
            return
        # Before shutdown, which forgets them: an interrupted task must not go on.
        processes: dict[int, Any] = dict(getattr(self._executor, "_processes", None) or {})
        manager = getattr(self._executor, "_executor_manager_thread", None)
        self._executor.shutdown(wait=error is None, cancel_futures=True)
        if error is not None:
            for process in processes.values():
                process.terminate()
            if manager is not None:  # closes its pipe, which the interpreter's end writes to
                manager.join(PATIENCE)
        self._executor = None


_context: Any = None  # in a worker process: the context of its pool

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def _call(work: Callable[[Any, T], R], task: T) -> R:
    return _run(work, _context, task)


def _run(work: Callable[[C, T], R], context: C, task: T) -> R:
    try:
        return work(context, task)
    finally:
        _trim_heap()


def _trim_heap() -> None:
    """Return freed memory to the system, which glibc would keep: networks differ in size."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def _start_server() -> None:
    """Start the server process with SIGINT blocked, which it ignores only after its imports."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(threads: int, context: Any) -> None:
    import torch  # the server process has loaded it already; counting cores does not need it

    global _context
    _context = context
    torch.set_num_threads(threads)
    # The calling process handles Ctrl-C and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The calling process has loaded the same data and warned already.
    warnings.simplefilter("ignore")
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End with the calling process: nothing may charge the ledger after it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _check_picklable(context: object) -> None:
    try:
        pickle.dumps(context)
    except Exception as e:
        # Not its text: it may hold samples.
        parts = context if isinstance(context, tuple) else (context,)
        description = " ".join(f"{', '.join(type(p).__name__ for p in parts)} ({e})".split())
        raise BadInput(
            "expected what can be sent to worker processes, such as a function at the top level "
            f"of a module, got {description}; move it there, or use one worker"
        ) from e
