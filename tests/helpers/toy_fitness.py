"""Fitness functions for the tests of the search, at the top level so that workers find them."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from panas.architecture.genome import Genome
from panas.evolution.fitness import Outcome, TrainingJob

RUNGS = (0.25, 0.5)


def unit(text: str) -> float:
    """A number in [0, 1) that looks random and is always the same."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def plain(genome: Genome) -> float:
    """Genomes that start alike are alike; no staging."""
    return 0.9 * unit(str(genome.blocks[0])) + 0.1 * unit(str(genome))


@dataclass(frozen=True)
class Counted:
    """A function, and how often it was called with each genome."""

    function: Callable[[Genome], float]
    calls: Counter[Genome] = field(default_factory=Counter)

    def __call__(self, genome: Genome) -> float:
        self.calls[genome] += 1
        return self.function(genome)


@dataclass(frozen=True)
class Curves:
    """Staged: an accuracy that grows with the share of the training.

    Every ninth genome fails and says why; with `calls` each job is noted, in the caller's process.
    """

    calls: list[TrainingJob] = field(default_factory=list, compare=False)

    def advance(self, job: TrainingJob) -> Outcome:
        self.calls.append(job)
        text = str(job.genome)
        begun = float(job.state) if job.state is not None else 0.0
        assert begun < job.share
        passes = round(100 * (job.share - begun))
        if unit(text + "fails") < 1 / 9:
            raise ArithmeticError("a ninth fails")
        score = 0.9 * plain(job.genome) * job.share ** (0.2 + unit(text + "slow"))
        return Outcome(score, passes, str(job.share).encode())


def one_that_dies(genome: Genome) -> float:
    """Takes its process with it if the genome begins with a pool."""
    if str(genome.blocks[0]) in ("avg", "max"):
        os._exit(1)
    return plain(genome)
