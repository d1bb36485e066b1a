"""Which round of a run does what, and how much of a site it asks at most.

A run begins with rounds of FedAvg of the whole network, then makes iterations, and ends with rounds
of FedAvg of what they chose. A turn of an iteration (a round of the publication) trains all
candidates that are left. Where some are dropped after it, it takes two rounds of the run: sites
first report accuracies, and then send the weights of those that stay. Else it takes one.

Source: DecNAS, algorithm 4.1, lines 2 to 12, and section 5.3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What a round asks of a site, at most."""

    trainings: int  # of one network each
    reports: int  # accuracies

    def __add__(self, other: "Load") -> "Load":
        return Load(self.trainings + other.trainings, self.reports + other.reports)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The rounds of a run; a pure function of its settings."""

    rounds: int  # of the run
    start: int  # of FedAvg before the search
    turns: tuple[int, ...]  # of each iteration that is planned
    drop: float  # share of an iteration's first candidates that each turn drops; 0: none

    def loads(self, candidates: int, groups: int) -> list[Load]:
        """Of each round, where an iteration has so many candidates and sites so many groups."""
        found = [Load(1, 0)] * self.start
        if self.start and self.turns:
            found[-1] = Load(1, 1)  # the accuracy before anything is pruned
        for turns in self.turns:
            alive = candidates
            for turn in range(1, turns + 1):
                gone = dropped(candidates, alive, self.drop)
                jobs = math.ceil(alive / groups)
                found.append(Load(jobs, jobs if gone or turn == turns else 0))
                found += [Load(0, 0)] * (gone > 0)
                alive -= gone
        return found + [Load(1, 0)] * (self.rounds - len(found))


def planned(
    rounds: int, ends: tuple[float, float], turns: Sequence[int], candidates: int, drop: float
) -> Schedule:
    """As many of the iterations, each with its `turns`, as fit between the first and the last
    rounds, whose shares of all are `ends`."""
    start, last = round(ends[0] * rounds), round(ends[1] * rounds)
    left, fitting = rounds - start - last, list[int]()
    for number in turns:
        left -= rounds_of_iteration(candidates, number, drop)
        if left < 0:
            break
        fitting.append(number)
    return Schedule(rounds=rounds, start=start, turns=tuple(fitting), drop=drop)


def turns_of(iteration: int, numbers: Sequence[int], every: int, dynamic: bool) -> int:
    """Turns of an iteration (from 1): more of them every so many iterations, or always the most."""
    step = (iteration - 1) // every if dynamic else len(numbers)
    return numbers[min(step, len(numbers) - 1)]


def dropped(candidates: int, alive: int, drop: float) -> int:
    """How many a turn drops: a share of the iteration's first ones, rounded up; one stays.

    Line 25 prints the maximum of both, which would always leave one; the text and Table 3 need the
    minimum. It is of the first ones: 33 % drop all but one in 3 turns.
    """
    return min(math.ceil(drop * candidates - 1e-9), alive - 1)


def rounds_of_iteration(candidates: int, turns: int, drop: float) -> int:
    """Rounds of the run that an iteration takes."""
    alive, found = candidates, 0
    for _ in range(turns):
        gone = dropped(candidates, alive, drop)
        found, alive = found + 1 + (gone > 0), alive - gone
    return found
