"""How the candidates of one generation get their fitness: once each, by successive halving.

| term | meaning |
|---|---|
| job | a share of a candidate's training, from where an earlier job stopped |
| rung | a share of the training after which candidates are compared, and the slower ones stop |
| pass | one training sample, seen forward and backward: the unit of cost |

A candidate goes on beyond a rung if it is among the best `keep` of all that have reached that rung
in this search and are no larger than it (with one objective, size does not count). A dropped one
keeps the accuracy it was stopped with.

A fitness that raises, is not finite, takes too long or takes its process down is recorded as a
failure, with fitness 0, and the search goes on; a `PanasError` ends it. Each job runs on one
thread, so that results do not depend on the number of workers.

Source: DecNAS, section 4.3; Li et al. 2020 (ASHA).
"""

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TypeVar

from deap import base

from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.evolution.fitness import Fitness, Outcome, ResumableFitness, SharedFitness, TrainingJob
from panas.evolution.records import Evaluation, EvolutionConfig
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.pool import Pool, WorkerDied
from panas.runtime.seeds import one_thread

Done = TypeVar("Done", Outcome, Outcome | None)

Task = tuple[TrainingJob, float | None]
"""A job, and the seconds that it may take (None for no limit)."""


class Evaluator:
    """Evaluates candidates, and remembers what it needs for the next ones.

    Args:
        advance: does jobs (`bounded`), and returns their outcomes in order.
        rules: `rungs`, `keep` and `seconds` count.
        size: of a genome's network, the second objective; None for none.
        beside: told the first job of all, and jobs that are sure to follow, before any is done.
    """

    def __init__(
        self,
        advance: Callable[[list[Task]], Iterable[Outcome | WorkerDied]],
        rules: EvolutionConfig,
        size: Callable[[Genome], float] | None = None,
        beside: Callable[[Task, list[Task]], None] = lambda _, __: None,
    ) -> None:
        self._do, self._rules, self._size, self._beside = advance, rules, size, beside
        self._reached: list[list[tuple[float, float]]] = [[] for _ in rules.rungs]

    def evaluate(self, generation: int, genomes: Sequence[Genome]) -> list[Evaluation]:
        """Evaluate genomes, in their order; BadInput if a finite fitness is outside [0, 1]."""
        sizes = [self._size(genome) if self._size else 0.0 for genome in genomes]
        runs = [
            _Run(Evaluation(genome, 0.0, generation, failed=False, size=size))
            for genome, size in zip(genomes, sizes, strict=True)
        ]
        if self._reached and not any(self._reached) and runs:
            rung, seconds = self._rules.rungs[0], self._rules.seconds
            first, *rest = ((TrainingJob(run.record.genome, rung), seconds) for run in runs)
            self._beside(first, rest)
            self._train(runs[:1])  # the first of all goes to the end: there is a result early
        self._train([run for run in runs if not run.record.scores and not run.record.failed])
        return [run.record for run in runs]

    def remember(self, evaluation: Evaluation) -> None:
        """Take an evaluation of an earlier process into account."""
        for reached, score in zip(self._reached, evaluation.scores, strict=False):
            reached.append((score, evaluation.size))

    def _train(self, runs: "list[_Run]") -> None:
        """Train to the end, but for those that fall behind."""
        for rung, share in enumerate((*self._rules.rungs, 1.0)):
            seconds = self._rules.seconds
            tasks = [(TrainingJob(run.record.genome, share, run.state), seconds) for run in runs]
            for run, outcome in zip(runs, self._do(tasks), strict=True):
                run.take(outcome)
            runs = [run for run in runs if not run.record.failed]
            if rung < len(self._rules.rungs):
                self._drop(rung, runs)
                runs = [run for run in runs if not run.record.dropped]

    def _drop(self, rung: int, runs: "list[_Run]") -> None:
        reached = self._reached[rung]
        reached.extend((run.record.fitness, run.record.size) for run in runs)
        for run in runs:
            peers = [score for score, size in reached if size <= run.record.size]
            better = sum(score > run.record.fitness for score in peers)
            dropped = better >= math.ceil(self._rules.keep * len(peers))
            run.record = replace(run.record, dropped=dropped)


@dataclass
class _Run:
    """A candidate on its way through the rungs: what became of it so far."""

    record: Evaluation
    state: bytes | None = None

    def take(self, outcome: Outcome | WorkerDied) -> None:
        """Add what a job brought."""
        if isinstance(outcome, WorkerDied):
            outcome = Outcome(math.nan, error=outcome.error)
        error, scores = None, self.record.scores
        if not math.isfinite(outcome.fitness):
            error = outcome.error or "its fitness is not finite"
        elif not 0 <= outcome.fitness <= 1:
            raise BadInput(
                f"expected a fitness in [0, 1], got {outcome.fitness} for {self.record.genome}; "
                "return an accuracy"
            )
        else:
            scores += (float(outcome.fitness),)
        self.state = outcome.state
        self.record = replace(
            self.record,
            fitness=scores[-1] if error is None else 0.0,
            failed=error is not None,
            scores=scores,
            passes=self.record.passes + outcome.passes,
            error=error,
        )


def bounded(fitness: Fitness, task: Task) -> Outcome:
    """Do a job on one thread and within its time; an error becomes its outcome."""
    job, seconds = task
    if isinstance(fitness, ResumableFitness):
        return _bounded(fitness.advance, job, seconds)
    return _bounded(lambda job: Outcome(float(fitness(job.genome))), job, seconds)


def by_map(
    toolbox: base.Toolbox, fitness: Fitness
) -> Callable[[list[Task]], Iterable[Outcome | WorkerDied]]:
    """How an `Evaluator` does jobs: `bounded`, by the toolbox's entry `map`."""
    work = partial(bounded, fitness)
    return lambda tasks: toolbox.map(work, tasks)


def in_pool(
    pool: Pool[Fitness],
    spec: NetworkSpec,
    on_task: Callable[[Task], None],
    work: "partial[Outcome]",
    tasks: Sequence[Task],
) -> list[Outcome | WorkerDied]:
    """Do the tasks, longest first; one process alone shares them out with other searches.

    Args:
        pool: its context is the fitness.
        spec: shape by which a genome's multiply-accumulates, and so its time, are estimated.
        on_task: called with each task that is done.
        work: `bounded` with the fitness, as `by_map` makes it.
        tasks: to do, in the order of the results.
    """
    fitness = work.args[0]
    if pool.workers == 1 and isinstance(fitness, SharedFitness):
        return [*shared_out(fitness, tasks, on_task)]
    return pool.survive(
        work.func, tasks, load=lambda task: cost(task[0].genome, spec).macs, on_result=on_task
    )


def shared_out(
    fitness: SharedFitness,
    tasks: Sequence[Task],
    on_result: Callable[[Task], None] = lambda _: None,
) -> list[Outcome]:
    """Do jobs as `bounded`, in order, but those last that other processes are at.

    Args:
        fitness: says which jobs other processes are at.
        tasks: jobs, each with its limit in seconds or None.
        on_result: called with each task that is done, in the order in which they end.
    """
    early: list[Outcome | None] = []
    for task in tasks:
        early.append(_bounded(fitness.attempt, *task))
        if early[-1] is not None:
            on_result(task)
    outcomes: list[Outcome] = []
    for task, outcome in zip(tasks, early, strict=True):
        outcomes.append(bounded(fitness, task) if outcome is None else outcome)
        if outcome is None:
            on_result(task)
    return outcomes


def early(pool: Pool[Fitness], fitness: Fitness, first: Task, rest: Sequence[Task]) -> None:
    """While another process is at the first job, do those that follow; where jobs are not shared
    out among searches, nothing.

    Args:
        pool: of the search; one with several processes works off its own jobs alone.
        fitness: keeps what is done, for whoever asks later.
        first: job of the search.
        rest: jobs that will follow.
    """
    if pool.workers > 1 or not isinstance(fitness, SharedFitness) or not fitness.keeps:
        return
    if _bounded(fitness.attempt, *first) is None:
        for task in rest:
            _bounded(fitness.attempt, *task)


def _bounded(
    do: Callable[[TrainingJob], Done], job: TrainingJob, seconds: float | None
) -> Done | Outcome:
    try:
        with one_thread(), _limit(seconds):
            return do(job)
    except PanasError:
        raise
    except Exception as e:
        return Outcome(math.nan, error=f"{type(e).__name__}: {e}")


@contextmanager
def _limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds (in a main thread only)."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
