"""Worker processes: the same results from one as from many, and errors that arrive."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import _ExecutorManagerThread  # type: ignore[attr-defined]
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from panas.runtime.errors import BadInput, PanasError
from panas.runtime.pool import Pool, WorkerDied


def scaled(context: int, task: int) -> int:
    return context * task


def choosy(context: int, task: int) -> int:
    """Refuses task 3, fails at task 5, ends its process at task 7."""
    if task == 3:
        raise BadInput("expected another task, got 3; leave it out")
    if task == 5:
        raise KeyError("the caller's own")
    if task == 7:
        os._exit(1)
    if task == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return context * task


def leave(context: int, task: int) -> int:
    raise SystemExit(3)


def environment(context: object, task: int) -> tuple[int, int, bool]:
    return os.getpid(), torch.get_num_threads(), signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.fixture(scope="module")
def two() -> Iterator[Pool[int]]:
    with Pool(2, 10) as pool:
        yield pool


@pytest.mark.slow
def test_the_largest_load_begins_first_and_results_keep_their_order(
    two: Pool[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, submit = [], two._submit

    def note(work: Any, tasks: Any) -> Any:
        begun.extend(tasks)
        return submit(work, tasks)

    monkeypatch.setattr(two, "_submit", note)
    assert two.survive(scaled, [1, 4, 2, 6], load=float) == [10, 40, 20, 60]
    assert begun == [6, 4, 2, 1]
    assert two.survive(choosy, [1, 7, 2], load=float) == [10, WorkerDied(), 20]


@pytest.mark.slow
def test_old_workers_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(2, 10) as pool:

        def processes() -> set[int]:
            return {pid for pid, _, _ in pool.survive(environment, range(8))}

        first = processes()
        assert processes() & first
        monkeypatch.setattr("panas.runtime.pool.LIFE", 0.0)
        assert not processes() & first


@pytest.mark.parametrize("workers", [0, -1])
def test_at_least_one_worker(workers: int) -> None:
    with pytest.raises(BadInput, match="at least 1 worker"):
        Pool(workers, None)


def test_one_worker_is_this_process() -> None:
    with Pool(1, lambda x: -x) as pool:  # nothing has to be sent, so nothing has to be picklable
        assert [pid for pid, _, _ in pool.survive(environment, [0, 1])] == [os.getpid()] * 2
        assert list(pool.map(lambda f, x: f(x), [1, 2])) == [(0, -1), (1, -2)]
        assert pool.survive(lambda f, x: f(x), []) == []
        with pytest.raises(KeyError):
            pool.survive(choosy_of_one, [4, 5])
        with pytest.raises(SystemExit):
            list(pool.map(leave, [0]))


def choosy_of_one(context: object, task: int) -> int:
    return choosy(10, task)


@dataclass(frozen=True)
class Stuck:
    """Holds something that no process can be sent, and says so on several lines."""

    function: Callable[[int], int]

    def __repr__(self) -> str:
        return "Stuck(\n  function\n)"

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle\nthis")


@pytest.mark.parametrize(
    ("context", "named"),
    [(lambda x: x, "function"), (Stuck(abs), "Stuck"), ((["secret"], lambda: 0), "list, function")],
    ids=["lambda", "many lines", "several"],
)
def test_what_cannot_be_sent_is_named_in_one_line_without_what_it_holds(
    context: object, named: str
) -> None:
    with pytest.raises(BadInput, match=rf"^expected .*, got {named} .*; move it there") as caught:
        Pool(2, context)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_results_are_in_order_whoever_did_the_work(two: Pool[int]) -> None:
    tasks = list(range(12))
    assert two.survive(scaled, tasks) == [10 * task for task in tasks]
    assert sorted(two.map(scaled, tasks)) == [(task, 10 * task) for task in tasks]
    assert two.survive(scaled, []) == []
    places = two.survive(environment, tasks)
    assert os.getpid() not in {pid for pid, _, _ in places}
    assert 1 <= len({pid for pid, _, _ in places}) <= 2
    cores = len(os.sched_getaffinity(0))
    assert {threads for _, threads, _ in places} == {max(1, cores // 2)}
    assert all(deaf for _, _, deaf in places)  # Ctrl-C is for the calling process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "task", "error"),
    [(choosy, 3, BadInput), (choosy, 5, KeyError), (leave, 0, SystemExit)],
)
def test_errors_of_tasks_arrive(
    two: Pool[int], work: Callable[[int, int], int], task: int, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        two.survive(work, [1, task, 2])
    with pytest.raises(error):
        list(two.map(work, [1, task, 2]))
    assert two.survive(scaled, [1, 2]) == [10, 20]  # and the pool goes on


@pytest.mark.slow
def test_nothing_of_a_pool_is_left_when_an_error_ends_it() -> None:
    before = set(threading.enumerate())  # of the other tests' pool
    with pytest.raises(BadInput), Pool(2, 10) as pool:
        list(pool.map(choosy, [1, 3, 2]))
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if isinstance(thread, _ExecutorManagerThread)]


@pytest.mark.thorough
@pytest.mark.parametrize("fatal", [7, 9], ids=["exit", "kill"])
def test_a_death_costs_its_own_task_alone(fatal: int) -> None:
    with Pool(2, 10) as pool:
        results = pool.survive(choosy, [1, fatal, 2, 4, fatal, 6])
        died = WorkerDied()
        assert results == [10, died, 20, 40, died, 60]
        assert "died" in died.error
        assert pool.survive(scaled, [1]) == [10]


@pytest.mark.slow
def test_a_death_ends_a_map_with_a_remedy() -> None:
    with Pool(2, 10) as pool:
        with pytest.raises(PanasError, match="use fewer workers, and go on"):
            list(pool.map(choosy, [1, 7, 2]))
        assert sorted(pool.map(scaled, [1, 2])) == [(0, 10), (1, 20)]  # in new processes
