"""Search problems whose answers are known, and what a search on them has cost so far.

| name | is |
|---|---|
| `Table` | every genome of a small space with its trainings: `benchmarks.make_tables` |
| `Problem` | what a search algorithm may ask, from a table or by training |
| `Meter` | a problem with a budget: it charges sample-passes and keeps the trace |
| `MeteredFitness` | a meter as a staged fitness of `panas.evolution.genetic` |
| trace | (sample-passes so far, best validation accuracy, test accuracy of that best), ... |

Counting: a sample-pass is one training sample seen forward and backward. Validation and test
are free, for everyone alike. Only a candidate that was trained to the end may become the best.

    from benchmarks.tabular import read_table, tabular_fitness
    fitness = tabular_fitness(read_table("digits"), seed=0)   # seeds 0, 1, 2
    evolve(SearchProblem(fitness.problem.space, fitness), config=..., rng=...)

What the tables say about cheap predictors of a training's end:

    python -m benchmarks.tabular [--json]
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt16, UInt32
from scipy.stats import spearmanr

from panas.architecture.genome import Genome
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import Outcome, TrainingJob
from panas.runtime.errors import BadInput

TABLES = Path(__file__).parents[1] / "tables"
PATIENCE = 3
"""Proposals, known or new, that an algorithm with a cache may make, in trainings of its budget."""

Trace = list[tuple[int, float, float]]


@dataclass(frozen=True)
class Table:
    """G genomes, S seeds, E epochs: right answers of every training."""

    genomes: tuple[str, ...]
    validation: UInt16[np.ndarray, "G S E"]
    """Right answers on the validation samples after each epoch."""
    test: UInt16[np.ndarray, "G S"]
    """Right answers on the test samples after the last epoch."""
    parameters: UInt32[np.ndarray, "G"]
    macs: UInt32[np.ndarray, "G"]
    proxies: dict[str, Float32[np.ndarray, "G"]]
    """Data-free scores by name."""
    facts: dict[str, Any]
    """Sizes, optimisation, versions, and how to make the table again."""

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return self.test.shape[1]

    @property
    def space(self) -> SearchSpace:
        """The space that the table holds all of."""
        lists: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in self.facts["space"].items()
        }
        return SearchSpace(**lists)

    @cached_property
    def row(self) -> dict[str, int]:
        """Where a genome is."""
        return {genome: i for i, genome in enumerate(self.genomes)}


def read_table(dataset: str, folder: Path = TABLES) -> Table:
    """The table of "digits" or "fashion-mnist"; raises BadInput if there is none."""
    path = folder / f"search-{dataset}.npz"
    if not path.exists():
        raise BadInput(f"expected {path}, got nothing there; run python -m benchmarks.make_tables")
    with np.load(path, allow_pickle=False) as file:
        held = {name: file[name] for name in file.files}
    return Table(
        genomes=tuple(str(g) for g in held["genomes"]),
        validation=held["validation"],
        test=held["test"],
        parameters=held["parameters"],
        macs=held["macs"],
        proxies=dict(zip(held["proxy_names"].tolist(), held["proxies"].T, strict=True)),
        facts=json.loads(str(held["metadata"])),
    )


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a search may ask."""

    name: str
    space: SearchSpace
    classes: int
    samples: int
    """Training samples, so that one epoch is so many sample-passes."""
    epochs: int
    """Epochs of a full training."""
    validation: Callable[[Genome, int], float]
    """Validation accuracy after so many epochs."""
    test: Callable[[Genome], float]
    """Test accuracy after a full training."""

    @property
    def full(self) -> int:
        """Sample-passes of a full training."""
        return self.samples * self.epochs


def table_problem(table: Table, seed: int) -> Problem:
    """The trainings of one of the table's seeds, as a problem."""
    right, tested, row = table.validation[:, seed], table.test[:, seed], table.row
    return Problem(
        name=table.facts["dataset"],
        space=table.space,
        classes=table.facts["classes"],
        samples=table.facts["train"],
        epochs=right.shape[1],
        validation=lambda g, n: float(right[row[str(g)], n - 1] / table.facts["validation"]),
        test=lambda g: float(tested[row[str(g)]] / table.facts["test"]),
    )


class Spent(BaseException):  # not an Exception: a search survives those of its fitness
    """The budget does not pay for what was asked."""


@dataclass
class Meter:
    """A problem with a budget of sample-passes."""

    problem: Problem
    budget: float = float("inf")
    cached: bool = False
    """Whether a training that was paid for once is free from then on."""
    passes: int = 0
    trace: Trace = field(default_factory=list)
    paid: dict[Genome, int] = field(default_factory=dict)
    """Epochs of each genome that have been paid for; read with `cached` only."""
    calls: int = 0

    def charge(self, passes: int) -> None:
        """Pay, or raise Spent."""
        if self.passes + passes > self.budget:
            raise Spent
        self.passes += passes

    def train(self, genome: Genome, until: int | None = None, since: int = 0) -> float:
        """Train from epoch `since` to epoch `until` (the last, if None), pay, and validate."""
        last = self.problem.epochs if until is None else until
        self.calls += 1
        if self.cached and self.calls > PATIENCE * self.budget / self.problem.full:
            raise Spent  # an algorithm that proposes what it has had would go on for ever
        since = max(since, self.paid.get(genome, 0)) if self.cached else since
        self.charge(self.problem.samples * max(0, last - since))
        self.paid[genome] = max(last, self.paid.get(genome, 0))
        accuracy = self.problem.validation(genome, last)
        if last == self.problem.epochs and (not self.trace or accuracy > self.trace[-1][1]):
            self.trace.append((self.passes, accuracy, self.problem.test(genome)))
        return accuracy


@dataclass(frozen=True)
class MeteredFitness:
    """A meter as a fitness: plain (a full training) or staged."""

    meter: Meter

    @property
    def problem(self) -> Problem:
        """The problem below."""
        return self.meter.problem

    def __call__(self, genome: Genome) -> float:
        """Validation accuracy after a full training."""
        return self.meter.train(genome)

    def advance(self, job: TrainingJob) -> Outcome:
        """Train to the share that is asked for, from where `state` (epochs done) says."""
        since = int(job.state) if job.state else 0
        until = max(1, round(job.share * self.problem.epochs))
        before = self.meter.passes
        fitness = self.meter.train(job.genome, until, since)
        return Outcome(fitness, self.meter.passes - before, str(max(until, since)).encode())


def tabular_fitness(table: Table, seed: int) -> MeteredFitness:
    """A table's seed as a fitness without a budget."""
    return MeteredFitness(Meter(table_problem(table, seed)))


def at(trace: Trace, passes: float, chance: float) -> tuple[float, float]:
    """Best validation accuracy after so many passes, and its test accuracy; chance before any."""
    results = (chance, chance)
    for cost, validation, test in trace:
        if cost > passes:
            break
        results = (validation, test)
    return results


def predictors(table: Table) -> dict[str, dict[str, float]]:
    """How well cheap numbers rank genomes as the end of their training does, mean over seeds.

    Returns:
        For each predictor: Spearman's rank correlation with final validation and test accuracy,
        and how many of the best tenth by final validation are in its own best tenth and quarter.

    """
    blocks = [text.split("-") for text in table.genomes]
    facts: dict[str, np.ndarray] = {
        **table.proxies,
        "parameters": table.parameters,
        "macs": table.macs,
        "convolutions": np.array([sum(b.startswith("c") for b in bs) for bs in blocks]),
        "pools": np.array([sum(not b.startswith("c") for b in bs) for bs in blocks]),
    }
    per_seed = {name: [values] * table.seeds for name, values in facts.items()}
    for epoch in range(table.validation.shape[2]):
        per_seed[f"epoch {epoch + 1}"] = list(table.validation[:, :, epoch].T)
    if table.seeds > 1:
        final = table.validation[:, :, -1]
        per_seed["another seed's end"] = list(np.roll(final, 1, axis=1).T)
    results = {}
    for name, columns in per_seed.items():
        rows = []
        for seed, x in enumerate(columns):
            end, test = table.validation[:, seed, -1], table.test[:, seed]
            best = set(np.argsort(-end.astype(float), kind="stable")[: len(end) // 10].tolist())
            order = np.argsort(-x.astype(float), kind="stable").tolist()
            kept = [len(best & set(order[: len(end) // k])) / len(best) for k in (10, 4)]
            rows.append([spearmanr(x, end).statistic, spearmanr(x, test).statistic, *kept])
        names = ("validation", "test", "recall in tenth", "recall in quarter")
        means = [statistics.fmean(float(v) for v in column) for column in zip(*rows, strict=True)]
        results[name] = dict(zip(names, means, strict=True))
    return results


def main() -> None:
    """Print what predicts the end of a training."""
    parser = argparse.ArgumentParser(description="What predicts the end of a training?")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    tables = {p.stem.removeprefix("search-"): p for p in sorted(TABLES.glob("search-*.npz"))}
    results = {name: predictors(read_table(name)) for name in tables}
    if a.json:
        print(json.dumps(results))
        return
    for name, rows in results.items():
        print(f"{name}: {'validation':>28s} {'test':>8s} {'in tenth':>9s} {'in quarter':>11s}")
        for predictor, r in rows.items():
            values = " ".join(f"{v:9.2f}" for v in r.values())
            print(f"  {predictor:24s} {values}")


if __name__ == "__main__":
    main()
