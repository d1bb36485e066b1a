"""Evaluating a generation: who is dropped, who fails, and that nobody takes the search down."""

import itertools
import math
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_fitness import one_that_dies, plain

from panas.architecture.blocks import ConvBlock, PoolBlock
from panas.architecture.genome import Genome
from panas.evolution.fitness import Fitness, Outcome, TrainingJob
from panas.evolution.halving import Evaluator, Task, bounded, early, shared_out
from panas.evolution.records import Evaluation, EvolutionConfig
from panas.runtime.errors import BadInput, PanasError
from panas.runtime.pool import Pool
from panas.runtime.seeds import one_thread

RUNGS = (0.25, 0.5)


def genome(number: int) -> Genome:
    return Genome((ConvBlock(number + 1, 3),))


@dataclass(frozen=True)
class Candidate:
    """What a candidate would score at each rung and at the end, its size, and where it fails."""

    scores: tuple[float, ...]
    size: int
    fails: int | None = None


class Table:
    """Staged: looks scores up; a job goes on from exactly where the one before has stopped."""

    def __init__(self, candidates: Sequence[Candidate], rungs: tuple[float, ...]) -> None:
        self._candidates = {genome(i): c for i, c in enumerate(candidates)}
        self._stages = {share: stage for stage, share in enumerate((*rungs, 1.0))}
        self.done: list[tuple[int, int]] = []

    def advance(self, job: TrainingJob) -> Outcome:
        stage, candidate = self._stages[job.share], self._candidates[job.genome]
        assert job.state == (f"{job.genome} {stage - 1}".encode() if stage else None)
        block = job.genome.blocks[0]
        assert isinstance(block, ConvBlock)
        self.done.append((block.out_channels - 1, stage))
        if candidate.fails == stage:
            return Outcome(math.nan, stage + 1, error="it was to fail")
        return Outcome(candidate.scores[stage], stage + 1, f"{job.genome} {stage}".encode())


Generations = list[list[int]]


def oracle(
    candidates: Sequence[Candidate],
    generations: Generations,
    rungs: int,
    keep: Fraction,
    sized: bool,
) -> dict[int, tuple[int, bool]]:
    """How many scores each candidate gets, and whether it was dropped; a rung at a time, naively.

    It goes on if it is no worse than the m-th best of its peers, m = keep x peers, rounded up.
    """
    fate: dict[int, tuple[int, bool]] = {}
    seen: list[list[int]] = [[] for _ in range(rungs)]
    for generation in generations:
        alone = bool(rungs) and not any(seen)
        for batch in (generation[:1], generation[1:]) if alone else (generation,):
            running = list(batch)
            for rung in range(rungs + 1):
                for i in running:
                    fails = candidates[i].fails == rung
                    fate[i] = (rung + (not fails), False)
                running = [i for i in running if candidates[i].fails != rung]
                if rung == rungs:
                    break
                seen[rung] += running
                for i in list(running):
                    peers = [
                        candidates[j].scores[rung]
                        for j in seen[rung]
                        if not sized or candidates[j].size <= candidates[i].size
                    ]
                    places = math.ceil(keep * len(peers))
                    if candidates[i].scores[rung] < sorted(peers, reverse=True)[places - 1]:
                        fate[i] = (rung + 1, True)
                        running.remove(i)
    return fate


def in_turn(fitness: Fitness) -> Callable[..., Sequence[Any]]:
    """Does jobs in one worker."""
    return partial(Pool(1, fitness).survive, bounded)


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[Candidate], Generations, int]:
    rungs = draw(st.integers(0, 2))
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    score = st.integers(0, 8).map(lambda i: i / 8)  # with ties
    candidate = st.builds(
        Candidate,
        scores=st.tuples(*[score] * (rungs + 1)),
        size=st.integers(1, 4),
        fails=st.sampled_from([None] * 5 + list(range(rungs + 1))),
    )
    candidates = draw(st.lists(candidate, min_size=sum(sizes), max_size=sum(sizes)))
    numbers = iter(range(sum(sizes)))
    return candidates, [list(itertools.islice(numbers, size)) for size in sizes], rungs


@settings(deadline=None)
@given(
    searches(),
    st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(3, 4), Fraction(1)]),
    st.booleans(),
    st.data(),
)
def test_who_is_dropped(
    search: tuple[list[Candidate], Generations, int],
    keep: Fraction,
    sized: bool,
    data: st.DataObject,
) -> None:
    candidates, generations, rungs = search
    table = Table(candidates, RUNGS[:rungs])
    rules = EvolutionConfig(rungs=RUNGS[:rungs], keep=float(keep))
    sizes = {genome(i): float(c.size) for i, c in enumerate(candidates)}

    def fresh() -> Evaluator:
        return Evaluator(in_turn(table), rules, sizes.__getitem__ if sized else None)

    fate = oracle(candidates, generations, rungs, keep, sized)
    stop = data.draw(st.integers(0, len(generations)))  # another process goes on from running
    evaluator, result = fresh(), list[Evaluation]()
    for number, generation in enumerate(generations):
        if number == stop:
            evaluator = fresh()
            for evaluation in result:
                evaluator.remember(evaluation)
        result += evaluator.evaluate(number, [genome(i) for i in generation])
    for i, evaluation in enumerate(result):
        scores, dropped = fate[i]
        failed = not dropped and scores < rungs + 1
        assert evaluation == Evaluation(
            genome=genome(i),
            fitness=0.0 if failed else candidates[i].scores[scores - 1],
            generation=next(n for n, g in enumerate(generations) if i in g),
            failed=failed,
            scores=candidates[i].scores[:scores],
            dropped=dropped,
            passes=sum(range(1, scores + failed + 1)),
            size=float(candidates[i].size) if sized else 0.0,
            error="it was to fail" if failed else None,
        )
        assert evaluation.trained == (not failed and not dropped)
    assert len(set(table.done)) == len(table.done)  # nothing is done twice
    if rungs and result:
        ends = [i for i, stage in table.done if stage == rungs]
        if not result[0].failed:
            assert ends[0] == 0
            assert table.done[: rungs + 1] == [(0, stage) for stage in range(rungs + 1)]


def evaluate(
    fitness: Fitness, genomes: list[Genome], seconds: float | None = None
) -> list[Evaluation]:
    evaluator = Evaluator(in_turn(fitness), EvolutionConfig(rungs=(), seconds=seconds))
    return evaluator.evaluate(3, genomes)


def moody(g: Genome) -> float:
    """Fails in as many ways as there are."""
    block = g.blocks[0]
    assert isinstance(block, ConvBlock)
    match block.out_channels:
        case 2:
            raise ZeroDivisionError("one over\nnothing")
        case 3:
            return math.nan
        case 4:
            return math.inf
        case 5:
            raise MemoryError
        case 6:
            return "no number"  # type: ignore[return-value]
        case 7:
            raise TimeoutError("the data did not come")
    return block.out_channels / 100


def test_failures_are_recorded_and_survived() -> None:
    evaluations = evaluate(moody, [genome(i) for i in range(9)])
    assert [e.failed for e in evaluations] == [False, *[True] * 6, False, False]
    assert [e.fitness for e in evaluations] == [0.01, *[0.0] * 6, 0.08, 0.09]
    assert [e.generation for e in evaluations] == [3] * 9
    errors = [e.error or "" for e in evaluations[1:7]]
    expected = ["ZeroDivisionError: one", "not finite", "not finite", "Memory", "Value", "Timeout"]
    assert all(start in error for start, error in zip(expected, errors, strict=True))
    assert all(not e.scores and not e.dropped and not e.trained for e in evaluations[1:7])


@pytest.mark.parametrize("value", [-0.001, 1.001, -5.0, 99.0, 1e300])
def test_a_fitness_outside_the_unit_interval_is_refused(value: float) -> None:
    with pytest.raises(BadInput, match=r"in \[0, 1\], got .* for c1k3; return an accuracy") as e:
        evaluate(lambda _: value, [genome(0)])
    assert "\n" not in str(e.value)
    assert [e.fitness for e in evaluate(lambda _: 1.0, [genome(0)])] == [1.0]
    assert not evaluate(lambda _: 0.0, [genome(0)])[0].failed


@pytest.mark.parametrize(
    "error", [BadInput("expected a, got b; c"), PanasError("x"), KeyboardInterrupt(), SystemExit(2)]
)
def test_what_is_no_failure_of_the_candidate_passes_through(error: BaseException) -> None:
    def fitness(_: Genome) -> float:
        raise error

    with pytest.raises(type(error)) as caught:
        evaluate(fitness, [genome(0), genome(1)])
    assert caught.value is error


def test_every_job_runs_on_one_thread_and_leaves_the_rest_as_it_was() -> None:
    seen: list[int] = []

    def fitness(g: Genome) -> float:
        seen.append(torch.get_num_threads())
        return moody(g)

    with one_thread():  # restores the number afterwards
        torch.set_num_threads(2)
        evaluate(fitness, [genome(0), genome(1)])
        assert seen == [1, 1]
        assert torch.get_num_threads() == 2


def endless(g: Genome) -> float:
    """Never ends for odd genomes."""
    block = g.blocks[0]
    assert isinstance(block, ConvBlock)
    while block.out_channels % 2:
        pass
    return 0.5


def test_what_takes_too_long_is_a_failure_but_in_a_main_thread_alone() -> None:
    before = signal.getsignal(signal.SIGALRM)
    evaluations = evaluate(endless, [genome(i) for i in range(4)], seconds=0.05)
    assert [e.failed for e in evaluations] == [True, False, True, False]
    assert evaluations[0].error == "TimeoutError: it took longer than 0.05 s"
    assert signal.getsignal(signal.SIGALRM) == before
    outcomes: list[Outcome] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(bounded(plain, (TrainingJob(genome(1)), 1e-9))), daemon=True
    )
    thread.start()
    thread.join()
    assert math.isfinite(outcomes[0].fitness)


@pytest.mark.slow
def test_a_death_and_an_endless_training_in_workers_are_failures() -> None:
    dead = Genome((PoolBlock("avg"), ConvBlock(8, 3)))
    genomes = [genome(0), dead, genome(1), genome(2), dead]
    with Pool(2, one_that_dies) as pool:
        evaluator = Evaluator(partial(pool.survive, bounded), EvolutionConfig(rungs=()))
        evaluations = evaluator.evaluate(0, genomes)
    assert [e.failed for e in evaluations] == [False, True, False, False, True]
    assert [e.fitness for e in evaluations if not e.failed] == [plain(genome(i)) for i in range(3)]
    assert "died" in (evaluations[1].error or "")
    with Pool(2, endless) as pool:
        rules = EvolutionConfig(rungs=(), seconds=0.2)
        evaluator = Evaluator(partial(pool.survive, bounded), rules)
        evaluations = evaluator.evaluate(0, genomes[2:4])
    assert [e.failed for e in evaluations] == [False, True]


class Kept:
    """A fitness of searches that share out their jobs; another process is at the first one."""

    keeps = True

    def __init__(self, elsewhere: str) -> None:
        self.elsewhere, self.done = elsewhere, list[tuple[str, float]]()

    def advance(self, job: TrainingJob) -> Outcome:
        self.done.append((str(job.genome), job.share))
        return Outcome(len(job.genome.blocks) / 10)

    def attempt(self, job: TrainingJob) -> Outcome | None:
        return None if str(job.genome) == self.elsewhere else self.advance(job)


@pytest.mark.parametrize(
    ("elsewhere", "expected"), [("c4k3", ["c8k3", "c8k3-max"]), ("", ["c4k3"])]
)
def test_while_another_is_at_the_first_job_those_that_follow_are_done(
    elsewhere: str, expected: list[str]
) -> None:
    fitness = Kept(elsewhere)
    first, *rest = ((TrainingJob(Genome.parse(t), 0.5), None) for t in ("c4k3", "c8k3", "c8k3-max"))
    with Pool(1, fitness) as pool:
        early(pool, fitness, first, rest)
        assert fitness.done == [(text, 0.5) for text in expected]
        fitness.keeps, fitness.done = False, []
        early(pool, fitness, first, rest)  # nobody would read it later
        assert fitness.done == []


def test_a_search_tells_first_what_is_sure_to_follow() -> None:
    told: list[tuple[str, list[str]]] = []

    def beside(first: Task, rest: list[Task]) -> None:
        told.append((str(first[0].genome), [str(job.genome) for job, _ in rest]))
        assert {job.share for job, _ in (first, *rest)} == {0.25}

    evaluator = Evaluator(
        lambda tasks: [bounded(plain, task) for task in tasks],
        EvolutionConfig(rungs=(0.25,)),
        beside=beside,
    )
    genomes = [genome(i) for i in (4, 1, 7)]
    evaluator.evaluate(0, genomes)
    evaluator.evaluate(1, [genome(2)])
    assert told == [(str(genomes[0]), [str(g) for g in genomes[1:]])]


def test_results_are_in_the_order_of_the_genomes() -> None:
    numbers = [4, 1, 7, 1, 0]
    evaluations = evaluate(plain, [genome(i) for i in numbers])
    assert [e.genome for e in evaluations] == [genome(i) for i in numbers]
    assert evaluate(plain, []) == []
    done: list[str] = []

    class Shared:
        def advance(self, job: TrainingJob) -> Outcome:
            done.append(str(job.genome))
            return Outcome(len(job.genome.blocks) / 10)

        def attempt(self, job: TrainingJob) -> Outcome | None:
            return None if len(job.genome.blocks) == 2 else self.advance(job)

    genomes = [Genome.parse(text) for text in ("c4k3-max", "c4k3", "c8k3-max-c4k3")]
    outcomes = shared_out(Shared(), [(TrainingJob(g), None) for g in genomes])
    assert done == ["c4k3", "c8k3-max-c4k3", "c4k3-max"]  # whom others are at comes last
    assert [outcome.fitness for outcome in outcomes] == [0.2, 0.1, 0.3]
